"""What a running engine really has, read from /proc, the journal and the container runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.agent.processes.live import parse_limits
from tests.agent.stubborn_host import StubbornHost

UNIT = "moe-s-engine@0.service"
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            67108864             unlimited            bytes
Max open files            20000                20000                files
Max locked memory         unlimited            unlimited            bytes
"""


@pytest.fixture
def engine() -> Iterator[int]:
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"],
        env={"A": "1", "B_API_KEY": "hidden" + "-value", "EMPTY": ""},
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()  # its libraries are mapped by now
        yield child.pid
        child.kill()


def ask(host: StubbornHost, **keys: object) -> dict[str, object]:
    row = {"id": "a/0", "unit": UNIT, "names": ["A", "B_API_KEY", "EMPTY", "C"], **keys}
    report = host.ask("live", processes=[row], signs=["NCCL INFO Using"])
    rows = report["processes"]
    assert isinstance(rows, list), report
    return dict(rows[0])


@pytest.fixture
def running(host: StubbornHost, stand_in: Callable[[str, str], None], engine: int) -> StubbornHost:
    """The engine runs in a container: the unit's own main process is the runtime's client."""
    shown = "MainPID=1\\nControlGroup=/unit\\nStateChangeTimestampMonotonic=1\\n"
    stand_in("systemctl", f"printf '{shown}'")
    stand_in(
        "docker",
        f'case "$3" in *Pid*) echo /moe-s-engine-0 {engine};; *) echo /moe-s-engine-0 sha256:1;; esac',
    )
    stand_in("podman", "exit 1")
    lines = "NCCL INFO Using network Socket", "else"
    entries = "".join(
        f"__CURSOR=c\\n__REALTIME_TIMESTAMP=1\\nMESSAGE={line}\\n_SYSTEMD_UNIT={UNIT}\\n\\n"
        for line in lines
    )
    stand_in("journalctl", f"printf '{entries}'")
    for name in ("environ", "maps"):
        host.put(f"/proc/{engine}/{name}", Path(f"/proc/{engine}/{name}").read_bytes())
    host.put(f"/proc/{engine}/limits", LIMITS)
    host.put(f"/proc/{engine}/cgroup", "0::/system.slice/docker-1.scope\n")
    host.put("/run/systemd/system/x", "")
    return host


def test_a_containers_engine_tells_what_it_has(running: StubbornHost, engine: int) -> None:
    row = ask(running, libraries=["/some/where/libc.so.6", "/lib/libjemalloc.so.2"])
    assert row["pid"] == engine
    assert row["env"] == {"A": "1", "B_API_KEY": "***", "EMPTY": "", "C": None}
    assert row["libraries"] == {"/some/where/libc.so.6": True, "/lib/libjemalloc.so.2": False}
    assert row["image"] == "sha256:1"
    assert row["lines"] == ["NCCL INFO Using network Socket"]
    assert (row["stopped"], row["is_silent"]) == ([], False)
    assert row["limits"] == {
        "Max stack size": [67108864, -1],
        "Max open files": [20000, 20000],
        "Max locked memory": [-1, -1],
    }


def test_drop_ins_of_ours_and_a_file_not_read_are_told(
    running: StubbornHost, stand_in: Callable[[str, str], None]
) -> None:
    own = "/etc/systemd/system/moe-s-engine@.service.d/a.conf"
    shown = "MainPID=1\\nControlGroup=/unit\\nStateChangeTimestampMonotonic=1\\n"
    paths = f"DropInPaths=/usr/lib/systemd/system/service.d/10-timeout-abort.conf {own}\\n"
    stand_in("systemctl", f"printf '{shown}{paths}NeedDaemonReload=yes\\n'")
    assert ask(running)["changes"] == [
        f"{own} changes it",
        "systemd has not read its file since that was changed",
    ]


@pytest.mark.parametrize("name", ["", "sha256:"])
def test_the_image_under_its_name_is_told_by_its_id(
    running: StubbornHost, stand_in: Callable[[str, str], None], name: str
) -> None:
    digits = "0123456789abcdef" * 4
    stand_in("docker", f"""echo '[{{"Id": "{name}{digits}"}}]'""")
    image = {"runtime": "docker", "reference": "engine:1"}
    assert running.ask("live", processes=[], image=image)["image_ids"] == [f"sha256:{digits}"]
    stand_in("docker", "exit 1")
    assert running.ask("live", processes=[], image=image)["image_ids"] == []


@pytest.mark.parametrize(("state", "is_named"), [("T", True), ("t", False), ("S", False)])
def test_a_process_that_a_signal_has_stopped_is_named(
    running: StubbornHost, engine: int, state: str, is_named: bool
) -> None:
    """A tracer's stop is over in a moment: py-spy makes one."""
    running.put(f"/proc/{engine}/stat", f"{engine} (python3) {state} 1 40 40 0 -1 4194560 0 0\n")
    assert ask(running, libraries=[])["stopped"] == ([engine] if is_named else [])


def test_a_process_whose_memory_cannot_be_read_holds_up_nobody(
    running: StubbornHost, engine: int, hang: Callable[[Path], None]
) -> None:
    """The kernel reads it under a lock, which a wedged driver may hold: whoever reads waits."""
    hang(Path(running.path(f"/proc/{engine}/environ")))
    row = ask(running, libraries=["/lib/libjemalloc.so.2"])
    assert (row["pid"], row["is_silent"], row["env"], row["libraries"]) == (engine, True, {}, {})
    assert row["lines"] == ["NCCL INFO Using network Socket"]
    assert row["limits"]


def test_what_does_not_run_has_nothing(
    host: StubbornHost, stand_in: Callable[[str, str], None]
) -> None:
    host.put("/proc/1/cgroup", "0::/\n")
    host.put("/run/systemd/system/x", "")
    stand_in("systemctl", "printf 'MainPID=0\\nControlGroup=\\n'")
    for runtime in ("docker", "podman"):
        stand_in(runtime, "exit 1")
    row = ask(host, libraries=[])
    assert (row["pid"], row["env"], row["lines"], row["image"]) == (None, {}, [], None)


def test_limits_of_garbage_are_none() -> None:
    assert parse_limits("") == {}
    assert parse_limits("Max open files\nMax stack size 1\nelse") == {}
