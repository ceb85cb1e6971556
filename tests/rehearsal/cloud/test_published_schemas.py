from __future__ import annotations

import json
import re
import runpy

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.kind import values_at
from infra.rehearsal.cloud.published_schemas import (
    FILE,
    TYPES,
    published_values,
)
from infra.rehearsal.cloud.storage_kinds import ASSOCIATION
from infra.rehearsal.cloud.value_rules import value_failures
from infra.spec.load import PROJECT
from tests.provision.test_golden_resources import GOLDEN

FOUND = json.loads(FILE.read_text(encoding="utf-8"))
STORED = FOUND["types"]


def test_the_file_says_which_release_it_was_written_from() -> None:
    form = r"cfn-lint \d+\.\d+\.\d+, schemas of \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, us-east-1"
    assert re.fullmatch(form, FOUND["source"]), FOUND["source"]


@pytest.mark.parametrize("quote", ["'", '"'])
def test_the_release_is_read_from_the_line_that_says_it(quote: str) -> None:
    dump = runpy.run_path(str(PROJECT / "scripts" / "dump-cloudformation"))
    text = f'"""The "version"."""\n\n__version__ = {quote}1.58.0{quote}\n'
    assert dump["released"](text) == "1.58.0"
    with pytest.raises(SystemExit, match="there is no line"):
        dump["released"]('version = "1.58.0"')


def test_every_type_is_stored_and_emulated() -> None:
    assert set(STORED) == set(TYPES)
    assert set(TYPES) <= set(operations.KINDS)
    assert {token: row["type"] for token, row in STORED.items()} == {
        token: same.name for token, same in TYPES.items()
    }


@pytest.mark.parametrize(
    ("token", "inputs", "said"),
    [
        (ASSOCIATION, {"fileSystemId": "lustre-1"}, "to be at least 11 characters"),
        (ASSOCIATION, {"importedFileChunkSize": 0}, "to be at least 1"),
        ("aws:iam/role:Role", {"path": "no-slash"}, "to match"),
        (
            "aws:ec2/vpcEndpoint:VpcEndpoint",
            {"dnsOptions": {"dnsRecordIpType": "ipv5"}},
            "to be one of ipv4",
        ),
    ],
)
def test_a_value_that_the_schema_rules_out_is_refused(
    token: str, inputs: dict[str, object], said: str
) -> None:
    ((_, reason),) = value_failures(token, inputs)
    assert said in reason


def test_every_pattern_is_one_and_every_limit_can_be_met() -> None:
    for token in TYPES:
        for path, shape in published_values(token).items():
            assert set(shape) - {"type"}, (token, path)
            re.compile(str(shape.get("pattern", "")))
            assert int(str(shape.get("min", 0))) <= int(str(shape.get("max", 1 << 62)))


def test_the_words_of_our_own_stacks_are_judged() -> None:
    """Closed words that the goldens hold are known to a model or a schema, not let through."""
    judged = {"aws:ec2/launchTemplate:LaunchTemplate": 0, "aws:ec2/vpcEndpoint:VpcEndpoint": 0}
    for path in GOLDEN.glob("*.json"):
        for title, inputs in json.loads(path.read_text(encoding="utf-8")).items():
            for token in judged:
                if token.endswith(f":{title.split()[0]}"):
                    shapes = published_values(token)
                    judged[token] += sum(1 for each in shapes for _ in values_at(inputs, each))
    assert all(judged.values())
