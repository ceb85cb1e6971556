from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from infra.agent.folders import Folder
from infra.agent.state.reload_guard import hooked
from tests.agent.stubborn_host import StubbornHost

StandIn = Callable[[str, str], None]
UNIT = "/etc/systemd/system/moe-s-engine@.service"
ENV, LAUNCH = "/etc/moe-infra/s/engine-0/environment", "/etc/moe-infra/s/engine-0/launch"
FOLDER = "/var/lib/moe-infra/releases/s"


def file(target: str, content: str, *, unit: bool = False) -> dict[str, object]:
    return {
        "id": f"file:{target}",
        "group": "files",
        "kind": "file",
        "target": target,
        "content": content,
        "mode": "0644",
        "unit": unit,
    }


def release(content: str) -> list[dict[str, object]]:
    return [file(ENV, content), file(LAUNCH, content), file(UNIT, content, unit=True)]


def keep(name: str) -> dict[str, object]:
    return {"hash": name, "document": {"name": name}}


def install(host: StubbornHost, content: str, name: str) -> dict[str, dict[str, object]]:
    return host.state("apply", release(content), keep=keep(name), prunes=True)


def test_what_is_forgotten_is_told(host: StubbornHost) -> None:
    for name in ("00000a", "00000b"):
        install(host, name, name)
    request = {"mode": "rollback", "stack": "s", "groups": ["files"], "items": []}
    report = host.ask("state", **request, forgets_releases=True)
    assert sorted(map(str, cast("list[object]", report["forgotten_releases"]))) == [
        "00000a",
        "00000b",
    ]
    assert "forgotten_releases" not in host.ask("state", **request, forgets_releases=True)


