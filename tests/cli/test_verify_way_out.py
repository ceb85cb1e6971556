"""What `fab verify` has typed next when hosts differ: never what would delete a release that serves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.catalog.load import Catalog
from infra.launch.plan_difference import plan_differences
from infra.launch.proof.host_drift import Check, Mend
from infra.launch.proof.watchers import WATCHED
from infra.plan.compile import compile_file
from infra.tasks.chosen_release import ChosenRelease
from infra.tasks.judged_release import JudgedRelease
from infra.tasks.verify import way_out

STACK, AGAIN = "gb200-2p1d", "--stack gb200-2p1d"
OTHER = "0123456789abcdef"


def wrong(mend: Mend, check: str = "file:/etc/x") -> Check:
    return Check(
        process="decode-0",
        check=check,
        ok=False,
        detail="is A, declared B",
        is_drift=True,
        mend=mend,
    )


@pytest.fixture
def own(catalog: Catalog) -> JudgedRelease:
    """The stack file's own release."""
    file = compile_file(STACK, catalog=catalog)
    chosen = ChosenRelease(plan=file.plan, enable=(), hosts=file.book.hosts, spares={})
    return JudgedRelease(file=file, chosen=chosen, other=None, changes=(), is_mixed=False)


@pytest.mark.parametrize("mend", ["start", "close", "renew", "tune", "stage", "drain", "reboot"])
def test_no_way_out_of_another_release_starts_the_files_or_deletes_what_hosts_keep(
    own: JudgedRelease, mend: Mend
) -> None:
    words = way_out([wrong(mend), wrong("start", WATCHED)], AGAIN, replace(own, other=OTHER))
    assert "fab down" not in words
    assert "fab up" not in words.replace(f"fab up {AGAIN} --release 0123456789ab", "")
    assert "--release 0123456789ab" in words


@pytest.mark.parametrize("mend", ["start", "drain", "reboot"])
def test_of_hosts_with_several_releases_none_is_deleted(own: JudgedRelease, mend: Mend) -> None:
    words = way_out([wrong(mend)], AGAIN, replace(own, is_mixed=True))
    assert words.startswith(f"fab diff {AGAIN}")
    assert "fab down" not in words


def test_the_files_own_release_is_stopped_and_started(own: JudgedRelease) -> None:
    assert way_out([wrong("start")], AGAIN, own) == f"fab down {AGAIN}, then fab up {AGAIN}"


def test_two_plans_differ_by_processes_and_their_arguments(catalog: Catalog) -> None:
    one = compile_file(STACK, catalog=catalog).plan
    assert list(plan_differences(one, one)) == []
    other = compile_file(STACK, catalog=catalog, sets=("roles.decode.max_num_seqs=7",)).plan
    names = {change.name for change in plan_differences(one, other)}
    assert names == {"--max-num-seqs"}
    fewer = replace(one, processes=one.processes[:-1])
    gone = one.processes[-1]
    (change,) = plan_differences(one, fewer)
    assert (change.process, change.what, change.after) == (gone.id, "process", None)
    (change,) = plan_differences(fewer, one)
    assert (change.host, change.before) == (gone.host, None)
