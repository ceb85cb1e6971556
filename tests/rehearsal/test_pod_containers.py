"""A pod's container is given what its specification asks for, and nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Any, cast

import pytest

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, NotReady
from infra.rehearsal.cluster.api import Api, Document
from infra.rehearsal.cluster.containers import PodContainer
from infra.rehearsal.cluster.kubelets import Kubelets
from infra.rehearsal.cluster.played_kubelets import start_pods
from infra.rehearsal.cluster.pods import ResolvedPod, names_of
from infra.rehearsal.cluster.unplayed import unplayed
from infra.rehearsal.lab.client import Lab

NO_IMAGE = b"no such image"
CONTAINER: dict[str, Any] = {
    "name": "engine",
    "image": "an/image:1",
    "command": ["python3", "/launch.py", "run"],
}


class FakeLab:
    """Takes files and commands, which have the exit code that it was made with, 1 where one names `says_no`."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.says_no = ""
        self.scripts: list[str] = []
        self.limits: list[float] = []

    def write_file(self, _host: str, path: str, content: bytes, _mode: int) -> None:
        self.scripts.append(f"{path}: {content.decode()}")

    def run(
        self, _host: str, argv: Sequence[str], limit_s: float | None = None
    ) -> CompletedProcess[bytes]:
        self.scripts.append(argv[-1])
        self.limits += [] if limit_s is None else [limit_s]
        is_refused = bool(self.says_no) and self.says_no in argv[-1]
        return CompletedProcess(list(argv), int(is_refused) or self.code, NO_IMAGE, NO_IMAGE)


class Told:
    """An API server that keeps what it is told of pods."""

    def __init__(self) -> None:
        self.ready: list[str] = []

    def patch(self, _path: str, document: dict[str, Any], **_kind: str) -> None:
        conditions = {each["type"]: each["status"] for each in document["status"]["conditions"]}
        self.ready.append(conditions["Ready"])


class Listing:
    """An API server that lists what it was made with, by the collection's name, and where nothing happens."""

    def __init__(self, listed: dict[str, list[Document]]) -> None:
        self.listed = listed

    def items(self, path: str) -> list[Document]:
        return self.listed[path.rpartition("/")[2]]

    def follow(self, _path: str, _handle: object) -> None:
        return

    def get(self, path: str) -> Document | None:
        collection, _, name = path.rpartition("/")
        return next((o for o in self.items(collection) if o["metadata"]["name"] == name), None)


def service(name: str, address: str) -> Document:
    return {"metadata": {"name": name}, "spec": {"clusterIP": address}}


def piece(service: str, address: str, *, is_ready: bool, hostname: str | None = None) -> Document:
    endpoint = {"addresses": [address], "conditions": {"ready": is_ready}, "hostname": hostname}
    labels = {"kubernetes.io/service-name": service}
    return {"metadata": {"labels": labels}, "endpoints": [endpoint]}


def made(
    container: dict[str, Any],
    lab: FakeLab,
    *volumes: dict[str, Any],
    accelerator: str = "mi300x",
    **spec: object,
) -> PodContainer:
    document = {
        "metadata": {"namespace": "n", "name": "a-pod"},
        "spec": {"containers": [{**CONTAINER, **container}], "volumes": list(volumes), **spec},
    }
    pod = ResolvedPod(
        name="a-pod", uid="1-2", node="n", address="192.0.2.1",
        environment={"A": "b"}, files={}, document=document,
    )  # fmt: skip
    return PodContainer(
        lab=cast("Lab", lab), host="h", pod=pod, accelerator=Catalog().accelerator(accelerator)
    )


def started(
    container: dict[str, Any],
    *volumes: dict[str, Any],
    code: int = 0,
    accelerator: str = "mi300x",
    **spec: object,
) -> list[str]:
    """The words that the runtime is given."""
    lab = FakeLab(code)
    made(container, lab, *volumes, accelerator=accelerator, **spec).start()
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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, "containers[0].lifecycle"),
        ({"tty": True}, "containers[0].tty"),
        ({"securityContext": {"runAsUser": 1000}}, "containers[0].securityContext.runAsUser"),
        ({"startupProbe": {"httpGet": {"port": 1}}}, "containers[0].startupProbe.httpGet"),
        (
            {"volumeMounts": [{"name": "n", "mountPath": "/m", "subPath": "s"}]},
            "containers[0].volumeMounts[0].subPath",
        ),
    ],
)
def test_what_a_container_asks_and_nobody_plays_is_refused(
    change: dict[str, Any], named: str
) -> None:
    with pytest.raises(HostsFailed, match=re.escape(named)):
        started(change)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"enableServiceLinks": True}, "enableServiceLinks"),
        ({"hostNetwork": True}, "hostNetwork"),
        # no kubelet takes it without a flag
        (
            {"securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]}},
            "securityContext.sysctls",
        ),
        ({"initContainers": [{"name": "copy", "image": "i"}]}, "initContainers[0]"),
        ({"volumes": [{"name": "n", "csi": {"driver": "d"}}]}, "volumes[0].csi"),
        # a kubelet evicts who writes more to a disk
        ({"volumes": [{"name": "n", "emptyDir": {"sizeLimit": "1Gi"}}]}, "volumes[0].emptyDir"),
        (
            {"volumes": [{"name": "n", "emptyDir": {"medium": "Memory", "sizeLimit": "0"}}]},
            "volumes[0].emptyDir",
        ),
        (
            {"containers": [{**CONTAINER, "securityContext": {"privileged": True}}]},
            "privileged without hostPID",
        ),
    ],
)
def test_what_a_pod_asks_and_nobody_plays_is_refused(change: dict[str, Any], named: str) -> None:
    assert unplayed({"containers": [CONTAINER], **change}) == [named]


