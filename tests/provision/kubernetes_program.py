"""The program of a stack on Kubernetes run in this process: Pulumi's mocks, and a kubectl that answers from a file."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks

from infra.catalog.load import Catalog
from infra.provision.program import provision
from infra.rehearsal.cloud.wire import plain
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml
from tests.provision.mocked_runs import PROJECT_NAME, default_values, files_of, run_mocked

KUBECTL = """\
#!/bin/sh
folder=${0%/*}
echo "$*" >> "$folder/asked"
if [ -f "$folder/silent" ]; then cat "$folder/silent" >&2; exit 1; fi
for path; do :; done
while [ "$path" != "${path#*/}" ]; do path=${path%%/*}_${path#*/}; done
if [ -f "$folder/$path" ]; then exec cat "$folder/$path"; fi
echo "Error from server (NotFound): the server could not find the requested resource" >&2
exit 1
"""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
LWS = f"{DEFINITIONS}/leaderworkersets.leaderworkerset.x-k8s.io"
DOMAINS = f"{DEFINITIONS}/computedomains.resource.nvidia.com"
UNITS = f"{DEFINITIONS}/disaggregatedsets.disaggregatedset.x-k8s.io"
CLAIMS = "/apis/resource.k8s.io"
CATALOG = Catalog()
CONFIG = {"kubernetes_context": "rack-1", "network_resource": "rdma/hca=4"}


def node(number: int, allocatable: Mapping[str, str], **more: Any) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.clique": f"rack.{number // 18}"}
    return {
        "metadata": {"name": f"node-{number}", "labels": labels},
        "spec": {},
        "status": {
            "allocatable": dict(allocatable),
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.35.0"},
        },
        **more,
    }


def nodes_path(selector: str) -> str:
    return "/api/v1/nodes?labelSelector=" + selector.replace("/", "/").replace("=", "%3D")


GB200_NODES = nodes_path("nvidia.com/gpu.product=NVIDIA-GB200")
A3_NODES = nodes_path("accelerator=huawei-Ascend910")


def whole_cluster() -> dict[str, Any]:
    """A cluster in which both stacks can be made."""
    gb200, a3 = (
        {"nvidia.com/gpu": "4", "rdma/hca": "4"},
        {"huawei.com/Ascend910": "16", "rdma/hca": "4"},
    )
    rules = [{"apiGroups": ["leaderworkerset.x-k8s.io"], "resources": ["leaderworkersets"]}]
    return copy.deepcopy(
        {
            LWS: {},
            DOMAINS: {},
            UNITS: {},
            CLAIMS: {},
            WEBHOOKS: {"items": [{"webhooks": [{"rules": rules}]}]},
            GB200_NODES: {"items": [node(number, gb200) for number in range(6)]},
            A3_NODES: {"items": [node(number, a3) for number in range(4)]},
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a program registered: inputs by (type, logical name), secrets by name of the input's resource."""

    resources: Mapping[tuple[str, str], dict[str, Any]]
    inventory: dict[str, Any]
    asked: list[str]


class _Recorder(Mocks):
    def __init__(self) -> None:
        self.resources: dict[tuple[str, str], dict[str, Any]] = {}

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        inputs: Any = plain(args.inputs)
        assert (args.typ, args.name) not in self.resources
        self.resources[args.typ, args.name] = inputs
        return f"{args.name}-id", inputs

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        raise AssertionError(args.token)


def readable(resources: Mapping[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Every resource by type and name; programs are files of their own, and what they are told is shown."""
    maps = [each for (typ, _), each in resources.items() if typ.endswith("ConfigMap")]
    tuning = [each["metadata"]["name"] for each in maps if "agent.py" in each.get("data", {})]
    # the agent changes with every release, and the name with it
    name = next(iter(tuning), "none")
    document = json.loads(json.dumps(list(resources.items())).replace(name, "TUNING"))
    rows = []
    for (typ, resource), inputs in sorted(document):
        data = inputs.get("data", {})
        for file, text in data.items():
            data[file] = json.loads(text) if file.endswith(".json") else "..."
        rows.append({"type": typ, "name": resource, "inputs": inputs})
    return rows


def put_kubectl(folder: Path, answers: Mapping[str, Any]) -> None:
    """A kubectl that answers each path of the API with a document, or with `silent` alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    program = folder / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o755)
    for path, answer in answers.items():
        text = answer if path == "silent" else json.dumps(answer)
        (folder / path.replace("/", "_")).write_text(text + "\n")
    (folder / "asked").write_text("")


def run_key(
    stack: str, answers: Mapping[str, Any], root: Path, config: Mapping[str, str]
) -> object:
    """The same for runs that register the same."""
    said = json.dumps(answers, sort_keys=True)
    return stack, said, files_of(root), tuple(sorted(config.items()))


def run_program(stack: str, folder: Path, root: Path = PROJECT, **config: str) -> Made:
    """Run the program of a stack; kubectl must be on PATH from `folder`."""
    values = dict(default_values())
    shipped = PROJECT / "stacks" / f"Pulumi.{stack}.yaml"
    if shipped.is_file():
        values |= read_yaml(shipped)["config"]
    values |= {f"{PROJECT_NAME}:{name}": value for name, value in {**CONFIG, **config}.items()}
    exported: list[Any] = []
    recorder = _Recorder()

    def program() -> None:
        pulumi.Output.from_input(provision(root, stack, CATALOG)).apply(exported.append)

    run_mocked(recorder, stack, values, program)
    asked = (folder / "asked").read_text().splitlines()
    inventory: Any = plain(exported[0])
    return Made(resources=recorder.resources, inventory=inventory, asked=asked)
