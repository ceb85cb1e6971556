"""Clients' keys: what an operator may write, and what of it leaves the operator's machine."""

from __future__ import annotations

import hashlib

import pytest

from infra.errors import StackError
from infra.spec.edge_keys import LONGEST, MAX_KEYS, SHORTEST, digest_map, parse_keys

KEY, OTHER = "a" * SHORTEST, "b" * LONGEST


def test_a_line_is_a_name_and_a_key_and_comments_say_nothing() -> None:
    found = parse_keys(f"# clients\n\n  team-a\t{KEY}\r\nbob.2 {OTHER}\n# end")
    assert [tuple(each) for each in found] == [("team-a", KEY), ("bob.2", OTHER)]
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line with a client's key"),
        ("# nobody\n", "no line with a client's key"),
        ("alone\n", "Line 1 of the clients' keys is of one word"),
        (f"a {KEY} more", "is of 3 words"),
        (
            f"ok {KEY}\na {'x' * (SHORTEST - 1)}",
            "Line 2 of the clients' keys has a key of 31 characters for a",
        ),
        (f"a {'x' * (LONGEST + 1)}", "has a key of 513 characters"),
        (f"a {'é' * SHORTEST}", "plain ones are needed"),
        (f"-a {KEY}", "has a name of other characters"),
        (f"{'n' * 65} {KEY}", "or of more than 64"),
        (f"a\x1b[1m {KEY}", "has a name of other characters"),
        (f"a {KEY}\na {OTHER}", "Line 2 of the clients' keys has the name or the key of line 1"),
        (f"a {KEY}\n\nb {KEY}", "Line 3 of the clients' keys has the name or the key of line 1"),
    ],
)
def test_what_is_no_list_of_keys_is_refused_and_shows_none(text: str, says: str) -> None:
    with pytest.raises(StackError) as caught:
        parse_keys(text)
    assert says in str(caught.value)
    assert not any(word in str(caught.value) for word in text.split() if len(word) >= SHORTEST - 1)
    assert "\x1b" not in str(caught.value)


def test_a_file_of_more_keys_than_are_taken_is_refused() -> None:
    text = "".join(f"n{i} {i:040d}\n" for i in range(MAX_KEYS + 1))
    with pytest.raises(StackError, match="at most 10000"):
        parse_keys(text)


def test_a_name_that_looks_like_a_key_is_no_key() -> None:
    name = "k" * SHORTEST
    found = parse_keys(f"{name} {KEY}\nother {name}")
    assert len(found) == 2


def test_a_host_gets_digests_and_names_in_one_order() -> None:
    text = digest_map(parse_keys(f"b {OTHER}\na {KEY}"))
    digests = [hashlib.sha256(key.encode()).hexdigest() for key in (KEY, OTHER)]
    assert text == f"{digests[0]} a\n{digests[1]} b\n"