def no_room_for(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Let every write below a path meet a full disk."""
    real = Folder.lay_out

    def write(folder: Folder, name: str, *arguments: object) -> None:
        path = folder.at(name)
        if part in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        real(folder, name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Folder, "lay_out", write)


def test_releases_are_kept_newest_first_and_only_the_last_few(host: StubbornHost) -> None:
    names = [f"{number:06x}" for number in range(7)]
    for number, name in enumerate(names):
        install(host, name, name)
        os.utime(host.path(f"{FOLDER}/{name}.json"), (number, number))
    install(host, "again", names[5])
    report = host.ask("releases", stack="s", document=names[4])
    assert report["kept"] == [names[5], names[6], names[4], names[3], names[2]]
    assert report["document"] == {"name": names[4]}
    assert host.ask("releases", stack="s", document="beef00")["document"] is None
    assert "error" in host.ask("releases", stack="s", document="../x")


def test_a_release_that_was_not_installed_to_the_end_is_told(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.ask("releases", stack="s")["unfinished"] is None
    with monkeypatch.context() as patched:
        patched.setattr("infra.agent.state.operation._settle_releases", lambda *_: None)
        install(host, "one", "aaaaaa")
    assert host.ask("releases", stack="s")["unfinished"] == "aaaaaa"
    install(host, "one", "aaaaaa")
    assert host.ask("releases", stack="s")["unfinished"] is None


@pytest.mark.parametrize("full", ["/etc/moe-infra/s/engine-0/launch", "/etc/systemd", FOLDER])
def test_a_full_disk_leaves_a_first_installation_as_it_was_found(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    host.put("/etc/systemd/system/other.service", "x")
    host.put("/var/lib/other", "x")
    before = host.contents("/run")
    with monkeypatch.context() as patched:
        no_room_for(patched, full)
        report = host.ask("state", mode="apply", stack="s", items=release("1"), keep=keep("aaaaaa"))
    assert "ENOSPC" in str(report)
    assert full in str(report)
    (there,) = re.findall(r"free space \(df -h (\S+);", str(report))[:1]
    assert Path(there).is_mount()
    assert host.contents("/run") == before


def test_a_full_disk_leaves_the_release_before_whole(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(host, "one", "aaaaaa")
    with monkeypatch.context() as patched:
        no_room_for(patched, "/etc/systemd")
        rows = install(host, "two", "bbbbbb")
    assert {row["state"] for row in rows.values()} == {"failed", "blocked"}
    assert f"not written, because {UNIT} cannot be" in str(rows[f"file:{ENV}"]["why"])
    assert {host.read_word(path) for path in (ENV, LAUNCH, UNIT)} == {"one"}
    assert host.ask("releases", stack="s")["unfinished"] is None
    rows = host.state("rollback", [], groups=["files"], forgets_releases=True)
    assert {row["state"] for row in rows.values()} == {"changed"}
    assert not host.exists("/etc/moe-infra")
    assert not host.exists("/var/lib/moe-infra")


def killed(*_: object) -> None:
    raise SystemExit


def test_killed_between_record_and_write_a_replacement_can_still_be_taken_back(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(host, "one", "aaaaaa")
    with monkeypatch.context() as patched:
        patched.setattr("infra.agent.state.laying_out.lay_out", killed)
        with pytest.raises(SystemExit):
            install(host, "two", "bbbbbb")
    rows = host.state("rollback", [], groups=["files"], forgets_releases=True)
    assert {row["state"] for row in rows.values()} == {"changed"}
    assert not host.exists("/etc/moe-infra")


def test_files_that_the_next_release_does_not_have_are_removed(host: StubbornHost) -> None:
    install(host, "one", "aaaaaa")
    shown = host.state("check", release("one")[:1], prunes=True)
    assert shown[f"file:{LAUNCH}"]["state"] == "changed"
    assert host.exists(LAUNCH)
    host.state("apply", release("one")[:1], keep=keep("bbbbbb"), prunes=True)
    assert host.exists(ENV)
    assert not host.exists(LAUNCH)
    assert not host.exists(UNIT)


def test_a_folder_that_two_stacks_share_goes_with_the_last_of_them(host: StubbornHost) -> None:
    host.ask("state", mode="apply", stack="s", items=[file(ENV, "x")])
    path = ENV.replace("/s/", "/t/")
    host.ask("state", mode="apply", stack="t", items=[file(path, "x")])
    host.ask("state", mode="rollback", stack="s", groups=["files"], items=[])
    assert host.exists(path)
    host.ask("state", mode="rollback", stack="t", groups=["files"], items=[])
    assert not host.exists("/etc/moe-infra")


def test_every_stack_s_record_is_told(host: StubbornHost) -> None:
    host.put("/etc/moe-infra/a/release.json", "one")
    host.put("/etc/moe-infra/b/release.json", "two")
    host.put("/etc/moe-infra/c/other", "three")
    report = host.ask("state", mode="check", stack="a", items=[], tells_releases=True)
    assert report["records"] == {"a": "one", "b": "two"}


@pytest.fixture
def booted(host: StubbornHost, stand_in: StandIn) -> StubbornHost:
    """A host with systemd, whose systemctl writes down every call."""
    Path(host.path("/run/systemd/system")).mkdir(parents=True)
    stand_in("systemctl", f'echo "$@" >> {host.path("/calls")}')
    return host


def reloads(host: StubbornHost) -> int:
    path = Path(host.path("/calls"))
    text = path.read_text() if path.exists() else ""
    return text.count("daemon-reload")


def knows(host: StubbornHost, stand_in: StandIn, answer: str) -> None:
    """Have systemctl list units as a systemd that has some in memory; `answer` is a shell command."""
    calls = host.path("/calls")
    stand_in("systemctl", f'echo "$@" >> {calls}; [ "$1" != list-units ] || {answer}')


@pytest.mark.parametrize(
    ("answer", "num_reloads"),
    [
        (":", 0),
        (
            "echo moe-s-engine@0.service not-found inactive dead",
            1,
        ),  # it looked for it in vain before
        ("exit 1", 1),
    ],
)
def test_systemd_is_reloaded_for_a_new_unit_only_where_it_has_something_of_its_name(
    booted: StubbornHost, stand_in: StandIn, answer: str, num_reloads: int
) -> None:
    stand_in("docker", "exit 1")
    knows(booted, stand_in, answer)
    report = booted.ask("state", mode="apply", stack="s", items=release("1"))
    assert report["daemon_reloaded"] is bool(num_reloads)
    assert reloads(booted) == num_reloads
    (asked,) = (c for c in Path(booted.path("/calls")).read_text().splitlines() if "list" in c)
    assert asked.endswith("-- moe-s-engine@*.service")


def test_a_new_drop_in_is_read_at_once(booted: StubbornHost, stand_in: StandIn) -> None:
    stand_in("docker", "exit 1")
    knows(booted, stand_in, ":")
    booted.state("apply", [file("/etc/systemd/system/sshd.service.d/x.conf", "1", unit=True)])
    assert reloads(booted) == 1


def test_systemd_is_reloaded_once_and_only_when_a_unit_text_changed(
    booted: StubbornHost, stand_in: StandIn
) -> None:
    stand_in("docker", "exit 1")
    knows(booted, stand_in, "echo moe-s-engine@0.service not-found inactive dead")
    items = [*release("1"), file(f"{UNIT}.2", "1", unit=True), file(f"{UNIT}.3", "1", unit=True)]
    booted.state("check", items)
    assert reloads(booted) == 0
    booted.state("apply", items)
    assert reloads(booted) == 1
    booted.state("apply", items)
    booted.state("apply", [file(ENV, "2"), *items[1:]])
    assert reloads(booted) == 1
    booted.state("apply", [*items[:2], file(UNIT, "2", unit=True)])
    assert reloads(booted) == 2


DOCKER = """
case "$1" in
  info) echo {driver} ;;
  ps) echo 0123 ;;
  inspect) printf '/{name}\\t{runtime}\\t{requests}\\n' ;;
