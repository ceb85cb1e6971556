"""YAML read with the line and column of every key, refusing what could hang or mislead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import yaml

from infra.errors import Problem

MAX_BYTES = 1_000_000
MAX_NODES = 20_000
MAX_DEPTH = 40
# A shorter text cannot nest so deep that the parser's own stack ends.
SHALLOW_BYTES = 8_000

Path = tuple[str | int, ...]
Position = tuple[int, int]
Tags = Mapping[str, Callable[[str], object]]
MERGE = "tag:yaml.org,2002:merge"
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# Of digits, signs, underscores and colons: a number of more parts than that takes the parser minutes.
MAX_NUMBER = 24
# What is larger than this in either direction counts nothing, and no float holds it.
LARGEST = 10**18

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A YAML document as plain values, with where each key and item stands.

    Args:
        data: maps, lists and scalars.
        positions: path → (line, column), both 1-based; a map's entry points at its key.
    """

    data: object
    positions: Mapping[Path, Position]


@dataclass(slots=True)
class _Reader:
    """Walks composed nodes; counts them, so that aliases cannot multiply for ever."""

    file: str
    tags: Tags
    merges: bool
    problems: list[Problem] = field(default_factory=list)
    positions: dict[Path, Position] = field(default_factory=dict)
    num_nodes: int = 0

    def refuse(self, rule: str, node: yaml.Node, path: Path, what: str, fix: str) -> None:
        """Record a problem at a node."""
        self.problems.append(
            Problem(
                rule=rule,
                severity="error",
                field=dotted(path),
                what=what,
                fix=fix,
                file=self.file,
                line=node.start_mark.line + 1,
            )
        )

    def read(
        self, node: yaml.Node, path: Path, constructor: yaml.constructor.SafeConstructor
    ) -> object:
        """The plain value of a node."""
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise _TooLargeError
        self.positions.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        if isinstance(node, yaml.MappingNode):
            return self._read_map(node, path, constructor)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i), constructor) for i, item in enumerate(node.value)]
        if node.tag in NUMBERS and len(str(node.value)) > MAX_NUMBER:
            raise _TooLongError(node, len(str(node.value)))
        if "\0" in str(node.value):
            what = "The value holds a zero byte, which no command, variable or path can."
            self.refuse("yaml-syntax", node, path, what, "Leave it out.")
        if node.tag in self.tags:
            return self.tags[node.tag](str(node.value))
        value: object = constructor.construct_object(node)
        if isinstance(value, int) and abs(value) > LARGEST:
            raise _TooLongError(node, len(str(node.value)))
        return value

    def _read_map(
        self, node: yaml.MappingNode, path: Path, constructor: yaml.constructor.SafeConstructor
    ) -> dict[str, object]:
        result: dict[str, object] = {}
        own: set[str] = set()
        pairs = [(False, *pair) for pair in node.value]
        if self.merges:
            pairs = [
                *((True, *pair) for pair in self._merged_pairs(node, path)),
                *((False, *pair) for pair in node.value if pair[0].tag != MERGE),
            ]
        for is_merged, key_node, value_node in pairs:
            key = str(getattr(key_node, "value", ""))
            if not isinstance(key_node, yaml.ScalarNode) or key == "<<":
                self.refuse(
                    "yaml-syntax",
                    key_node,
                    path,
                    "A key must be a plain word.",
                    "Write `key: value`.",
                )
                continue
            here = (*path, key)
            if key in own:
                first = self.positions[here][0]
                self.refuse(
                    "duplicate-key",
                    key_node,
                    here,
                    f"{key} is written twice (first in line {first}).",
                    "Keep one of them.",
                )
                continue
            if not is_merged:
                own.add(key)
            self.positions[here] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            result[key] = self.read(value_node, here, constructor)
        return result

    def _merged_pairs(
        self, node: yaml.MappingNode, path: Path
    ) -> list[tuple[yaml.Node, yaml.Node]]:
        """What `<<` brings into a map: the map's own keys win, then the first of several maps."""
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag != MERGE:
                continue
            several = isinstance(value_node, yaml.SequenceNode)
            for source in reversed(value_node.value) if several else [value_node]:
                if not isinstance(source, yaml.MappingNode):
                    what = "`<<` takes a map, or a list of maps."
                    self.refuse("yaml-syntax", key_node, path, what, "Write `<<: *name`.")
                    continue
                self.num_nodes += len(source.value)
                if self.num_nodes > MAX_NODES:
                    raise _TooLargeError
                pairs += self._merged_pairs(source, path)
                pairs += [pair for pair in source.value if pair[0].tag != MERGE]
        return pairs


