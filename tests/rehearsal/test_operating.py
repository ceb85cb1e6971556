"""What a rehearsal says when its proof fails: with the hosts goes whatever else could tell."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.errors import NotReady
from infra.rehearsal.operating import Operator
from tests.launch.running_deployment import make_running

DIED = "decode-1: decode-1/2 was ended by signal 9"


@pytest.mark.parametrize("why", ["", DIED])
def test_a_group_that_was_restarted_under_the_proof_is_told_of(catalog: Catalog, why: str) -> None:
    deployment, fleet = make_running("gb200-2p1d", catalog)
    fleet.silent.add("decode-1/2")
    fleet.group_rows["decode/0"] = {"why": why, "restarts": int(bool(why)), "phase": "run"}
    with pytest.raises(NotReady) as caught:
        Operator(deployment=deployment, secrets={}, catalog=catalog).verify()
    told = f" decode/0: restarted once; the last time: {DIED}."
    assert caught.value.what.endswith(told) is bool(why)