def test_a_folder_in_memory_is_as_large_as_its_limit() -> None:
    volume = {"name": "n", "emptyDir": {"medium": "Memory", "sizeLimit": "32Gi"}}
    asked = {"volumeMounts": [{"name": "n", "mountPath": "/dev/shm"}]}
    assert "type=tmpfs,target=/dev/shm,tmpfs-size=32g" in started(asked, volume)


def test_cards_come_by_the_resource_that_names_them_and_channels_by_a_claim() -> None:
    devices, cards, claims = {"nvidia.com/gpu": "4"}, {"rdma/hca": "4"}, [{"name": "domain"}]
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    for resources, wanted in (
        ({"limits": {**devices, "hugepages-2Mi": "1Gi"}}, []),
        ({"limits": {**devices, **cards}}, ["/dev/infiniband"]),
        ({"limits": devices, "claims": claims}, [channel]),
    ):
        words = started({"resources": resources}, accelerator="gb200")
        assert [w for w in words if w.startswith("/dev/")] == wanted


def test_a_router_program_is_there_only_where_an_init_container_has_installed_it() -> None:
    place = {"name": "router", "mountPath": "/opt/router"}
    installs: dict[str, Any] = {
        "initContainers": [{"name": "install", "image": "i", "volumeMounts": [place]}]
    }
    volume = {"name": "router", "emptyDir": {}}
    asked = {"volumeMounts": [place]}
    assert "type=tmpfs,target=/opt/router" in started(asked, volume)
    assert "type=bind,source=/opt/router,target=/opt/router" in started(asked, volume, **installs)


def test_a_command_is_resolved_as_a_kubelet_does() -> None:
    assert started({"command": ["python3", "$(A)", "$$(A)", "$(B)"]})[-3:] == ["b", "$(A)", "$(B)"]


def test_without_a_command_the_image_keeps_its_own_entry_point() -> None:
    words = started({"command": None, "args": ["python3", "$(A)"]})
    assert "--entrypoint" not in words
    assert words[-2:] == ["python3", "b"]
    words = started({"command": ["python3"], "args": ["$(A)"]})
    assert words[words.index("--entrypoint") + 1] == "python3"
    assert words[-1] == "b"


def test_a_probe_has_the_time_that_it_asks_for() -> None:
    lab = FakeLab()
    container = made({}, lab)
    container.probe({"exec": {"command": ["true"]}})
    container.probe({"exec": {"command": ["true"]}, "timeoutSeconds": 7})
    assert lab.limits == [1.0, 7.0]


def test_a_pod_is_ready_when_both_of_its_probes_are_content() -> None:
    """And says so of the one that is not: a readiness probe that nobody asked proved nothing."""
    lab, api = FakeLab(), Told()
    probes = {name: {"exec": {"command": [name]}} for name in ("startupProbe", "readinessProbe")}
    start_pods(cast("Api", api), [made(probes, lab)], limit_s=5.0)
    asked = [script.split()[-1] for script in lab.scripts if "nsenter" in script]
    assert asked == ["startupProbe", "readinessProbe"]
    assert api.ready == ["True"]
    lab.says_no = "readinessProbe"
    with pytest.raises(NotReady, match="a-pod is not ready after 0 s: no such image"):
        start_pods(cast("Api", api), [made(probes, lab)], limit_s=0.0)


def test_names_lead_to_pods_that_are_ready_and_those_of_a_service_to_its_own_address() -> None:
    """As DNS answers: peers that are awaited before they are ready need `publishNotReadyAddresses`."""
    listed = {
        "services": [
            service("set", "None"),
            service("early", "None"),
            service("clients", "10.96.0.7"),
        ],
        "endpointslices": [
            piece("set", "192.0.2.1", is_ready=False, hostname="set-0"),
            piece("set", "192.0.2.2", is_ready=True, hostname="set-0-1"),
            piece("early", "192.0.2.1", is_ready=True),
            piece("clients", "192.0.2.2", is_ready=True),
        ],
    }
    assert names_of(cast("Api", Listing(listed)), "n") == {
        "set": {"192.0.2.2"},
        "set-0-1.set": {"192.0.2.2"},
        "early": {"192.0.2.1"},
        "clients": {"10.96.0.7"},
    }


def test_a_pod_waits_for_objects_and_for_the_keys_that_it_takes_variables_from() -> None:
    secret = {"metadata": {"name": "keys"}, "data": {"api_key": "a2V5"}}
    api = Listing({"secrets": [secret], "configmaps": []})

    def missing(key: str) -> list[str]:
        reference = {"secretKeyRef": {"name": "keys", "key": key}}
        env = [{"name": "API_KEY", "valueFrom": reference}]
        volume = {"name": "launch", "configMap": {"name": "launch"}}
        spec = {"containers": [{**CONTAINER, "env": env}], "volumes": [volume]}
        pod = {"metadata": {"namespace": "n"}, "spec": spec, "status": {}}
        return Kubelets(cast("Api", api)).missing(pod)

    assert missing("api_key") == ["ConfigMap launch"]
    assert missing("hf_token") == ["ConfigMap launch", "key hf_token of Secret keys"]
