"""The real controllers of LeaderWorkerSet and DisaggregatedSet, as programs of this machine, with their webhooks."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from infra.rehearsal.cluster.api import Api, Document
from infra.rehearsal.cluster.control_plane import ControlPlane, free_ports
from infra.rehearsal.cluster.programs import Programs
from infra.spec.plain_yaml import read_yaml

PROGRAM = "leader-worker-set-controller"
SETS = "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_DIAL_S = 1.0


def set_definitions(programs: Programs) -> Iterator[Document]:
    """The definitions of the sets, from the controllers' own module."""
    for path in sorted(programs.manifests.glob("*.x-k8s.io_*.yaml")):
        yield read_yaml(path)  # more than a megabyte each


def install_definitions(plane: ControlPlane, definitions: Iterable[Document]) -> None:
    """Make kinds known to the API server, and wait until it serves them: each takes it some seconds."""
    made = list(definitions)
    for each in made:
        plane.api.create(_DEFINITIONS, each)
    plane.wait("kube-apiserver", lambda: all(_is_served(plane.api, each) for each in made))


def start_set_controllers(plane: ControlPlane) -> None:
    """Start the controllers; webhooks come before the first set, or the controller fails on that set for ever."""
    webhook_port, health_port = free_ports(2)
    config = plane.folder / "sets.yaml"
    document = {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {
            "host": "127.0.0.1",
            "port": webhook_port,
            "certDir": str(plane.certificate.folder),
        },
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
    }
    config.write_text(json.dumps(document), encoding="utf-8")
    plane.start(PROGRAM, f"--config={config}")
    plane.wait(PROGRAM, lambda: _answers(webhook_port))
    for webhooks in _webhooks(plane, webhook_port):
        collection = f"{webhooks['kind'].lower()}s"
        plane.api.create(f"{_WEBHOOKS}/{collection}", webhooks)
    plane.wait("kube-apiserver", lambda: _are_asked(plane.api))


def _webhooks(plane: ControlPlane, port: int) -> Iterator[Document]:
    """The webhooks of the controllers' own manifest, called on loopback instead of in a service."""
    bundle = base64.b64encode(plane.certificate.file.read_bytes()).decode()
    text = Path(plane.programs.manifests / "webhooks.yaml").read_text(encoding="utf-8")
    for document in yaml.safe_load_all(text):
        for webhook in document["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
        yield document


def _is_served(api: Api, definition: Document) -> bool:
    """Whether objects of a kind can be asked for, and whoever asks what there is hears of it."""
    spec = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each["served"])
    group = f"/apis/{spec['group']}/{version}"
    try:
        return (
            api.get(group) is not None and api.get(f"{group}/{spec['names']['plural']}") is not None
        )
    except OSError:  # its storage is being made
        return False


def _are_asked(api: Api) -> bool:
    """Whether the API server has heard of the webhooks: they complete what a set leaves out."""
    pod = {"spec": {"containers": [{"name": "one", "image": "example.com/one"}]}}
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "asked"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": pod}},
    }
    made = api.create(
        "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets?dryRun=All", document
    )
    return "networkConfig" in made["spec"]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), _DIAL_S).close()
    except OSError:
        return False
    return True