esac
"""


class Container(NamedTuple):
    """What docker says of one that runs."""

    driver: str
    name: str
    runtime: str
    requests: str
    is_hurt: bool


@pytest.mark.parametrize(
    "one",
    [
        Container("systemd", "train", "runc", '[{"Driver":"","Count":-1}]', True),
        Container("systemd", "train", "nvidia", "null", True),
        Container("cgroupfs", "train", "nvidia", "null", False),
        Container("systemd", "web", "runc", "null", False),
        Container("systemd", "train", "runc", '[{"Driver":"cdi"}]', False),
        Container("systemd", "moe-s-engine-0", "runc", '[{"Driver":"","Count":-1}]', False),
        Container("systemd", "moe-t-engine-0", "runc", '[{"Driver":"","Count":-1}]', True),
    ],
)
def test_no_unit_changes_while_a_reload_would_cut_gpus_from_somebody_s_container(
    booted: StubbornHost, stand_in: StandIn, one: Container
) -> None:
    stand_in("docker", DOCKER.format(**one._asdict()))
    booted.put(UNIT, "another text")
    row = booted.state("check", release("1"))[f"file:{UNIT}"]
    expected = ("blocked", "drain") if one.is_hurt else ("changed", None)
    assert (row["state"], row["needs"]) == expected
    report = booted.ask("state", mode="apply", stack="s", items=release("1"))
    assert (one.name in str(report.get("error"))) is one.is_hurt
    assert booted.exists(ENV) is not one.is_hurt
    assert reloads(booted) == (0 if one.is_hurt else 1)
    allow = ["daemon-reload"]
    forced = booted.ask("state", mode="apply", stack="s", items=release("1"), allow=allow)
    assert "error" not in forced
    assert reloads(booted) == 1


def test_a_new_unit_needs_no_reload_that_would_hurt(
    booted: StubbornHost, stand_in: StandIn
) -> None:
    stand_in("docker", DOCKER.format(driver="systemd", name="x", runtime="nvidia", requests="null"))
    rows = booted.state("apply", release("1"))
    assert {row["state"] for row in rows.values()} == {"changed"}
    assert reloads(booted) == 0


def test_a_removed_unit_needs_no_reload_that_would_hurt(
    booted: StubbornHost, stand_in: StandIn
) -> None:
    stand_in("docker", "exit 1")
    knows(booted, stand_in, "echo moe-s-engine@0.service not-found inactive dead")
    booted.state("apply", release("1"))
    stand_in("docker", DOCKER.format(driver="systemd", name="x", runtime="nvidia", requests="null"))
    booted.state("rollback", [], groups=["files"])
    assert not booted.exists(UNIT)
    assert reloads(booted) == 1


def test_words_of_docker_that_make_no_sense_hurt_nobody() -> None:
    assert hooked("") == []
    assert hooked("x\n/y\trunc\t{") == []
