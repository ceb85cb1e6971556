"""What has outlived units: which processes count, which do not, and that nothing is waited for that hangs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.group import remains
from infra.agent.group.remains import LOOK_S, Remains, find_survivors
from infra.agent.host import Refused
from tests.agent.stubborn_host import StubbornHost

NOW = 1000.0
UNIT = "moe-s-engine@1.service"
SLICE = "/moe_infra.slice/moe_infra-s.slice"
ID, OTHER_ID = "5e" * 32, "0f" * 32
Hang = Callable[[Path], None]
StandIn = Callable[[str, str], None]


def put_process(host: StubbornHost, pid: int, group: str, *tasks: str, state: str = "D") -> None:
    """A process of which nothing can be read that takes the lock on its memory."""
    host.put(f"/proc/{pid}/cgroup", f"0::{group}\n")
    host.put(f"/proc/{pid}/stat", f"{pid} (py) (3) {state} 1" + " 0" * 17 + " 77 0\n")
    host.put(f"/proc/{pid}/comm", "python3\n")
    for task in (str(pid), *tasks):
        Path(host.path(f"/proc/{pid}/task/{task}")).mkdir(parents=True, exist_ok=True)


@pytest.fixture
def docker(stand_in: StandIn) -> None:
    """It has a container of the unit, one that failed before is among them, and one of another group's unit."""
    shown = f"moe-s-engine-1 {ID}\nmoe-s-engine-11 {OTHER_ID}"
    stand_in("docker", f'[ "$1" = ps ] && echo "{shown}"')


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize(
    ("group", "counts"),
    [
        (f"{SLICE}/{UNIT}", True),
        (f"{SLICE}/{UNIT}/below", True),
        (f"{SLICE}/docker-{ID}.scope", True),
        (f"/docker/{ID}", True),  # the runtime's own driver of control groups
        (f"{SLICE}/docker-{OTHER_ID}.scope", False),  # the router, another group's rank
        (f"{SLICE}/moe-s-engine@11.service", False),
        (f"{SLICE}/moe-s-watch.service", False),
        ("/system.slice/nvidia-dcgm.service", False),  # it has every device open
        ("/user.slice/session-3.scope", False),
        ("/", False),
    ],
)
def test_who_was_put_into_the_unit_or_its_container_counts(
    host: StubbornHost, hang: Hang, group: str, counts: bool
) -> None:
    put_process(host, 40, group)
    for name in ("cmdline", "environ"):
        hang(Path(host.path(f"/proc/40/{name}")))
    found = [(one.pid, one.program, one.unit) for one in find_survivors(host, [UNIT], "docker")]
    assert found == ([(40, "python3", UNIT)] if counts else [])


@pytest.mark.parametrize(
    ("state", "tasks", "counts"),
    [("Z", (), False), ("Z", ("41",), True), ("D", (), True), ("S", ("41",), True)],
)
def test_a_process_has_ended_when_its_last_thread_has(
    host: StubbornHost, state: str, tasks: tuple[str, ...], counts: bool
) -> None:
    put_process(host, 40, f"{SLICE}/{UNIT}", *tasks, state=state)
    assert bool(find_survivors(host, [UNIT], "native")) == counts


UNREACHED = (
    "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?"
)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (f"echo '{UNREACHED}' >&2; exit 1", UNREACHED),
        ("echo 'Error: database is locked' >&2; exit 125", "Error: database is locked"),
        ("exit 125", "exit code 125"),
        ("", "docker: No such file or directory"),  # its package is being replaced
    ],
)
def test_what_is_left_is_not_known_while_the_runtime_does_not_say(
    host: StubbornHost,
    monkeypatch: pytest.MonkeyPatch,
    stand_in: StandIn,
    program: str,
    said: str,
) -> None:
    """Its containers may run on, and hold devices: as docker's do with `live-restore` while it is replaced."""
    if program:
        stand_in("docker", program)
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    put_process(host, 40, f"/machine.slice/libpod-{OTHER_ID}.scope")
    with pytest.raises(Refused) as refused:
        find_survivors(host, [UNIT], "docker")
    assert str(refused.value) == f"{said}: what is left of docker's containers is not known"
    assert find_survivors(host, [UNIT], "native") == []
    put_process(host, 40, "/system.slice/cron.service")
    assert find_survivors(host, [UNIT], "docker") == []  # nobody is in any container


