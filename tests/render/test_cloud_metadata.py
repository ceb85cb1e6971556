"""A stack's table against metadata services, with the nft of this machine, and the guard that every start runs."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.agent.conversation import answer
from infra.agent.host import Finished, Host
from infra.catalog.metadata_services import metadata_addresses
from infra.render.cloud_metadata import (
    metadata_guard_text,
    metadata_item,
    metadata_rules_text,
)
from infra.render.host_paths import metadata_rules, slice_path
from infra.render.units import metadata_unit_text, process_unit
from tests.needed import need_program, need_root

STACK = "guard-test"
UNIFIED = "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
# In a network of its own: a service at an address of a cloud, and one that resolves names there.
CLOUD = """
ip link set lo up && ip addr add 169.254.169.254/32 dev lo && ip addr add fd00:ec2::254/128 dev lo
{python} -c '
import socket, time
found = []
for family, address in ((socket.AF_INET, "169.254.169.254"), (socket.AF_INET6, "fd00:ec2::254")):
    for port in (80, 53):
        one = socket.socket(family)
        one.bind((address, port))
        one.listen(99)
        found.append(one)
time.sleep(60)' & cloud=$!
for i in $(seq 50); do timeout 1 bash -c ': < /dev/tcp/fd00:ec2::254/53' 2>/dev/null && break; sleep 0.1; done
"""
# Whether a connection is taken: by a process of the stack, and by another one.
ASK = """
asked() { timeout 2 bash -c ': < "/dev/tcp/$1/$2"' bash "$1" "$2" 2>/dev/null && echo yes || echo no; }
both() { asked 169.254.169.254 "$1"; asked fd00:ec2::254 "$1"; }
both 80
echo $$ > {group}/cgroup.procs
both 80
both 53
"""


def apart(groups: Path, script: str) -> list[str]:
    """The words that run a script in a network of its own, with the control groups of a host."""
    enter = 'echo $$ > "$0/cgroup.procs" && exec unshare --net --mount --cgroup sh -c "$1"'
    return ["sh", "-c", enter, str(groups), f"{UNIFIED}; {script}"]


def in_network(
    groups: Path, script: str, path: str = "/usr/sbin:/usr/bin:/sbin:/bin"
) -> tuple[int, str]:
    """Exit code and words of a script there."""
    done = subprocess.run(
        apart(groups, script),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": path},
    )
    return done.returncode, done.stdout + done.stderr


def cloud() -> str:
    return CLOUD.replace("{python}", "/usr/bin/env python3")


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Path]:
    """The control groups of a host, unified, whatever this machine's are."""
    need_root("control groups are mounted, and nft loads rules in a network of its own")
    need_program("nft", "nftables")
    place = tmp_path / "root/sys/fs/cgroup"
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", str(place)], check=True)
    own = place / f"moe-test-{os.getpid()}"
    (own / "init.scope").mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(own), str(place)], check=True)
    try:
        yield place
    finally:
        (place / "init.scope").rmdir()
        subprocess.run(["umount", str(place)], check=True)
        own.rmdir()
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def group(groups: Path) -> Iterator[Path]:
    """The control group of the stack, as its slice has it."""
    place = groups / slice_path(STACK).lstrip("/")
    place.mkdir(parents=True)
    yield place
    place.rmdir()
    place.parent.rmdir()


@pytest.fixture
def guard(tmp_path: Path) -> Path:
    """The guard, reading its rules from a folder of the test."""
    (tmp_path / "metadata.nft").write_text(metadata_rules_text(STACK))
    script = tmp_path / "guard"
    text = metadata_guard_text(STACK)
    script.write_text(text.replace(metadata_rules(STACK), str(tmp_path / "metadata.nft")))
    script.chmod(0o755)
    return script


def without_nft(folder: Path) -> str:
    """A PATH with an nft that an old kernel has."""
    folder.mkdir()
    (folder / "nft").write_text("#!/bin/sh\necho 'Error: Could not process rule' >&2\nexit 1\n")
    (folder / "nft").chmod(0o755)
    return f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"


def test_every_address_is_one_and_stands_there_once() -> None:
    found = [str(ipaddress.ip_address(each)) for each in metadata_addresses()]
    assert found == list(metadata_addresses())
    assert len(set(found)) == len(found)


def test_the_stack_reaches_no_service_but_names_are_resolved(
    groups: Path, group: Path, guard: Path
) -> None:
    asks = ASK.replace("{group}", f"/sys/fs/cgroup{slice_path(STACK)}")
    script = f"{cloud()}\n{guard} || exit 9\n{asks}"
    assert group.is_dir()
    code, said = in_network(groups, f"{script}\nkill $cloud")
    assert code == 0, said
    others, http, names = ["yes"] * 2, ["no"] * 2, ["yes"] * 2
    assert said.split() == [*others, *http, *names]


def test_nothing_starts_where_a_service_answers_and_no_table_is_loaded(
    groups: Path, guard: Path, tmp_path: Path
) -> None:
    path = without_nft(tmp_path / "bin")
    code, said = in_network(groups, f"{cloud()}\n{guard}; code=$?; kill $cloud; exit $code", path)
    assert code == 1
    assert "not started: the cloud's metadata service at" in said
    for address in ("169.254.169.254", "fd00:ec2::254", "Could not process rule"):
        assert address in said


@pytest.mark.parametrize("network", ["ip link set lo up", ":"])
def test_a_host_of_no_cloud_needs_no_table(
    groups: Path, guard: Path, tmp_path: Path, network: str
) -> None:
    code, said = in_network(groups, f"{network}; {guard}", without_nft(tmp_path / "bin"))
    assert code == 0, said
    assert "and none answers here" in said


