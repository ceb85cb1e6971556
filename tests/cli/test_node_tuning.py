"""The DaemonSet that tunes nodes, its very command run on simulated hosts: as `fab tune-hosts` does, bit for bit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.launch.host_tuning import TuningMode, TuningOrder, tune
from infra.launch.rendered.host import OneHost
from infra.plan.compile import compile_stack
from infra.provision.cluster.tuning import tuning_objects
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.starting import start_lab
from infra.remote.agent_call import call_agent
from infra.remote.connecting import SshOptions
from infra.render.host_state import node_state
from infra.render.wanted_tuning import Tuning
from infra.spec.load import load_stack
from tests.agent.cluster_certificate import make_certificate
from tests.cli.commands import need_lab
from tests.cli.tuning_flavours import grace
from tests.remote.lab_inventory import lab_host
from tests.remote.opened import open_host
from tests.render.pods import CLUSTER

# Two hosts with systemd, one tuned by a pod and one over SSH.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "k8s-gb200-2p1d"
NODE, HOST = "node", "host"
POD = "/opt/pod"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
SWAPPINESS = "/proc/sys/vm/swappiness"
LIMIT_S = 120
# What a container has of its own: its files, and every namespace but that of processes (hostPID). Whoever writes in it,
# and not on the node, writes into these empty folders.
CONTAINER = f"""\
set -e
mount -t tmpfs container /tmp
mkdir -p /tmp/etc /tmp/var {ACCOUNT} /etc/moe-infra
mount --bind {POD}/account {ACCOUNT}
for folder in /etc/sysctl.d /etc/security /etc/systemd /var/lib; do mount -t tmpfs container $folder; done
mount --bind {POD}/settings /etc/moe-infra
ip link set lo up
python3 {POD}/api_of_a_cluster.py {POD}/account &
while [ ! -f {POD}/account/port ]; do sleep 0.05; done
export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=$(cat {POD}/account/port)
exec "$@"
"""
# All that a look at a host shows of its state: files that tuning writes or makes folders for, and knobs of its kernel.
LOOK = f"""\
for place in /etc /var/lib/moe-infra; do
  find $place -xdev ! -path '/etc/ssh/*' ! -path '/etc/moe-infra' -printf '%p %y %m %u %l\\n' | sort
  find $place -xdev -type f ! -path '/etc/ssh/*' ! -name hostname ! -name hosts ! -name machine-id \\
    -exec sha256sum {{}} + | sort -k 2
done
cat {SWAPPINESS} /proc/sys/kernel/numa_balancing /proc/sys/vm/zone_reclaim_mode /proc/sys/vm/max_map_count
cat /proc/sys/net/ipv4/ip_local_reserved_ports /sys/kernel/mm/transparent_hugepage/enabled
cat /sys/devices/system/cpu/cpufreq/policy*/scaling_governor
systemctl show -p ActiveState,UnitFileState irqbalance nvidia-persistenced nvidia-imex
"""


@dataclass(frozen=True)
class Hosts:
    """A node with a pod, and a host that `fab tune-hosts` reaches.

    Args:
        container: of the DaemonSet, as the API got it.
    """

    lab: Lab
    container: Mapping[str, Any]

    def shell(self, host: str, script: str) -> str:
        done = self.lab.run(host, ["/bin/sh", "-c", script])
        assert done.returncode == 0, (script, done.stderr)
        return done.stdout.decode()

    def look(self, host: str) -> list[str]:
        return self.shell(host, LOOK).splitlines()

    def start_pod(self) -> None:
        self.shell(NODE, f"rm -f {POD}/account/port")
        words = ["systemd-run", "--unit=pod", "--collect", "--service-type=exec"]
        words += ["--property=KillMode=mixed"]
        apart = ["unshare", "--mount", "--uts", "--ipc", "--net", "--propagation", "private"]
        own = ["/bin/sh", "-c", CONTAINER, "sh", *self.container["command"]]
        done = self.lab.run(NODE, [*words, *apart, *own])
        assert done.returncode == 0, done.stderr

    def stop_pod(self) -> str:
        """End the pod as the kubelet does; what it has said since it was started."""
        said = "journalctl -u pod.service -o cat --since=@$(stat -c %Y /opt/pod/account/port)"
        return self.shell(NODE, f"systemctl stop pod.service; journalctl --sync; {said}")

    def in_pod(self, words: list[str]) -> tuple[int, str]:
        """A command in the container: what a probe or `kubectl exec` starts."""
        pid = self.shell(NODE, "systemctl show --value -p MainPID pod.service").strip()
        enter = ["nsenter", "--target", pid, "--mount", "--uts", "--ipc", "--net", "--"]
        done = self.lab.run(NODE, [*enter, *words])
        return done.returncode, done.stdout.decode()

    def until_ready(self) -> str:
        """What the probe says once the pod is ready."""
        probe = self.container["readinessProbe"]["exec"]["command"]
        until = time.monotonic() + LIMIT_S
        while True:
            code, said = self.in_pod(probe)
            if code == 0:
                return said
            assert time.monotonic() < until, (said, self.shell(NODE, "journalctl -u pod -o cat"))
            time.sleep(0.2)

    def report(self) -> dict[str, dict[str, Any]]:
        """Items by id, as a person asks for them."""
        _, said = self.in_pod(["python3", "/etc/moe-infra/tune.py", "report", "/etc/moe-infra"])
        (host,) = json.loads(said)["hosts"]
        return {row["id"]: row for row in host["items"]}

    def api_says(self, document: object) -> None:
        text = json.dumps(document) if document else ""
        self.lab.write_file(NODE, f"{POD}/account/answer", text.encode())


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need_lab()
    catalog = Catalog()
    stack = load_stack(STACK)
    plan = compile_stack(stack, catalog=catalog).plan
    objects = {each.kind: each.document for each in tuning_objects(stack, plan, CLUSTER, catalog)}
    data: Any = objects["ConfigMap"]["data"]
    spec: Any = objects["DaemonSet"]["spec"]
    pod = spec["template"]["spec"]
    assert pod["hostPID"] is True
    told = json.loads(data["tuning.json"])
    quick = json.dumps({**told, "every_s": 0.5})  # the only word that is not the object's own
    boxes = (
        replace(grace().host, name=NODE),
        replace(grace().host, name=HOST, address="192.0.2.5"),
    )
    certificate, with_key = make_certificate()
    with start_lab(tmp_path_factory.mktemp("lab") / "l", boxes) as lab:
        lab.wait_ready(60)
        running = Hosts(lab=lab, container=pod["containers"][0])
        for name in (NODE, HOST):
            running.shell(name, f"mkdir -p {POD}/account {POD}/settings /etc/moe-infra")
            running.shell(name, "systemctl enable --now irqbalance")
        for name, text in {**data, "tuning.json": quick}.items():
            lab.write_file(NODE, f"{POD}/settings/{name}", text.encode())
        api = Path(__file__).parents[1] / "agent" / "api_of_a_cluster.py"
        lab.write_file(NODE, f"{POD}/api_of_a_cluster.py", api.read_bytes())
        for name, content in (("ca.crt", certificate), ("tls.pem", with_key), ("token", b"t")):
            lab.write_file(NODE, f"{POD}/account/{name}", content)
        yield running


def over_ssh(hosts: Hosts, mode: TuningMode) -> dict[str, Mapping[str, object]]:
    """What `fab tune-hosts` does to a host that is to have the nodes' state."""
    catalog = Catalog()
    plan = compile_stack(load_stack(STACK), catalog=catalog).plan
    state = node_state(STACK, Tuning(profile=catalog.tuning(plan.tuning)))
    options = SshOptions()
    connected = open_host(lab_host(hosts.lab, HOST), options)
    fleet = OneHost(
        name=HOST,
        ask_host=lambda request, timeout_s: call_agent(connected, request, timeout_s=timeout_s),
    )
    try:
        rows = tune(fleet, {HOST: state}, TuningOrder(mode=mode, timeout_s=LIMIT_S))
    finally:
        connected.close()
        options.resources.close()
    return {str(row["id"]): row for row in rows[HOST]}


