"""A host that is a node of a cluster: what its pods keep the agent from."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.agent.host import Host
from infra.agent.item import Reading, parse_item
from infra.agent.state.reload_guard import pods_with_gpus, reload_hurts
from infra.agent.state.waiting import Permission, running_pods
from infra.render.pod_template import LAUNCH_DOCUMENT, LAUNCHER

COMMAND = ["python3", LAUNCHER, "run", LAUNCH_DOCUMENT]
POD = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n"
GPU = "/dev/nvidia0"


def add_process(root: Path, pid: int, command: list[str], group: str, *devices: str) -> None:
    """A process of a host, as /proc shows it."""
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command))
    (folder / "cgroup").write_text(group)
    for number, device in enumerate(devices):
        (folder / "fd" / str(number)).symlink_to(f"{root}{device}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    add_process(tmp_path, 1, ["/sbin/init"], "0::/init.scope\n")
    return tmp_path


def test_what_wants_a_drain_waits_for_pods_of_ours(root: Path) -> None:
    """Allowed or not: engines in pods are no units, and the operator may not know of them."""
    item = parse_item({"id": "gpu.mig_mode", "kind": "gpu-setting", "needs": "drain"})
    reading = Reading("Enabled", {}, "Disabled", {})
    host = Host(str(root))
    assert running_pods(host) == []
    assert Permission(host, ["drain"], is_boot=False).refusal(item, reading) is None
    add_process(root, 7, COMMAND, POD)
    add_process(root, 8, ["python3", LAUNCHER, "ready", LAUNCH_DOCUMENT], POD)  # a probe
    assert running_pods(host) == ["a pod (process 7)"]
    refusal = Permission(host, ["drain"], is_boot=False).refusal(item, reading)
    assert refusal is not None
    assert "a pod (process 7) runs here and would be hurt; scale its set to 0 first" in refusal
    assert Permission(host, ["drain", "running"], is_boot=False).refusal(item, reading) is None


@pytest.mark.parametrize(
    ("group", "device", "is_hurt"),
    [
        (POD, GPU, True),
        (POD, "/dev/nvidiactl", False),
        ("0::/kubepods/burstable/pod1/2\n", GPU, False),  # the cgroupfs driver: systemd has no say
        ("0::/system.slice/nvidia-persistenced.service\n", GPU, False),
    ],
)
def test_systemd_is_not_reloaded_where_a_pod_may_lose_its_gpu(
    root: Path, group: str, device: str, is_hurt: bool
) -> None:
    add_process(root, 7, ["vllm"], group, device)
    host = Host(str(root))
    assert pods_with_gpus(host) == (["process 7"] if is_hurt else [])
    if is_hurt:
        assert "may cut the GPUs from running pods (process 7)" in reload_hurts(host, "s")