class _TooLongError(yaml.MarkedYAMLError):
    """A number counts further than anything does."""

    def __init__(self, node: yaml.Node, length: int) -> None:
        digits = "thousands of digits" if length > 1_000 else f"{length} characters"  # noqa: PLR2004 - as people say it
        super().__init__(problem=f"a number there has {digits}", problem_mark=node.start_mark)


class _TooLargeError(Exception):
    """The document expands beyond what any stack needs."""


def dotted(path: Path) -> str:
    """`("roles", "decode", 0)` as `roles.decode.0`."""
    return ".".join(str(part) for part in path)


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read as text, as the end of a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start + 1} is no UTF-8 text"
    return error.strerror or type(error).__name__


def read_yaml(
    text: str, file: str, tags: Tags = MappingProxyType({}), *, merges: bool = False
) -> tuple[Document, list[Problem]]:
    """Plain values and positions of one YAML document, and what is wrong with it.

    Args:
        text: the file's content.
        file: its name for messages.
        tags: what the scalars of further tags (`!vault`) become; other tags are problems.
        merges: whether `<<` merges maps; else it is a problem.

    Returns:
        The document (with `data=None` when nothing could be read) and its problems.
    """
    empty = Document(data=None, positions={})
    if len(text) > MAX_BYTES:
        what = f"The file has {len(text)} bytes; at most {MAX_BYTES} are read."
        return empty, [_whole_file(file, what)]
    reader = _Reader(file, tags, merges)
    if len(text) > SHALLOW_BYTES and _is_too_deep(text):
        return empty, [_whole_file(file, f"The file nests more than {MAX_DEPTH} levels deep.")]
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        data = {} if node is None else reader.read(node, (), loader)
    except yaml.MarkedYAMLError as error:
        return empty, [_syntax(file, error)]
    except (_TooLargeError, RecursionError):
        what = f"The file expands to more than {MAX_NODES} values or {MAX_DEPTH} levels (repeated aliases?)."
        return empty, [_whole_file(file, what)]
    except (yaml.YAMLError, ValueError) as error:
        return empty, [_whole_file(file, f"This cannot be read as YAML: {error}.")]
    return Document(data=data, positions=reader.positions or {(): (1, 1)}), reader.problems


def _is_too_deep(text: str) -> bool:
    """Whether a text nests beyond what is read: composing such nodes would end the interpreter, not raise."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                return True
    except (yaml.YAMLError, ValueError):
        return False  # what is wrong with it is said when it is read
    return False


def _syntax(file: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    if "expected a single document" in str(error.context):
        line = None if mark is None else mark.line + 1
        return _at_line(file, line, "A second document begins here.", "Keep one of them.")
    what = " ".join(part for part in (error.context, error.problem) if part)
    line = None if mark is None else mark.line + 1
    if isinstance(error, _TooLongError):
        fix = "Write a smaller number, or text in quotes."
        return _at_line(file, line, f"This cannot be read as YAML: {what}.", fix)
    fix = "Mend the indentation or quoting in this line."
    return _at_line(file, line, f"This is not YAML: {what}.", fix)


def _whole_file(file: str, what: str) -> Problem:
    return _at_line(file, 1, what, "A stack file is a short map; see stacks/gb200-2p1d.yaml.")


def _at_line(file: str, line: int | None, what: str, fix: str) -> Problem:
    return Problem(
        rule="yaml-syntax",
        severity="error",
        field="",
        what=what,
        fix=fix,
        file=file,
        line=line,
    )
