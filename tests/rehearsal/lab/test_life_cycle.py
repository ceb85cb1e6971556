"""A lab leaves nothing behind, however it ends; looked at from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.rehearsal.lab import registry
from infra.rehearsal.lab.errors import LabError
from infra.rehearsal.lab.hosts import LabHost
from infra.rehearsal.lab.starting import attach_lab, list_labs, open_lab, start_lab, stop_lab

# each starts a lab of its own, and sees it end
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.usefixtures("lab_is_possible")]

BOOT_LIMIT_S = 20.0
GONE_LIMIT_S = 5.0
CGROUP_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
ONE_HOST = (LabHost(name="host-0", address="192.0.2.1"),)
STARTER = """
import sys, time
from pathlib import Path
from infra.rehearsal.lab.hosts import LabHost
from infra.rehearsal.lab.starting import start_lab
lab = start_lab(Path(sys.argv[1]), [LabHost(name="host-0", address="192.0.2.1")])
lab.wait_ready(20)
if sys.argv[2] == "keep":
    lab.keep()
print(lab.id, lab.supervisor_pid, flush=True)
time.sleep({"keep": 0, "return": 0}.get(sys.argv[2], 60))
if sys.argv[2] == "raise":
    raise RuntimeError
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a running lab shows to the machine."""

    directory: Path
    lab_id: str
    processes: frozenset[int]

    def left(self) -> list[str]:
        """What of it is still there."""
        found = [str(self.directory)] if self.directory.exists() else []
        found += [f"process {pid}" for pid in self.processes if registry.start_ticks(pid)]
        found += [line for line in mounts() if self.lab_id in line or str(self.directory) in line]
        found += [
            str(root / f"moe-lab-{self.lab_id}")
            for root in CGROUP_ROOTS
            if (root / f"moe-lab-{self.lab_id}").exists()
        ]
        if registry.control_socket(self.lab_id).parent.exists():
            found.append("registry entry")
        return found


def mounts() -> list[str]:
    return Path("/proc/mounts").read_text().splitlines()


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def process_tree(root: int) -> frozenset[int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
    tree = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in tree} - tree
        if not more:
            return frozenset(tree)
        tree |= more


def traces_of(lab_id: str, directory: Path, supervisor: int) -> Traces:
    traces = Traces(directory=directory, lab_id=lab_id, processes=process_tree(supervisor))
    assert len(traces.processes) >= 4  # supervisor, inside, knob server, systemd
    return traces


def assert_gone(traces: Traces) -> None:
    deadline = time.monotonic() + GONE_LIMIT_S
    while traces.left() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert traces.left() == []


def start_elsewhere(directory: Path, then: str) -> tuple[subprocess.Popen[str], Traces]:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(directory), then],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert starter.stdout is not None
    lab_id, supervisor = starter.stdout.readline().split()
    starter.stdout.close()
    if then == "return":
        starter.wait()
        return starter, Traces(directory=directory, lab_id=lab_id, processes=frozenset())
    return starter, traces_of(lab_id, directory, int(supervisor))


def test_stop_removes_everything(tmp_path: Path) -> None:
    before = mounts(), interfaces()
    lab = start_lab(tmp_path / "lab", ONE_HOST)
    lab.wait_ready(BOOT_LIMIT_S)
    traces = traces_of(lab.id, lab.directory, lab.supervisor_pid)
    (lab.directory / "other").mkdir()
    assert (mounts(), interfaces()) == before
    lab.stop()
    assert traces.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_starter_that_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    starter, traces = start_elsewhere(tmp_path / "lab", "wait")
    starter.send_signal(number)
    starter.wait()
    assert_gone(traces)


def test_nothing_outlives_a_starter_that_just_ends(tmp_path: Path) -> None:
    _, traces = start_elsewhere(tmp_path / "lab", "return")
    assert_gone(traces)


def test_a_killed_supervisor_takes_the_hosts_along_and_the_next_start_its_files(
    tmp_path: Path,
) -> None:
    lab = start_lab(tmp_path / "lab", ONE_HOST)
    traces = traces_of(lab.id, lab.directory, lab.supervisor_pid)
    os.kill(lab.supervisor_pid, signal.SIGKILL)
    os.waitpid(lab.supervisor_pid, 0)
    with pytest.raises(LabError, match="has ended"):
        lab.status()
    open_lab(tmp_path / "next").stop()
    assert_gone(traces)


def test_an_exception_ends_the_lab(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab")
    traces = Traces(
        directory=lab.directory, lab_id=lab.id, processes=frozenset({lab.supervisor_pid})
    )
    with pytest.raises(KeyError), lab:
        raise KeyError
    assert traces.left() == []


def test_a_kept_lab_outlives_its_starter_and_is_stopped_by_its_name(tmp_path: Path) -> None:
    starter, traces = start_elsewhere(tmp_path / "lab", "keep")
    assert starter.wait() == 0
    time.sleep(0.1)
    assert [entry.kept for entry in list_labs() if entry.id == traces.lab_id] == [True]
    lab = attach_lab(traces.lab_id)
    assert lab.run("host-0", ["hostname"]).stdout == b"host-0\n"
    command = ["ssh", "-F", str(lab.ssh_config), "host-0", "hostname"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"host-0\n"
    stop_lab(traces.lab_id)
    assert traces.left() == []
    with pytest.raises(LabError, match="does not run"):
        stop_lab(traces.lab_id)


def test_labs_with_the_same_addresses_run_side_by_side(tmp_path: Path) -> None:
    with (
        start_lab(tmp_path / "one", ONE_HOST) as one,
        start_lab(tmp_path / "two", ONE_HOST) as two,
    ):
        for lab in (one, two):
            lab.wait_ready(BOOT_LIMIT_S)
            lab.write_file("host-0", "/etc/motd", lab.id.encode())
        for lab in (one, two):
            assert lab.read_file("host-0", "/etc/motd") == lab.id.encode()
            command = ["ssh", "-F", str(lab.ssh_config), "192.0.2.1", "cat /etc/motd"]
            shown = subprocess.run(command, capture_output=True, check=True).stdout
            assert shown == lab.id.encode()


def test_a_process_given_to_the_lab_ends_with_it(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        with open_lab(tmp_path / "lab") as lab:
            lab.end_with_lab(other.pid)
        assert other.wait(GONE_LIMIT_S) == -signal.SIGKILL


def test_a_process_given_to_a_lab_whose_supervisor_was_killed_is_ended_by_whoever_looks(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as other, subprocess.Popen(["sleep", "60"]) as own:
        lab = open_lab(tmp_path / "lab")
        lab.end_with_lab(other.pid)
        os.kill(lab.supervisor_pid, signal.SIGKILL)
        os.waitpid(lab.supervisor_pid, 0)
        assert lab.id not in {entry.id for entry in list_labs()}
        assert other.wait(GONE_LIMIT_S) == -signal.SIGKILL
        assert own.poll() is None
        own.kill()


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab")
    with pytest.raises(LabError, match="No space left on device") as caught:
        lab.boot(ONE_HOST, disk="64k")
    assert caught.value.exit_code == 3
    assert "larger disk" in caught.value.fix
    assert not lab.directory.exists()
    assert list_labs() == () or lab.id not in {entry.id for entry in list_labs()}


def test_a_full_file_system_below_the_labs_folder_is_one_error(tmp_path: Path) -> None:
    script = (
        f'mount -t tmpfs -o size=8k small {tmp_path} && exec {sys.executable} -c "$1" {tmp_path}'
    )
    program = """
