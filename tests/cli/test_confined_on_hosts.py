"""What a router and an engine's container may do on hosts where they really run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from infra.rehearsal.standins.container_capabilities import CAPABILITIES
from infra.render.host_paths import slice_path
from tests.cli.commands import FAB, need_lab, run

# Whole rehearsals, one with a router's wheel on a port below 1024, one with a proxy in its engine's image.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

KEYED = ("--set", "secrets.api_key.env=A_KEY")
CHOSEN = (*KEYED, "--set", "port=443")
STATUS = ("Uid", "CapBnd", "CapEff", "NoNewPrivs", "Seccomp")
# A drop-in that makes of systemd one from before its credentials.
FORGET = (
    "mkdir -p /run/systemd/system/{unit}.d && "
    "printf '[Service]\\nLoadCredential=\\n' > /run/systemd/system/{unit}.d/old.conf && "
    "systemctl daemon-reload && systemctl restart {unit}"
)
METADATA = "169.254.169.254"
# Such a service as a cloud has, on the host itself.
SERVE = f"""
ip addr add {METADATA}/32 dev lo
systemd-run --quiet --working-directory=/srv python3 -m http.server 80 --bind {METADATA}
for i in $(seq 50); do curl -s -o /dev/null http://{METADATA}/ && exit 0; sleep 0.1; done
exit 1
"""
# What is fetched by a process that joins another one in its control group: 000 is nothing.
FETCH = """
echo $$ > /sys/fs/cgroup$(sed -n s/^0:://p /proc/{pid}/cgroup)/cgroup.procs
curl -s -m 2 -o /dev/null -w '%{{http_code}}' {url} || true
"""
# A container of the stack under docker's other driver of control groups.
OTHER_DRIVER = (
    'sed -i \'s/{{/{{"cgroup_driver": "cgroupfs", /\' /var/lib/moe-rehearsal/host.json; '
    "docker run -d --name other --network host --cgroup-parent={parent} --entrypoint /bin/sleep {image} 60"
)
UNLOADABLE = """
nft flush ruleset
mount --bind /bin/false $(command -v nft)
systemctl restart {unit} && exit 1
journalctl -u {unit} -o cat -n 20
"""
LOADABLE = """
umount $(command -v nft)
for i in $(seq 100); do systemctl is-active --quiet {unit} && exit 0; sleep 0.1; done
exit 1
"""
# What an engine answers through the router, once that is up again; 401 to a router without the key.
ASK = """
for i in $(seq 100); do
  said=$(curl -s -o /dev/null -w '%{http_code}' -H 'content-type: application/json' \\
    -d '{"model": "another", "prompt": "hi", "max_tokens": 1}' http://127.0.0.1:443/v1/completions) && break
  sleep 0.1
done
echo "$said"
"""


@dataclass(frozen=True)
class Served:
    """A kept rehearsal that serves."""

    stack: str
    host: str
    ssh_config: str
    inventory: str

    def root(self, command: str) -> str:
        done = run(
            "ssh", "-n", "-F", self.ssh_config, self.host, f"sudo sh -c {shlex.quote(command)}"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self, pid: str) -> dict[str, int]:
        """What the kernel says of a process, by its own words; a set of capabilities as a number."""
        rows = [line.split() for line in self.root(f"cat /proc/{pid.strip()}/status").splitlines()]
        base = {"CapBnd": 16, "CapEff": 16}
        return {
            row[0][:-1]: int(row[1], base.get(row[0][:-1], 10))
            for row in rows
            if row[0][:-1] in STATUS
        }

    def pid_of(self, container: str) -> str:
        return self.root(f"docker inspect --format '{{{{.State.Pid}}}}' {container}").strip()

    def container(self, process: str) -> dict[str, int]:
        return self.status(self.pid_of(f"moe-{self.stack}-{process}"))


def number_of(*names: str) -> int:
    return sum(1 << CAPABILITIES.index(name) for name in names)


def served(stack: str, host: str, *choice: str) -> Iterator[Served]:
    need_lab()
    done = run(FAB, "rehearse", "--stack", stack, *choice, "--keep", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    try:
        yield Served(stack, host, document["ssh_config"], document["inventory"])
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


@pytest.fixture(scope="module")
def wheel() -> Iterator[Served]:
    yield from served("vllm-shared-1p1d", "host-0", *CHOSEN)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Served]:
    yield from served("ascend-1p1d-internal", "prefill-0", *KEYED)


def test_a_native_router_is_nobody_with_one_capability(wheel: Served) -> None:
    unit = f"moe-{wheel.stack}-router@0.service"
    seen = wheel.status(wheel.root(f"systemctl show -p MainPID --value {unit}"))
    port = number_of("NET_BIND_SERVICE")
    assert seen.pop("Uid") > 60000  # of the range that systemd gives away (UIDS-GIDS.md)
    assert seen == {"CapBnd": port, "CapEff": port, "NoNewPrivs": 1, "Seccomp": 2}


def test_a_native_router_has_its_key_from_a_systemd_without_credentials(wheel: Served) -> None:
    unit = f"moe-{wheel.stack}-router@0.service"
    wheel.root(FORGET.format(unit=unit))
    copy = wheel.root(f"stat -c '%a %u' /run/moe-{wheel.stack}-router-0/api_key").split()
    seen = wheel.status(wheel.root(f"systemctl show -p MainPID --value {unit}"))
    assert copy == ["600", str(seen["Uid"])]
    # the engines ask for the key, and the router alone can have given it
    assert wheel.root(ASK).split() == ["404"]


def test_a_router_in_a_container_is_nobody_without_capabilities(proxy: Served) -> None:
    assert proxy.container("router-0") == {
        "Uid": 65534,
        "CapBnd": 0,
        "CapEff": 0,
        "NoNewPrivs": 1,
        "Seccomp": 0,  # nothing of the stand-in's
    }


@pytest.mark.parametrize(("stack", "keeps"), [("wheel", "SYS_NICE"), ("proxy", "DAC_OVERRIDE")])
def test_an_engines_container_has_what_its_vendor_asks_for(
    request: pytest.FixtureRequest, stack: str, keeps: str
) -> None:
    seen = request.getfixturevalue(stack).container("engine-0")
    assert (seen["Uid"], seen["NoNewPrivs"]) == (0, 1)
    assert seen["CapBnd"] == seen["CapEff"] == number_of(keeps)


def test_nothing_of_a_stack_reaches_the_metadata_service_of_a_cloud(
    wheel: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel.root(SERVE)  # root itself does: staging asks it for the host's role
    parent = slice_path(wheel.stack)
    wheel.root(OTHER_DRIVER.format(parent=parent, image="vllm/vllm-openai:v0.22.1"))
    unit = f"moe-{wheel.stack}-router@0.service"
    asking = {
        "router": wheel.root(f"systemctl show -p MainPID --value {unit}").strip(),
        "engine": wheel.pid_of(f"moe-{wheel.stack}-engine-0"),
        "engine under cgroupfs": wheel.pid_of("other"),
        "the login": "self",
    }
    told = {
        who: wheel.root(FETCH.format(pid=pid, url=f"http://{METADATA}/")).strip()
        for who, pid in asking.items()
    }
    nothing = dict.fromkeys(("router", "engine", "engine under cgroupfs"), "000")
    assert told == {**nothing, "the login": "200"}
    pid = asking["engine"]
    wheel.root("systemctl start nftables")
    for how in ("restart", "reload"):  # either flushes every table, and no engine ends by it
        wheel.root(f"systemctl {how} nftables")
        assert wheel.root(FETCH.format(pid=pid, url=f"http://{METADATA}/")).strip() == "000"
    there = ("--stack", wheel.stack, *CHOSEN, "--inventory", wheel.inventory)
    key = wheel.root(f"cat /etc/moe-infra/{wheel.stack}/credentials/api_key")
    monkeypatch.setenv("A_KEY", key)
    wheel.root("nft flush ruleset")
    seen = run(FAB, "verify", *there)
    assert seen.returncode == 6, seen.stderr
    assert f"metadata:moe_infra_metadata_{wheel.stack}" in seen.stdout
    mended = run(FAB, "up", *there)  # it serves on: engines keep their process ids
    assert mended.returncode == 0, mended.stderr
    assert wheel.root(FETCH.format(pid=pid, url=f"http://{METADATA}/")).strip() == "000"
    # where the table cannot be loaded, nothing starts that the service would answer
    said = wheel.root(UNLOADABLE.format(unit=unit))
    assert "not started: the cloud's metadata service at 169.254.169.254" in said
    wheel.root(LOADABLE.format(unit=unit))
    wheel.root(ASK)
    # everything else is as it was
    assert wheel.root(FETCH.format(pid=pid, url="http://127.0.0.1:443/health")).strip() == "200"
    done = run(FAB, "down", *there)
    assert done.returncode == 0, done.stderr
    assert "moe_infra" not in wheel.root("nft list tables")  # it goes with the last process
