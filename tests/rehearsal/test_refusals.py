"""What `fab rehearse` cannot do is one message with the fix, and leaves nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rehearsal.command import FAB, Shell

pytestmark = [pytest.mark.lab]

NOBODY = 65534


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stack", "gb200-2p1"), "gb200-2p1d"),
        ((), "--stack NAME"),
        (("--stack", "h200-tp8", "--set", "prot=1"), "port"),
        (("--stack", "h200-tp8", "--set", "port=eighty"), "port"),
        (("--stack", "h200-tp8", "--set", "roles.unified.tensor_parallel=3"), "64 attention heads"),
        (("--stack", "h200-tp8", "--to-step", "strt"), "start"),
        (("--stack", "h200-tp8", "--kep"), "--keep"),
    ],
    ids=["unknown", "none", "misspelt", "type", "heads", "step", "option"],
)
def test_wrong_words_leave_with_two(words: tuple[str, ...], said: str, shell: Shell) -> None:
    done = shell.fab("rehearse", *words, "--json")
    done.refused(2, said)
    assert done.document["ok"] is False
    shell.assert_nothing_left()


def test_two_problems_of_a_file_are_said_together(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("extends: gb200-2p1d\nprot: 1\nweights: {pth: /x}\n")
    done = shell.fab("rehearse", "--file", str(file), "--json")
    done.refused(2, "wrong.yaml:2", "wrong.yaml:3")
    assert len(done.document["errors"]) == 2
    shell.assert_nothing_left()


def test_without_root_the_fix_is_sudo(shell: Shell) -> None:
    nobody = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--")
    done = shell.run(*nobody, FAB, "rehearse", "--stack", "a3-2p1d", "--json")
    done.refused(3, "not root", "sudo")
    assert done.document["exit_code"] == 3
    shell.assert_nothing_left()


def test_without_the_pulumi_command_line_the_fix_is_the_script(
    shell: Shell, tmp_path: Path
) -> None:
    shell.environment.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", XDG_CACHE_HOME=str(tmp_path))
    done = shell.fab("rehearse", "--stack", "h200-tp8", "--json")
    done.refused(3, "scripts/install-pulumi")
    assert done.document["steps"][-1]["name"] == "provision"
    assert done.document["ok"] is False
    shell.assert_nothing_left()


def test_without_a_built_kubernetes_the_fix_is_the_script(shell: Shell, tmp_path: Path) -> None:
    shell.environment.update(MOE_INFRA_CACHE=str(tmp_path))
    done = shell.fab("rehearse", "--stack", "k8s-a3-2p1d", "--json")
    done.refused(3, "scripts/install-kubernetes-testbed")
    assert done.document["steps"][-1]["name"] == "provision"
    shell.assert_nothing_left()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--break", "prefill-0/0:port"), 2, "nothing is installed on hosts that could be broken"),
        (("--set", "weights.storage=pvc"), 3, "Weights on pvc are not rehearsed in pods"),
        (("--set", "weights.storage=s3-to-nvme"), 3, "Use local, shared-mount."),
    ],
    ids=["break", "claim", "copy"],
)
def test_what_is_not_rehearsed_in_pods_is_said(
    words: tuple[str, ...], code: int, said: str, shell: Shell
) -> None:
    done = shell.fab("rehearse", "--stack", "k8s-gb200-2p1d", *words, "--json")
    done.refused(code, said)
    shell.assert_nothing_left()


def test_a_plan_in_pods_is_rehearsed_from_its_stack(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(shell.fab("plan", "--stack", "k8s-a3-2p1d", "--json").out, encoding="utf-8")
    done = shell.fab("rehearse", "--plan", str(path), "--json")
    done.refused(2, "fab rehearse --stack k8s-a3-2p1d")
    shell.assert_nothing_left()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder))
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(("umount", str(folder)), check=True)


def test_a_full_disk_is_said_before_anything_starts(shell: Shell, full_disk: Path) -> None:
    full = Shell(full_disk)
    done = full.fab("rehearse", "--stack", "a3-2p1d", "--json")
    done.refused(3, str(full_disk), "TMPDIR")
    assert done.document["exit_code"] == 3
    assert list(full_disk.iterdir()) == []