def test_a_node_gets_what_a_host_gets_and_gives_it_back(hosts: Hosts) -> None:
    """One story, since each step begins where the last one ended."""
    found = hosts.look(NODE)
    assert found == hosts.look(HOST)

    hosts.api_says({"metadata": {"name": "there"}})
    hosts.start_pod()
    said = hosts.until_ready()
    over = over_ssh(hosts, "apply")
    told = hosts.report()
    tuned = hosts.look(NODE)
    assert tuned == hosts.look(HOST)
    assert tuned != found
    assert set(told) == set(over)
    blocked = {name for name, row in over.items() if row["state"] == "blocked"}
    assert blocked == {line.partition(":")[0] for line in said.splitlines()}
    assert "kernel.cmdline" in blocked  # a reboot is nobody's to order here
    assert told["nvidia-imex"]["wanted"] is None

    # Somebody changes it: it is found at the next look, mended, and told.
    hosts.shell(NODE, f"echo 60 > {SWAPPINESS}")
    until = time.monotonic() + LIMIT_S
    while hosts.shell(NODE, f"cat {SWAPPINESS}") != "0\n":
        assert time.monotonic() < until
        time.sleep(0.1)

    # Only the pod ends: an update, a reboot. What it did stays.
    lines = hosts.stop_pod()
    assert "moe-infra: vm.swappiness: changed, 60 → 0" in lines
    assert "what was changed stays: only this pod ends, and the next one takes over" in lines
    assert hosts.look(NODE) == tuned

    # The DaemonSet goes: what was found comes back, as a rollback brings it.
    hosts.start_pod()
    hosts.until_ready()
    assert {row["state"] for row in hosts.report().values()} <= {"ok", "blocked", "not_applicable"}
    hosts.api_says({"metadata": {"name": "there", "deletionTimestamp": "2026-11-22T06:00:00Z"}})
    assert "the DaemonSet is going: what was found is brought back" in hosts.stop_pod()
    over_ssh(hosts, "rollback")
    assert hosts.look(NODE) == found
    assert hosts.look(HOST) == found


def test_a_refusing_kernel_is_told_and_a_node_without_python_is_not_ready(hosts: Hosts) -> None:
    hosts.api_says({"metadata": {"name": "there"}})
    hosts.lab.inject(NODE, "vm.swappiness", "EPERM")
    hosts.start_pod()
    try:
        assert "vm.swappiness: blocked, " in hosts.until_ready()
        hosts.shell(NODE, "mv /usr/bin/python3 /usr/bin/python3.away")
        until = time.monotonic() + LIMIT_S
        probe = ["python3.away", *hosts.container["readinessProbe"]["exec"]["command"][1:]]
        while (answer := hosts.in_pod(probe))[0] == 0:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert "the node has no python3: install Python 3.6 or newer there" in answer[1]
    finally:
        hosts.shell(NODE, "mv /usr/bin/python3.away /usr/bin/python3 2>/dev/null || :")
        hosts.lab.inject(NODE, "vm.swappiness", None)
        hosts.api_says(None)
        hosts.stop_pod()
