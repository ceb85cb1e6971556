"""What `fab verify` says of the edge: a stream's first byte, and what a wrong edge says of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.bring_up import bring_up
from infra.launch.proof.edge import judge_first_byte
from infra.launch.proof.rdma_counters import UNPROVEN
from infra.launch.proof.verification import verify
from tests.launch.scripted_fleet import make_deployment

EDGE = "edge={name: haproxy, tls: none, keys: {file: clients.keys}}"


@pytest.mark.parametrize(
    ("through_s", "behind_s", "is_right", "words"),
    [
        (0.3, 0.001, True, "first byte of a stream over TLS: 0.300 s, 0.001 s behind the edge"),
        (0.01, 0.5, True, "0.010 s, 0.500 s behind the edge"),
        # the engine is what is late
        (1.2, 1.1, True, "wanted 0.3 s at most, and router/0 is what is late: the edge adds 0.1"),
        (1.2, 1.3, True, "1.200 s, 1.300 s behind the edge; wanted 0.3 s at most, and router/0 is"),
        # the edge is
        (0.301, 0.001, False, "wanted 0.3 s at most, and the edge adds 0.300 s"),
        (0.31, 0.3, False, "0.310 s, 0.300 s behind the edge; wanted 0.3 s at most, and the edge"),
        (1.2, 1.05, False, "1.200 s, 1.050 s behind the edge; wanted 0.3 s at most, and the edge"),
        (12.4, 0.1, False, "12.400 s, 0.100 s behind the edge; wanted 0.3 s at most, and the edge"),
    ],
)
def test_a_stream_begins_in_time_or_the_engine_is_named(
    catalog: Catalog, through_s: float, behind_s: float, is_right: bool, words: str
) -> None:
    edge = make_deployment("gb200-2p1d", catalog, sets=(EDGE,))[0].endpoints.edge
    assert edge is not None
    edge = replace(edge, endpoint="https://192.0.2.1:8000")
    ok, told = judge_first_byte(edge, through_s, "router/0", behind_s)
    assert ok is is_right
    assert words in told


def test_an_edge_that_lets_everybody_in_says_nothing_of_cards(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment("gb200-2p1d", catalog, sets=(EDGE,))
    # what its scripted engines can do
    deployment = replace(deployment, plan=replace(deployment.plan, capabilities=("chat",)))
    bring_up(deployment, {}, tunes=False)
    checks = verify(deployment, {}, 5.0, catalog)
    assert [check.ok for check in checks if check.check == "edge"][:2] == [False, False]
    cards = [check.detail for check in checks if check.check == "rdma-counters"]
    assert cards
    assert UNPROVEN not in cards
    # a rank that answers with an error need not have moved anything
    fleet.answer_with["decode-0/0"] = {"status": 500, "body": "no"}
    checks = verify(deployment, {}, 5.0, catalog)
    assert {c.detail for c in checks if c.check == "rdma-counters"} == {UNPROVEN}