import sys
from pathlib import Path
from infra.rehearsal.lab.errors import LabError
from infra.rehearsal.lab.hosts import LabHost
from infra.rehearsal.lab.starting import start_lab
folder = Path(sys.argv[1], "lab")
try:
    start_lab(folder, [LabHost(name=f"host-{n}", address=f"192.0.2.{n}") for n in range(200)])
except LabError as error:
    print(error, folder.exists())
"""
    command = ["unshare", "--mount", "sh", "-c", script, "sh", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "No space left on device" in result.stdout, result.stderr
    assert result.stdout.endswith("larger disk. False\n")


def test_two_hosts_of_one_address_are_refused(tmp_path: Path) -> None:
    double = (*ONE_HOST, LabHost(name="host-1", address="192.0.2.1"))
    with pytest.raises(LabError, match=r"192\.0\.2\.1.*2 times.*address"):
        start_lab(tmp_path / "lab", double)
    assert not (tmp_path / "lab").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(LabError, match="is not empty"):
        open_lab(tmp_path)
    assert (tmp_path / "mine").exists()


def test_a_knob_that_cannot_be_is_refused(tmp_path: Path) -> None:
    host = LabHost(name="host-0", address="192.0.2.1", knobs={"/etc/x": "1"})
    with pytest.raises(LabError, match=r"cannot have the knob /etc/x"):
        start_lab(tmp_path / "lab", (host,))