def test_a_host_that_cannot_ask_starts_nothing(groups: Path, guard: Path, tmp_path: Path) -> None:
    path = without_nft(tmp_path / "bin")
    (tmp_path / "bin" / "bash").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "bin" / "bash").chmod(0o755)
    code, _ = in_network(groups, str(guard), path)
    assert code == 1


def test_every_start_runs_the_guard_and_no_units_end_is_an_engines() -> None:
    """`systemctl restart nftables` restarts the unit; what would require it would end with it."""
    for kind in ("engine", "router"):
        unit = process_unit("s", kind, "docker", (), binds_low_port=False)
        assert "ExecStartPre=+/bin/sh /etc/moe-infra/s/metadata-guard" in unit.split("\n")
        assert not any(word in unit for word in ("Requires=", "BindsTo=", "Requisite="))
    own = metadata_unit_text("s")
    assert "ExecReload=/bin/sh /etc/moe-infra/s/metadata-guard" in own
    assert "ReloadPropagatedFrom=nftables.service" in own


class OwnNetworkHost(Host):
    """This machine, with a network of its own for every program; what its systemd would load, it loads."""

    def __init__(self, root: Path, keeper: int, rules: Path) -> None:
        super().__init__(str(root))
        self.enter = ["nsenter", f"--target={keeper}", "--net", "--mount", "--cgroup"]
        self.rules = rules

    def run(
        self,
        argv: list[str],
        timeout_s: float = 10.0,
        environment: dict[str, str] | None = None,
    ) -> Finished:
        if argv == ["systemctl", "reload-or-restart", f"moe-{STACK}-metadata.service"]:
            argv = ["nft", "-f", str(self.rules)]
        return super().run([*self.enter, *argv], timeout_s, environment)


@pytest.fixture
def host(groups: Path, tmp_path: Path) -> Iterator[OwnNetworkHost]:
    rules = tmp_path / "rules.nft"
    rules.write_text(metadata_rules_text(STACK))
    with subprocess.Popen(
        apart(groups, "echo there && exec cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdin is not None
        assert keeper.stdout.readline() == "there\n"
        yield OwnNetworkHost(tmp_path / "root", keeper.pid, rules)
        keeper.stdin.close()


@contextlib.contextmanager
def something_runs(group: Path) -> Iterator[None]:
    """A process of the stack, in its control group."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        (group / "cgroup.procs").write_text(str(process.pid))
        try:
            yield
        finally:
            (group.parent.parent / "cgroup.procs").write_text(str(process.pid))
            assert process.stdin is not None
            process.stdin.close()


def row(host: Host, mode: str) -> dict[str, object]:
    document = metadata_item(STACK).as_document()
    request = {"schema_version": 1, "operation": "state", "mode": mode, "stack": STACK}
    rows = answer({**request, "items": [document]}, host).get("items")
    assert isinstance(rows, list)
    return dict(rows[0])


def test_while_nothing_runs_a_host_that_takes_such_rules_is_as_it_should_be(
    host: OwnNetworkHost,
) -> None:
    found = row(host, "check")
    assert (found["state"], found["before"]) == ("ok", "nothing of the stack runs")


def test_a_group_that_outlives_its_processes_needs_no_table(
    host: OwnNetworkHost, group: Path
) -> None:
    """As after `fab down`: the slice is still there, and its unit would end as soon as it is started."""
    assert group.is_dir()
    found = row(host, "apply")
    assert (found["state"], found["before"]) == ("ok", "nothing of the stack runs")
    assert host.run(["nft", "list", "tables"]).stdout == ""


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("delete table inet moe_infra_metadata_guard-test", "not loaded"),
        (
            "flush chain inet moe_infra_metadata_guard-test output",
            "loaded, without `socket cgroupv2",
        ),
        ("insert rule inet moe_infra_metadata_guard-test output accept", "loaded, with `accept`"),
    ],
)
def test_a_table_that_somebody_damaged_is_told_and_comes_back(
    host: OwnNetworkHost, group: Path, damage: str, told: str
) -> None:
    host.run(["nft", "-f", str(host.rules)])
    with something_runs(group):
        assert row(host, "check")["state"] == "ok"
        assert host.run(["nft", damage]).exit_code == 0
        found = row(host, "check")
        assert found["state"] == "changed"
        assert str(found["before"]).startswith(told)
        assert row(host, "apply")["state"] == "changed"
        assert row(host, "check")["state"] == "ok"


def test_a_group_that_was_made_anew_is_not_the_one_of_the_rules(
    host: OwnNetworkHost, group: Path
) -> None:
    host.run(["nft", "-f", str(host.rules)])
    group.rmdir()
    group.mkdir()
    with something_runs(group):
        assert row(host, "check")["state"] == "changed"


class WithoutNft(OwnNetworkHost):
    """A host without the program; `there` is what is dialled there."""

    there = ""

    def run(
        self,
        argv: list[str],
        timeout_s: float = 10.0,
        environment: dict[str, str] | None = None,
    ) -> Finished:
        del timeout_s, environment
        if argv[0] in {"nft", "unshare"}:
            return Finished(None, "", "nft: not there")
        return Finished(0, self.there, "")


@pytest.mark.parametrize(
    ("there", "state"), [("", "not_applicable"), ("169.254.169.254\n", "blocked")]
)
def test_a_host_without_nft_matters_where_a_service_answers(
    tmp_path: Path, there: str, state: str
) -> None:
    host = WithoutNft(tmp_path / "root", 0, tmp_path)
    host.there = there
    found = row(host, "check")
    assert found["state"] == state
    assert "there is no program nft here" in str(found["why"])
    assert there.strip() in str(found["why"])
