"""Which hosts `--limit` names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.errors import StackError
from infra.tasks.limit import left_out, limit_words, limited
from infra.tasks.options import Options
from tests.cli.test_host_names import host

BY_PLAN = {
    name: replace(host(name), machine=machine)
    for name, machine in (("decode-0", "gpu7a"), ("decode-1", "gpu7b"), ("decode-2", None))
}


def asked(*words: str) -> Options:
    return Options({"limit": list(words)})


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ((), ("decode-0", "decode-1", "decode-2")),
        (("decode-1",), ("decode-1",)),
        (("gpu7b",), ("decode-1",)),
        (("gpu7b,decode-0",), ("decode-0", "decode-1")),
        (("decode-2", "gpu7a"), ("decode-0", "decode-2")),
    ],
)
def test_a_host_is_named_by_either_name(words: tuple[str, ...], chosen: tuple[str, ...]) -> None:
    assert limited(asked(*words), BY_PLAN, BY_PLAN) == chosen
    machines = {"decode-0": "gpu7a", "decode-1": "gpu7b", "decode-2": "decode-2"}
    named = limited(asked(*words), machines.values(), BY_PLAN)
    assert named == tuple(machines[name] for name in chosen)


def test_a_host_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(StackError, match=r"There is no host gpu7c\. Did you mean gpu7"):
        limited(asked("gpu7c"), BY_PLAN, BY_PLAN)


def test_the_others_are_left_out_and_the_words_come_again() -> None:
    assert set(left_out(BY_PLAN, ("decode-1",))) == {"decode-0", "decode-2"}
    assert limit_words(asked("a", "b c")) == " --limit a --limit 'b c'"
    assert limit_words(asked()) == ""
