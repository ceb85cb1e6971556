"""Stand-ins for what a package imports and is not installed here: torch, transformers, compiled extensions.

A package's parser is built by its own code; nearly everything else that it imports is never looked at. A
stand-in takes any use that happens while modules are imported: as a base class, a decorator, an annotation, a
call. What it must never do is reach the catalogue: `is_standin` finds it there, and the dump refuses.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import types
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Imported for real, beside the standard library: they decide how a configuration class takes a value.
REAL = frozenset(
    {
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions",
        "typing_inspection",
        "msgspec",
    }
)

# Where one of these is found, code takes the machine for one with that vendor's devices.
ABSENT = frozenset(
    {"torch_npu", "torch.npu", "torch_musa", "torch.musa", "habana_frameworks", "torch.hpu"}
)


class _Number:
    """What a stand-in is where somebody calculates with it: nothing, whatever is done."""

    def __int__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 0

    def __float__(self) -> float:
        return 0.0

    def __lt__(self, _: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def _same(self, *_: object) -> Any:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _same
    __floordiv__ = __rtruediv__ = __mod__ = __pow__ = __neg__ = _same


class StandInType(_Number, abc.ABCMeta):
    """The type of stand-in classes: whatever is asked of them is a stand-in, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        made = _named(f"{cls.__qualname__}.{name}")
        setattr(cls, name, made)
        return made

    def __instancecheck__(cls, value: object) -> bool:
        return StandIn in type(value).__mro__ or type(value) is StandInType

    def register(cls, *args: Any, **_: Any) -> Any:
        """Registries of other packages take whatever they are told."""
        return args[-1] if args else cls()

    def __getitem__(cls, _: object) -> Any:
        return cls

    def __setitem__(cls, _: object, __: object) -> None:
        """Forget it."""

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __contains__(cls, _: object) -> bool:
        return False

    def __bool__(cls) -> bool:
        return True


class StandIn(_Number, metaclass=StandInType):
    """A name of a package that is not installed."""

    def __new__(cls, *args: Any, **_: Any) -> Any:
        """A decorator gives back what it decorates; any other call gives something to ask further."""
        if len(args) == 1 and _is_decoratable(args[0]):
            return args[0]
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take anything."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Take any word in a class statement."""

    def __class_getitem__(cls, _: object) -> Any:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        """Pydantic asks how to check a value: it takes anything."""
        return {"type": "any"}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _named(name)

    def __call__(self, *args: Any, **_: Any) -> Any:
        """Give back what is decorated, or something to ask further."""
        if len(args) == 1 and _is_decoratable(args[0]):
            return args[0]
        return type(self)()

    def __getitem__(self, _: object) -> Any:
        return type(self)()

    def __setitem__(self, _: object, __: object) -> None:
        """Forget it."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, _: object) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        """Let exceptions through."""

    def __bool__(self) -> bool:
        return False

    def __or__(self, _: object) -> Any:
        return self

    __ror__ = __and__ = __or__


class StandInModule(types.ModuleType):
    """A module of which nothing is there, and every name is a stand-in."""

    __all__: tuple[str, ...] = ()
    __file__ = "not installed"
    __version__ = "0.0.0"

    def __init__(self, name: str) -> None:
        """A package without a folder: modules below it are found as stand-ins."""
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        is_protocol = name.startswith("__") and name.endswith("__")
        if is_protocol or f"{self.__name__}.{name}" in ABSENT:
            raise AttributeError(name)
        made = _named(name)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages under reading and what is `REAL`; everything else is a stand-in."""

    def __init__(self, own: Sequence[str], left_out: Sequence[str]) -> None:
        """Take the top-level names that are read for real, and modules of theirs that are not."""
        self._own = frozenset(own)
        self._left_out = tuple(left_out)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec of the real module where there is one to be read, else of a stand-in."""
        top = fullname.partition(".")[0]
        if top in sys.stdlib_module_names or top in REAL:
            return None
        if top in self._own and not fullname.startswith(self._left_out):
            found = importlib.machinery.PathFinder.find_spec(fullname, path)
            is_compiled = fullname.rpartition(".")[2].startswith("_")
            if found is not None or not is_compiled:
                return None
        if top in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty stand-in."""
        return StandInModule(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        """There is nothing to run."""


def install(folder: Path, own: Sequence[str], left_out: Sequence[str] = ()) -> None:
    """Let this process import the packages in a folder, and nothing that they need.

    Args:
        folder: an unpacked package.
        own: top-level names that are imported from there.
        left_out: modules among them that would look for an accelerator, or change another package.
    """
    sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, Finder(own, left_out))
    sys.modules["regex"] = re  # the same expressions, but for what no parser uses
    _answer_where_a_standin_cannot()


def _answer_where_a_standin_cannot() -> None:
    """Calls whose result is taken apart while modules are imported."""
    library: Any = importlib.import_module("torch.library")
    library.infer_schema = _tensor_schema
    uuid.uuid4 = lambda: uuid.UUID(int=0)  # a default may hold one; two dumps must be equal
    torch: Any = importlib.import_module("torch")
    torch.iinfo = lambda _: types.SimpleNamespace(min=-(2**63), max=2**63 - 1)
    pickles: Any = importlib.import_module("dill")
    pickles.dumps = lambda _: b""
    known_version = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return known_version(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            return "0.0.0"

    importlib.metadata.version = version


def is_standin(value: object) -> bool:
    """Whether a value came out of a package that is not installed."""
    return isinstance(value, StandInModule | StandIn)


def _tensor_schema(function: Any, **_: Any) -> str:
    """Torch's line for an operator, in which every argument and result is a tensor."""
    signature = inspect.signature(function)
    results = getattr(signature.return_annotation, "__args__", (None,))
    taken = ", ".join(f"Tensor {name}" for name in signature.parameters)
    return f"({taken}) -> ({', '.join('Tensor' for _ in results)})"


def _named(name: str) -> Any:
    return StandInType(name.rpartition(".")[2], (StandIn,), {"__qualname__": name})


def _is_decoratable(value: object) -> bool:
    return isinstance(value, types.FunctionType | classmethod | staticmethod) or (
        isinstance(value, type) and not isinstance(value, StandInType)
    )
