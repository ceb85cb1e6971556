from __future__ import annotations

import pytest

from infra.errors import StackError
from infra.tasks.command_words import refuse_lost_words


@pytest.mark.parametrize(
    "line",
    [
        "",
        "plan --stack x --set a=b --set c=d --json",
        "plan --stack=x --set=a=b --json --json",
        "plan --stack x check --stack y",
        "replace-host up down --stack x",
        "engines --stack x --diff a b",
        "logs --stack x --grep -v",
        "nonsense --stack x --stack y",
        "plan --stack",
    ],
)
def test_what_the_parser_takes_or_tells_by_itself_is_let_through(line: str) -> None:
    refuse_lost_words(line.split())


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("plan --stack x --set", "--set needs a value."),
        ("plan --set --stack x", "--set needs a value."),
        ("estimate --stack x --compare --json", "--compare needs a value."),
        ("plan --stack x --stack y", "--stack is given twice to plan."),
        ("plan --stack=x --stack=y", "--stack is given twice to plan."),
        ("stacks check --file x --file y", "--file is given twice to check."),
        ("replace-host up down --stack x --stack y", "--stack is given twice to replace-host."),
    ],
)
def test_what_the_parser_would_lose_is_refused(line: str, what: str) -> None:
    with pytest.raises(StackError) as caught:
        refuse_lost_words(line.split())
    assert caught.value.what == what
