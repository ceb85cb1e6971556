"""From `pulumi up` until all pods of a stack are scheduled: a real Kubernetes, simulated nodes, 6 and 64 hosts.

scripts/install-kubernetes-testbed
python benchmarks/kubernetes_up.py            # the table of docs/performance.md

The floor is the same stack's objects, created beforehand as one list, by the real `kubectl create`: what the cluster
itself takes, without Pulumi and our program. Times are read off the API: a pod is scheduled when it says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from infra.catalog.load import Catalog  # noqa: E402
from infra.plan.compile import compile_file  # noqa: E402
from infra.provision.cluster.config import ClusterDemand, read_cluster  # noqa: E402
from infra.provision.cluster.workload import judged_pods, workload_content  # noqa: E402
from infra.rehearsal.cluster.control_plane import CONTEXT  # noqa: E402
from infra.rehearsal.cluster.nodes import FABRIC  # noqa: E402
from infra.rehearsal.cluster.project import RoomProject, make_room_project  # noqa: E402
from infra.rehearsal.cluster.room import Room, open_room, racks  # noqa: E402
from infra.spec.load import load_stack  # noqa: E402

STACK = "k8s-gb200-2p1d"
SELECTOR = {"nvidia.com/gpu.product": "NVIDIA-GB200"}
# 16 units of two prefill replicas and one decode replica of two trays; no rack is as large, so one domain is made up.
LARGE = {
    "extends": STACK,
    "roles": {"prefill": {"replicas": 32}, "decode": {"replicas": 16, "data_parallel": 8}},
}
HEAD = (
    "| hosts | objects | floor: `kubectl create` until scheduled s | `pulumi up` until scheduled s "
    "| until it ends s | again s | `destroy` s |"
)
ROW = "| {:.0f} | {:.0f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |"
LOOK_S = 0.1
LIMIT_S = 600.0
UP = ("up", "--yes", "--skip-preview")


def main() -> None:
    """Measure both sizes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    catalog = Catalog()
    print(HEAD)
    print("|" + "---|" * len(ROW.split(" | ")))
    with tempfile.TemporaryDirectory(prefix="moe-room-") as name:
        folder = Path(name)
        large = folder / "large.yaml"
        large.write_text(yaml.safe_dump(LARGE), encoding="utf-8")
        with open_room(folder / "room", racks(catalog, 64)) as room:
            for stack, file in ((STACK, None), ("large", large)):
                runs = [
                    _run(room, folder / f"{stack}-{number}", stack, file, catalog)
                    for number in range(repeat)
                ]
                best = [min(column) for column in zip(*runs, strict=True)]
                print(ROW.format(*best), flush=True)


def _run(
    room: Room, folder: Path, stack: str, file: Path | None, catalog: Catalog
) -> tuple[float, ...]:
    """Hosts, objects, and the seconds of each step; nothing is left."""
    plan = compile_file(str(file) if file else stack, catalog=catalog).plan
    floor_s, num_objects = _floor(room, folder, stack, file, catalog)
    config = {"node_selector": ",".join(f"{key}={value}" for key, value in SELECTOR.items())}
    project = make_room_project(stack, folder, room, spec_file=file, config=config)
    _pulumi(project, "stack", "init")
    begun = time.perf_counter()
    with _start(project, *UP) as child:
        _wait(lambda: _num_scheduled(room, stack) == len(plan.hosts))
        scheduled_s = time.perf_counter() - begun
        _finish(child)
        up_s = time.perf_counter() - begun
    again_s = _timed(lambda: _pulumi(project, *UP))
    destroy_s = _timed(lambda: _pulumi(project, "destroy", "--yes", "--skip-preview"))
    return plan.num_hosts, num_objects, floor_s, scheduled_s, up_s, again_s, destroy_s


def _floor(
    room: Room, folder: Path, stack: str, file: Path | None, catalog: Catalog
) -> tuple[float, int]:
    """The same objects by kubectl: seconds until all pods are scheduled, and how many objects."""
    loaded = load_stack(str(file) if file else stack)
    values = {
        "kubernetes_context": CONTEXT,
        "node_selector": ",".join(f"{key}={value}" for key, value in SELECTOR.items()),
        "network_resource": f"{FABRIC}=4",
    }
    demand = ClusterDemand(stack=stack, weights=loaded.spec.weights, spans_hosts=True)
    _, facts = read_cluster(values, demand)
    content = workload_content(loaded, judged_pods(loaded, catalog), facts, catalog)
    documents = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stack}},
        *(each.document for each in content.objects),
    ]
    num_pods = len(content.plan.hosts)
    listed = folder.with_suffix(".json")
    listed.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    kubectl = [str(room.programs.bin / "kubectl"), f"--kubeconfig={room.plane.kubeconfig}"]
    begun = time.perf_counter()
    subprocess.run([*kubectl, "create", "-f", str(listed)], check=True, capture_output=True)
    _wait(lambda: _num_scheduled(room, stack) == num_pods)
    floor_s = time.perf_counter() - begun
    subprocess.run([*kubectl, "delete", "-f", str(listed)], check=True, capture_output=True)
    _wait(lambda: room.api.get(f"/api/v1/namespaces/{stack}") is None)
    return floor_s, len(documents)


def _num_scheduled(room: Room, namespace: str) -> int:
    return sum(
        not any(owner["kind"] == "DaemonSet" for owner in pod["metadata"]["ownerReferences"])
        and condition["type"] == "PodScheduled"
        and condition["status"] == "True"
        for pod in room.api.items(f"/api/v1/namespaces/{namespace}/pods")
        for condition in pod["status"].get("conditions") or ()
    )


def _pulumi(project: RoomProject, *words: str) -> None:
    with _start(project, *words) as child:
        _finish(child)


def _start(project: RoomProject, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["pulumi", *words, "--stack", project.stack, "--non-interactive"],
        cwd=project.folder,
        env=dict(project.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(child: subprocess.Popen[str]) -> None:
    said, _ = child.communicate()
    if child.returncode != 0:
        raise AssertionError(said)


def _timed(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _wait(is_so: Callable[[], bool]) -> None:
    until = time.perf_counter() + LIMIT_S
    while not is_so():
        if time.perf_counter() > until:
            raise AssertionError(f"not so after {LIMIT_S} s")
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
