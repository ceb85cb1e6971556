"""What has outlived units: which processes count, which do not, and that nothing is waited for that hangs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.group.remains import LOOK_S, Remains, find_survivors
from infra.agent.host import Finished, Refused
from tests.agent.stubborn_host import StubbornHost

NOW = 1000.0
UNIT = "moe-s-engine@1.service"
SLICE = "/moe_infra.slice/moe_infra-s.slice"
ID, OTHER_ID = "5e" * 32, "0f" * 32
Hang = Callable[[Path], None]


def put_process(host: StubbornHost, pid: int, group: str, *tasks: str, state: str = "D") -> None:
    """A process of which nothing can be read that takes the lock on its memory."""
    host.put(f"/proc/{pid}/cgroup", f"0::{group}\n")
    host.put(f"/proc/{pid}/stat", f"{pid} (py) (3) {state} 1" + " 0" * 17 + " 77 0\n")
    host.put(f"/proc/{pid}/comm", "python3\n")
    for task in (str(pid), *tasks):
        Path(host.path(f"/proc/{pid}/task/{task}")).mkdir(parents=True, exist_ok=True)


@pytest.fixture
def docker(stand_in: Callable[[str, str], None]) -> None:
    """It has a container of the unit, and says of another name that there is none."""
    shown = f"/moe-s-engine-1 {ID}"
    stand_in("docker", f"echo '{shown}'; echo; echo 'Error: No such object: x' >&2; exit 1")


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


def test_a_runtime_that_does_not_answer_is_said(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch, stand_in: Callable[[str, str], None]
) -> None:
    stand_in("podman", "exit 0")
    put_process(host, 40, f"/machine.slice/libpod-{OTHER_ID}.scope")
    silent = Finished(None, "", "podman did not answer within 5 s and was killed")
    monkeypatch.setattr(host, "run", lambda *_: silent)
    with pytest.raises(Refused, match=r"podman did not answer .* of its containers is not known"):
        find_survivors(host, [UNIT], "podman")
    assert find_survivors(host, [UNIT], "native") == []
    put_process(host, 40, "/system.slice/cron.service")
    assert find_survivors(host, [UNIT], "podman") == []  # nobody is in any container


def test_a_runtime_that_is_not_installed_has_no_containers(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    put_process(host, 40, f"{SLICE}/{UNIT}")
    put_process(host, 41, f"/machine.slice/crio-{OTHER_ID}.scope")
    assert [one.pid for one in find_survivors(host, [UNIT], "docker")] == [40]


def until_said(remains: Remains, words: str) -> None:
    deadline = time.monotonic() + 5
    while remains.words(NOW) != words:
        assert time.monotonic() < deadline, remains.words(NOW)
        time.sleep(0.01)


def test_what_is_left_is_looked_for_until_all_of_it_has_ended(host: StubbornHost) -> None:
    woken: list[bool] = []
    remains = Remains(host, {UNIT: "h1/1"}, "native", lambda: woken.append(True))
    put_process(host, 40, f"{SLICE}/{UNIT}")
    put_process(host, 41, f"{SLICE}/{UNIT}")
    remains.look(NOW)
    until_said(remains, "process 40 (python3) of h1/1 has outlived its unit, and 1 more")
    shutil.rmtree(host.path("/proc/40"))
    until_said(remains, "process 41 (python3) of h1/1 has outlived its unit")
    put_process(host, 42, f"{SLICE}/{UNIT}")  # a child that 41 leaves behind
    shutil.rmtree(host.path("/proc/41"))
    until_said(remains, "process 42 (python3) of h1/1 has outlived its unit")
    host.put("/proc/42/stat", "42 (python3) S 1" + " 0" * 17 + " 99 0\n")  # its id is used again
    host.put("/proc/42/cgroup", "0::/system.slice/cron.service\n")
    until_said(remains, "")
    assert len(woken) >= 3


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "waits"])
def test_a_container_that_outlives_its_unit_is_removed_once(
    host: StubbornHost,
    monkeypatch: pytest.MonkeyPatch,
    stand_in: Callable[[str, str], None],
    ends: bool,
) -> None:
    """Nothing else would: its unit was masked, so that what systemd runs behind it was not."""
    stand_in("docker", "")
    put_process(host, 40, f"{SLICE}/docker-{ID}.scope", state="S")
    asked: list[list[str]] = []

    def run(argv: list[str], *_limits: object) -> Finished:
        asked.append(argv)
        if argv[1] == "inspect":  # a container that is gone is unknown
            is_there = ends or len(asked) == 1
            return Finished(0, f"/moe-s-engine-1 {ID}\n" if is_there else "", "")
        if ends:
            shutil.rmtree(host.path("/proc/40"))
        return Finished(0 if ends else 1, "", "")

    monkeypatch.setattr(host, "run", run)
    remains = Remains(host, {UNIT: "h1/1"}, "docker", bool)
    remains.look(NOW)
    if not ends:
        deadline = time.monotonic() + 5
        while ["docker", "inspect"] not in [argv[:2] for argv in asked[2:]]:
            assert time.monotonic() < deadline, asked
            time.sleep(0.01)
    until_said(remains, "" if ends else "process 40 (python3) of h1/1 has outlived its unit")
    removals = [argv for argv in asked if argv[1] == "rm"]
    assert removals == [["docker", "rm", "--force", "moe-s-engine-1"]]
    remains.forget()


def test_a_look_that_hangs_is_not_waited_for(host: StubbornHost, hang: Hang) -> None:
    remains = Remains(host, {UNIT: "h1/1"}, "native", bool)
    hang(Path(host.path("/proc/40/cgroup")))
    assert remains.words(NOW) is None  # nobody has looked
    remains.look(NOW)
    assert remains.words(NOW + LOOK_S - 0.1) is None
    assert remains.words(NOW + LOOK_S) == ""