def until_said(left: Remains, words: str) -> None:
    deadline = time.monotonic() + 5
    while left.words(NOW) != words:
        assert time.monotonic() < deadline, left.words(NOW)
        time.sleep(0.01)


def test_what_is_left_is_looked_for_until_all_of_it_has_ended(host: StubbornHost) -> None:
    woken: list[bool] = []
    left = Remains(host, {UNIT: "h1/1"}, "native", lambda: woken.append(True))
    put_process(host, 40, f"{SLICE}/{UNIT}")
    put_process(host, 41, f"{SLICE}/{UNIT}")
    left.look(NOW)
    until_said(left, "process 40 (python3) of h1/1 has outlived its unit, and 1 more")
    shutil.rmtree(host.path("/proc/40"))
    until_said(left, "process 41 (python3) of h1/1 has outlived its unit")
    put_process(host, 42, f"{SLICE}/{UNIT}")  # a child that 41 leaves behind
    shutil.rmtree(host.path("/proc/41"))
    until_said(left, "process 42 (python3) of h1/1 has outlived its unit")
    host.put("/proc/42/stat", "42 (python3) S 1" + " 0" * 17 + " 99 0\n")  # its id is used again
    host.put("/proc/42/cgroup", "0::/system.slice/cron.service\n")
    until_said(left, "")
    assert len(woken) >= 3


def test_a_container_that_runs_on_behind_its_unit_is_killed_until_it_has_ended_and_kept(
    host: StubbornHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn
) -> None:
    """Nobody else would: its unit was masked, so that what systemd runs behind it was not."""
    monkeypatch.setattr(remains, "KILL_AGAIN_S", 0.05)
    asked, process = tmp_path / "asked", Path(host.path("/proc/40"))
    put_process(host, 40, f"{SLICE}/docker-{ID}.scope", state="S")
    put_process(host, 41, f"{SLICE}/docker-{OTHER_ID}.scope", state="S")
    kills = (
        f"echo kill $2 $3 >> {asked}; grep -c kill {asked} | grep -q 3 && rm -r {process}; exit 1"
    )
    stand_in(
        "docker",
        f'case "$1" in ps) echo moe-s-engine-1 {ID};; kill) {kills};; *) echo "$1" >> {asked};; esac',
    )
    left = Remains(host, {UNIT: "h1/1"}, "docker", bool)
    left.look(NOW)
    until_said(left, "process 40 (python3) of h1/1 has outlived its unit")
    until_said(left, "")
    assert asked.read_text().splitlines() == [f"kill {ID}"] * 3


def test_a_runtime_that_is_down_is_asked_until_it_says_what_is_left(
    host: StubbornHost, stand_in: StandIn
) -> None:
    stand_in("docker", f"echo '{UNREACHED}' >&2; exit 1")
    put_process(host, 40, f"{SLICE}/docker-{ID}.scope")
    left = Remains(host, {UNIT: "h1/1"}, "docker", bool)
    left.look(NOW)
    until_said(left, f"{UNREACHED}: what is left of docker's containers is not known")
    stand_in("docker", f"echo moe-s-engine-1 {ID}")
    until_said(left, "process 40 (python3) of h1/1 has outlived its unit")
    shutil.rmtree(host.path("/proc/40"))
    until_said(left, "")


def test_a_look_that_hangs_is_not_waited_for(host: StubbornHost, hang: Hang) -> None:
    left = Remains(host, {UNIT: "h1/1"}, "native", bool)
    hang(Path(host.path("/proc/40/cgroup")))
    assert left.words(NOW) is None  # nobody has looked
    left.look(NOW)
    assert left.words(NOW + LOOK_S - 0.1) is None
    assert left.words(NOW + LOOK_S) == ""
