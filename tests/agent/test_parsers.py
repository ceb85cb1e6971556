"""Every case of tests/cases/facts/<parser>: what a tool printed, and what is read from it.

A case holds `summary`, `origin` (recorded, with where; or written from documentation), `input`, and
`expected` or `refused` (a part of the message).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.facts.stuck import parse_state, parse_switches
from infra.agent.host import Refused
from infra.agent.journal.lines import Parser
from infra.agent.kinds.images import parse_digests
from infra.agent.kinds.kernel_knobs import parse_ports, render_ports
from infra.agent.processes.listening import parse_table
from infra.agent.services import parse_properties
from infra.agent.staging.manifest import parse_manifest
from infra.spec.plain_yaml import read_yaml

CASES = Path(__file__).parents[1] / "cases" / "facts"
UNITS = ["moe-s-engine@0.service"]
PARSERS: dict[str, Callable[[str], object]] = {
    "proc-net-tcp": lambda text: parse_table(text, socket.AF_INET),
    "proc-net-tcp6": lambda text: parse_table(text, socket.AF_INET6),
    "systemctl-show": parse_properties,
    "journalctl-export": lambda text: [
        [entry.time_us, UNITS[entry.unit], entry.message.decode()]
        for entry in Parser(UNITS).feed(text.encode())
    ],
    "image-inspect": parse_digests,
    "manifest": lambda text: parse_manifest(text.encode()),
    "proc-stat": parse_state,
    "proc-switches": parse_switches,
    "port-list": lambda text: render_ports(parse_ports(text)),
}


@pytest.mark.parametrize(
    "path",
    sorted(path for path in CASES.glob("*/*.yaml") if path.parent.name in PARSERS),
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_a_case_is_read(path: Path) -> None:
    case = read_yaml(path)
    parse = PARSERS[path.parent.name]
    assert case["origin"].startswith(("recorded", "written from documentation"))
    if "refused" in case:
        with pytest.raises(Refused) as caught:
            parse(case["input"])
        assert case["refused"] in str(caught.value)
    else:
        assert json.loads(json.dumps(parse(case["input"]))) == case["expected"]


@pytest.mark.parametrize("parser", sorted(PARSERS))
def test_every_parser_has_a_zero_and_a_garbage(parser: str) -> None:
    assert {"zero", "garbage"} <= {path.stem for path in (CASES / parser).glob("*.yaml")}
