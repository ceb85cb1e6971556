"""`@frozen` beside the dataclass that it stands for."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

import pytest

from infra.frozen import frozen

T = TypeVar("T")


@frozen
class Host:
    """A value with every kind of field."""

    name: str
    ports: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default="", repr=False)

    @property
    def num_ports(self) -> int:
        return len(self.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The same, as a dataclass."""

    name: str
    ports: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default="", repr=False)


@frozen(kw_only=False)
class Pair:
    """A value that is told by position."""

    left: int
    right: int = 2


@frozen
class Empty:
    """A value of nothing."""


@frozen
class Box(Generic[T]):
    """A value of a type that is told later."""

    content: T


@frozen
class Checked:
    """A value that looks at itself."""

    share: float

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError(self.share)


def test_it_is_shown_as_a_dataclass_is() -> None:
    told: dict[str, Any] = {"name": "a", "ports": (1, 2), "token": "sesame"}
    assert repr(Host(**told)) == repr(Twin(**told)).replace("Twin", "Host")
    assert "sesame" not in repr(Host(**told))
    assert repr(Empty()) == "Empty()"


def test_defaults_are_its_own() -> None:
    one, other = Host(name="a"), Host(name="a")
    assert (one.ports, one.token) == ((), "")
    assert one.labels == {}
    assert one.labels is not other.labels


def test_equal_values_are_equal_and_of_one_class() -> None:
    assert Pair(1, 2) == Pair(1)
    assert Pair(1, 2) != Pair(1, 3)
    other: object = Box(content=1)
    assert other != Pair(1)
    assert Empty() == Empty()
    assert hash(Pair(1, 2)) == hash(Pair(1))
    assert {Pair(1, 2), Pair(1), Pair(2)} == {Pair(1), Pair(2)}
    with pytest.raises(TypeError, match="unhashable type: 'dict'"):
        hash(Host(name="a"))


@pytest.mark.parametrize("attribute", ["name", "nothing_of_that_name"])
def test_nothing_of_it_changes(attribute: str) -> None:
    host = Host(name="a")
    with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{attribute}'"):
        setattr(host, attribute, "b")
    with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{attribute}'"):
        delattr(host, attribute)
    assert host == Host(name="a")
    assert not hasattr(host, "__dict__")


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), (("a",), {}), ((), {"name": "a", "title": "b"})]
)
def test_what_is_told_wrongly_is_refused_in_the_words_of_a_dataclass(
    given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as ours:
        Host(*given, **named)
    with pytest.raises(TypeError) as theirs:
        Twin(*given, **named)
    assert str(ours.value) == str(theirs.value).replace("Twin", "Host")


def test_dataclasses_own_functions_take_it() -> None:
    host = Host(name="a", ports=(1,))
    assert is_dataclass(host)
    assert replace(host, name="b") == Host(name="b", ports=(1,))
    assert asdict(Box(content=Pair(1))) == {"content": {"left": 1, "right": 2}}
    assert [(each.name, each.kw_only, each.type) for each in fields(Host)] == [
        (each.name, each.kw_only, each.type) for each in fields(Twin)
    ]
    assert [each.kw_only for each in fields(Pair)] == [False, False]


def test_it_is_copied_and_travels() -> None:
    host = Host(name="a", labels={"zone": "1"})
    copied = copy.deepcopy(host)
    assert copied == host
    assert copied.labels is not host.labels
    assert pickle.loads(pickle.dumps(Pair(1))) == Pair(1)  # noqa: S301 - what this line wrote


def test_it_is_taken_apart_by_position_where_it_is_told_so() -> None:
    match Pair(1, 5):
        case Pair(1, right):
            assert right == 5
    assert Host.__match_args__ == Twin.__match_args__ == ()


def test_it_keeps_its_methods_its_name_and_its_type_parameters() -> None:
    assert Host(name="a", ports=(1, 2)).num_ports == 2
    assert (Host.__module__, Host.__qualname__) == (__name__, "Host")
    assert Host.__doc__ == "A value with every kind of field."
    assert Box[int](content=1).content == 1
    assert Host.__init__.__qualname__ == "Host.__init__"


def test_it_may_look_at_itself() -> None:
    assert Checked(share=1.0).share == 1.0
    with pytest.raises(ValueError, match=r"1\.5"):
        Checked(share=1.5)


def test_what_only_a_dataclass_has_is_refused() -> None:
    with pytest.raises(TypeError, match="fields of a class above"):

        @frozen
        class Under(Pair):
            more: int

    with pytest.raises(TypeError, match="its own __init__"):

        @frozen
        class Built:
            def __init__(self) -> None:
                pass

    with pytest.raises(TypeError, match="says of seen what it is not asked for"):

        @frozen
        class Uncompared:
            seen: int = field(compare=False)

    with pytest.raises(TypeError, match="shares the default of names"):

        @frozen
        class Shared:
            names: list[str] = []  # noqa: RUF012 - the mistake
