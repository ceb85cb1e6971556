"""A pod's container is given what its specification asks for, and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any, cast

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed
from infra.rehearsal.cluster.containers import PodContainer
from infra.rehearsal.cluster.pods import ResolvedPod
from infra.rehearsal.lab.client import Lab

CONTAINER: dict[str, Any] = {"image": "an/image:1", "command": ["python3", "/launch.py", "run"]}


class FakeLab:
    """Takes files and commands; the last command has the exit code that it was made with."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.scripts: list[str] = []

    def write_file(self, _host: str, path: str, content: bytes, _mode: int) -> None:
        self.scripts.append(f"{path}: {content.decode()}")

    def run(self, _host: str, argv: Sequence[str]) -> CompletedProcess[bytes]:
        self.scripts.append(argv[-1])
        return CompletedProcess(list(argv), self.code, b"", b"no such image")


def started(container: dict[str, Any], *volumes: dict[str, Any], code: int = 0) -> list[str]:
    """The words that the runtime is given."""
    lab = FakeLab(code)
    spec = {"containers": [{**CONTAINER, **container}], "volumes": list(volumes)}
    pod = ResolvedPod(
        name="a-pod", uid="1-2", node="n", address="192.0.2.1",
        environment={"A": "b"}, files={}, document={"spec": spec},
    )  # fmt: skip
    accelerator = Catalog().accelerator("mi300x")
    PodContainer(lab=cast("Lab", lab), host="h", pod=pod, accelerator=accelerator).start()
    words = shlex.split(lab.scripts[-1])
    return words[words.index("docker") :]


def test_a_pod_that_asks_for_nothing_gets_nothing() -> None:
    assert not {"--device", "--privileged", "--cap-add", "--mount", "--pid=host"} & set(started({}))


def test_devices_capabilities_and_mounts_are_those_that_are_asked_for() -> None:
    asked = {
        "resources": {"limits": {"amd.com/gpu": "8"}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "weights", "mountPath": "/models", "readOnly": True}],
    }
    words = started(asked, {"name": "weights", "hostPath": {"path": "/data"}})
    assert words[words.index("--device") + 1] == "/dev/kfd"
    assert words[words.index("--cap-add") + 1] == "IPC_LOCK"
    assert words[words.index("--mount") + 1] == "type=bind,source=/data,target=/models,readonly"
    # what hosts add to a container of their own, and no pod of ours asks for
    assert not {"--ipc=host", "--group-add", "--security-opt"} & set(words)


def test_a_runtime_that_refuses_is_told_with_the_fix() -> None:
    with pytest.raises(HostsFailed, match=r"a-pod cannot be started: no such image\. Mend"):
        started({}, code=125)
