from __future__ import annotations

from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.launch.answering import AnsweringFleet
from infra.launch.bring_up import bring_up
from infra.launch.differences import differences
from infra.launch.plan_difference import flags_of, host_differences
from infra.launch.secret import Secret
from infra.remote.failures import Unreachable
from infra.render.host_paths import release_path
from infra.tasks.diff import diff_document, listing
from tests.launch.scripted_fleet import make_deployment
from tests.launch.test_replacement import STACK, other_release


def test_nothing_differs_from_what_was_just_brought_up(catalog: Catalog) -> None:
    deployment, _, _ = make_deployment(STACK, catalog)
    bring_up(deployment, {}, tunes=False)
    assert not differences(deployment, {}).changes
    assert diff_document(STACK, [])["ok"] is True


def test_before_the_first_up_every_process_is_new(catalog: Catalog) -> None:
    deployment, fleet, _ = make_deployment(STACK, catalog)
    changes = differences(deployment, {}).changes
    new = {change.process for change in changes if change.what == "process"}
    assert new == {process.id for process in deployment.plan.processes}
    assert not any(fleet.files.values())


def test_a_changed_argument_is_named_once_for_all_processes_that_share_it(
    catalog: Catalog,
) -> None:
    deployment, _, _ = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    changes = differences(deployment, {}).changes
    assert {(c.what, c.name) for c in changes} == {("release", STACK), ("flag", "--max-num-seqs")}
    decode = {process.id for process in deployment.engines() if process.role == "decode"}
    assert {c.process for c in changes if c.what == "flag"} == decode
    text = listing(changes)
    assert text.count("--max-num-seqs") == 1
    assert "decode-0/0, decode-0/1, decode-0/2 and 13 more:" in text
    assert "→ 7" in text


def test_an_edited_file_an_ended_process_and_a_changed_knob_are_named(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    path = f"/etc/moe-infra/{STACK}/engine-1/launch"
    fleet.files["decode-2"][path] = "edited"
    fleet.unit("decode-3/0").active_state = "failed"
    fleet.wrong_items["decode-0", "vm.swappiness"] = ("changed", "somebody set it")
    fleet.unfinished["prefill-1"] = "abcdef0123456789"
    assert [(c.host, c.process, c.what, c.name) for c in differences(deployment, {}).changes] == [
        ("prefill-1", None, "unfinished", "installation"),
        ("decode-0", None, "tuning", "vm.swappiness"),
        ("decode-2", "decode-2/1", "file", path),
        ("decode-3", "decode-3/0", "state", "decode-3/0"),
    ]


@pytest.mark.parametrize("runs", [True, False], ids=["runs", "ended"])
def test_up_has_to_be_told_to_stop_only_what_runs(catalog: Catalog, *, runs: bool) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    assert not differences(deployment, {}).replaces
    fleet.files["decode-2"][f"/etc/moe-infra/{STACK}/engine-1/environment"] = "edited"
    if not runs:
        for process in deployment.engines():
            fleet.unit(process.id).active_state = "failed"
    assert differences(deployment, {}).replaces is runs


def test_a_changed_secret_is_said_to_differ_and_never_shown(catalog: Catalog) -> None:
    sets = ("secrets.api_key.env=KEY",)
    deployment, fleet, _ = make_deployment(STACK, catalog, sets=sets)
    bring_up(deployment, {"api_key": Secret("old-value")}, tunes=False)
    path = f"/etc/moe-infra/{STACK}/credentials/api_key"
    fleet.files["decode-0"][path] = "another"
    changes = differences(deployment, {"api_key": Secret("new-value")}).changes
    assert [(c.what, c.before, c.after, c.diff) for c in changes] == [("secret", None, None, None)]
    assert "differs (not shown)" in listing(changes)
    assert "-value" not in str(diff_document(STACK, changes))


def test_processes_and_hosts_that_go_are_named(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    plan = deployment.plan
    fewer = replace(
        deployment,
        plan=replace(
            plan,
            hash="f" * 64,
            hosts=tuple(
                replace(h, address="192.0.2.99") if h.name == "decode-0" else h for h in plan.hosts
            ),
            processes=tuple(p for p in plan.processes if p.id != "decode-1/3"),
        ),
    )
    found = {(c.host, c.what, c.name, c.before, c.after) for c in differences(fewer, {}).changes}
    address = plan.host("decode-0").address
    assert ("decode-0", "host", "decode-0", address, "192.0.2.99") in found
    assert ("decode-1", "process", "decode-1/3", "there", None) in found
    without = replace(plan, hosts=plan.hosts[1:])
    assert [(c.before, c.after) for c in host_differences(plan, without)] == [
        (plan.hosts[0].address, None)
    ]
    assert fleet.files["decode-1"]


def test_words_of_flags_are_read_in_both_spellings() -> None:
    assert flags_of(("vllm", "serve", "m", "-x", "--a=1", "--b", "-2", "3", "--a", "4")) == {
        "command": "vllm serve m",
        "-x": "",
        "--a": "1 4",
        "--b": "-2 3",
    }


def test_a_host_that_is_away_hides_no_change_of_the_others(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ("roles.decode.max_num_seqs=7",))
    path = f"/etc/moe-infra/{STACK}/engine-1/launch"
    fleet.files["decode-2"][path] = "edited"
    fleet.wrong_items["decode-3", "vm.swappiness"] = ("changed", "somebody set it")
    fleet.fails["prefill-0"] = Unreachable("prefill-0", "no answer.", "Look at it.")
    answering = AnsweringFleet(fleet)
    changes = differences(replace(deployment, fleet=answering), {}).changes
    assert list(answering.away) == ["prefill-0"]
    assert not any(change.host == "prefill-0" for change in changes)
    told = {(c.host, c.what, c.name) for c in changes if c.what in ("file", "tuning")}
    assert ("decode-3", "tuning", "vm.swappiness") in told
    assert {c.name for c in changes if c.what == "flag"} == {"--max-num-seqs"}


def test_a_damaged_record_is_its_own_host_s_failure(catalog: Catalog) -> None:
    deployment, fleet, _ = other_release(catalog, ())
    fleet.files["decode-1"][release_path(STACK)] = "{"
    fleet.wrong_items["decode-3", "vm.swappiness"] = ("changed", "somebody set it")
    answering = AnsweringFleet(fleet)
    changes = differences(replace(deployment, fleet=answering), {}).changes
    assert "The record cannot be read" in answering.away["decode-1"].what
    assert [(c.host, c.name) for c in changes] == [("decode-3", "vm.swappiness")]
    with pytest.raises(HostsFailed, match="The record cannot be read"):
        differences(deployment, {})
