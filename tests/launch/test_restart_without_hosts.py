"""A restart while a host is away, or is lost on the way: refused, carried out elsewhere, or asked for once more."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, InfraError
from infra.launch.bring_up import bring_up
from infra.launch.deployment import Deployment
from infra.launch.restart import Selection, restart
from infra.remote.failures import SudoRefused, Unreachable
from tests.launch.scripted_fleet import ScriptedFleet, make_deployment

STACK = "gb200-2p1d"
SMALL = (
    "platform=existing-hosts",
    "roles.decode.data_parallel=8",
    "defaults.max_model_len=32768",
)
MOONCAKE = ("kv_transfer=mooncake",)


def without(
    stack: str, catalog: Catalog, *hosts: str, sets: tuple[str, ...] = ()
) -> tuple[Deployment, ScriptedFleet, list[str], dict[str, InfraError]]:
    """A deployment that came up, and of which hosts have gone since."""
    deployment, fleet, said = make_deployment(stack, catalog, sets=sets)
    bring_up(deployment, {}, tunes=False)
    gone: dict[str, InfraError] = {
        host: Unreachable(host, f"{host} does not answer.", "Look at it.") for host in hosts
    }
    fleet.fails.update(gone)
    fleet.asked.clear()
    said.clear()
    return deployment, fleet, said, gone


def selection(role: str | None = None, replica: int | None = None) -> Selection:
    return Selection(role=role, replica=replica, rolling=False)


@pytest.mark.parametrize("named", [selection(), selection("prefill"), selection("prefill", 1)])
def test_a_group_with_a_rank_there_is_refused_before_anybody_is_asked(
    catalog: Catalog, named: Selection
) -> None:
    deployment, fleet, _, gone = without(STACK, catalog, "prefill-1", sets=SMALL)
    with pytest.raises(HostsFailed) as caught:
        restart(deployment, named, "ann", gone)
    assert not fleet.asked
    assert caught.value.where == "prefill-1"
    assert caught.value.what == (
        "prefill-1 does not answer. prefill/1 has ranks there, so nothing was stopped."
    )
    assert "`fab replace-host prefill-1 NEW --stack gb200-2p1d`" in caught.value.fix
    assert "no part in `--role prefill --replica 0` or `--role decode`." in caught.value.fix


def test_a_machine_that_lives_is_not_to_be_replaced(catalog: Catalog) -> None:
    deployment, fleet, _, _ = without(STACK, catalog, "prefill-1", sets=SMALL)
    refused = {
        "prefill-1": SudoRefused("prefill-1", "sudo wants a terminal.", "Remove requiretty.")
    }
    with pytest.raises(HostsFailed) as caught:
        restart(deployment, selection("prefill"), "ann", refused)
    assert not fleet.asked
    assert caught.value.fix.startswith("Remove requiretty. It has no part in")


def test_each_of_several_hosts_is_told_with_what_it_has_a_part_in(catalog: Catalog) -> None:
    deployment, _, _, gone = without(STACK, catalog, "prefill-1", "decode-0", sets=SMALL)
    with pytest.raises(HostsFailed, match="2 of 2 hosts failed") as caught:
        restart(deployment, selection(), "ann", gone)
    assert [error.where for error in caught.value.each()] == ["prefill-1", "decode-0"]


def test_what_it_has_no_part_in_is_restarted_and_proven(catalog: Catalog) -> None:
    # the router is on its first host, which is the one that is away
    deployment, fleet, said, gone = without(STACK, catalog, "prefill-0", sets=SMALL)
    look = restart(deployment, selection("decode"), "ann", gone)
    assert look.groups["decode/0"].epoch == 2
    assert "prefill/0" not in look.groups
    assert not any(host == "prefill-0" for host, _, _ in fleet.asked)
    probed = {host for host, operation, _ in fleet.asked if operation == "probe"}
    assert probed == {"prefill-1", "decode-0", "decode-1"}
    assert said[0] == ("prefill-0 cannot be asked: prefill/0 is left alone, and not proven")
    assert said[1].startswith("router/0 is on prefill-0, which cannot be asked: it is not told")


def test_a_decode_rank_is_never_proven_without_a_prefill_rank(catalog: Catalog) -> None:
    deployment, fleet, _, gone = without(
        STACK, catalog, "prefill-0", sets=(*SMALL, "roles.prefill.replicas=1")
    )
    with pytest.raises(HostsFailed, match="cannot be proven without a prefill group") as caught:
        restart(deployment, selection("decode"), "ann", gone)
    assert not fleet.asked
    assert "nothing was stopped" in caught.value.what


def test_prefill_ranks_that_need_a_decode_rank_are_not_restarted_without_one(
    catalog: Catalog,
) -> None:
    deployment, fleet, _, gone = without(STACK, catalog, "decode-0", sets=(*SMALL, *MOONCAKE))
    with pytest.raises(HostsFailed, match="cannot be proven without a decode group"):
        restart(deployment, selection("prefill", 0), "ann", gone)
    assert not fleet.asked


def test_a_wish_whose_answer_was_lost_ends_no_epoch_but_the_one_that_was_seen(
    catalog: Catalog,
) -> None:
    deployment, fleet, _, _ = without(STACK, catalog, sets=SMALL)
    fleet.lose.append(("decode-0", "groups"))  # the wish is granted before it is asked for again
    look = restart(deployment, selection("decode"), "ann")
    wishes = [request for _, _, request in fleet.asked if request.get("action") == "restart"]
    assert len(wishes) == 2
    assert look.groups["decode/0"].epoch == 2
