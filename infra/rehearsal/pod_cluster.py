"""The cluster that a stack's pods are rehearsed in, and how the stack gets into it: by its own program.

In a cluster that stands, the program makes its objects with the real provider. A cluster of the stack's own is made in
the emulated cloud; what the program has put into it is created in a real control plane as it is, and the nodes there
are those of the emulated node groups.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator
from infra.errors import HostsFailed, PrerequisiteError
from infra.plan.edge import CERTIFICATE, KEYS, PRIVATE_KEY
from infra.plan.process import Plan
from infra.rehearsal.cloud.deployment import bring_up
from infra.rehearsal.cloud.emulated_clusters import objects_in, stood_up_groups
from infra.rehearsal.cloud.scratch_project import make_scratch_project
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cluster.api import Document
from infra.rehearsal.cluster.nodes import FABRIC, SIMULATED, NodeGroup
from infra.rehearsal.cluster.programs import installed_programs
from infra.rehearsal.cluster.project import make_room_project
from infra.rehearsal.cluster.room import Room, open_room
from infra.rehearsal.installed import find_pulumi
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.pulumi_project import PulumiProject, write_stack
from infra.render.pod_template import pod_access
from infra.spec.load import LoadedStack
from infra.spec.section import Secrets

# Weights on a claim would need a driver of storage; those on nodes are there, and so is what an init container copies.
STORAGE: Mapping[str, tuple[str | None, ...]] = {
    "existing-kubernetes": (None, "local", "shared-mount"),
    "aws-eks": (None, "local", "shared-mount", "s3-to-nvme"),
}
CREATE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A cluster with a stack in it.

    Args:
        project_folder: for `pulumi -C`.
        environment: of that command, complete; with it `kubectl` finds the cluster, too.
        how: what of it is real, in words.
    """

    room: Room
    project_folder: Path
    environment: Mapping[str, str]
    how: str

    @property
    def num_accelerator_nodes(self) -> int:
        """How many of its nodes have devices."""
        return sum(group.count for group in self.room.groups if group.accelerator is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCluster:
    """Where a stack's pods go.

    Args:
        plan: compiled for pods.
        lab: whose folder holds all that is written, and whose end is the cluster's.
        say: told about progress.
        resources: what ends with the rehearsal.
        secrets: values by name, made up for it.
    """

    stack: LoadedStack
    plan: Plan
    lab: Lab
    catalog: Catalog
    say: Callable[[str], None]
    resources: contextlib.ExitStack
    secrets: Mapping[str, str]

    @property
    def _variables(self) -> dict[str, str]:
        """The secrets as the operator's environment has them."""
        return {_variable(name): value for name, value in self.secrets.items()}

    def fill(self) -> Filled:
        """Start a control plane with nodes, and put the stack into it by the real command line.

        Raises:
            PrerequisiteError: the stack asks for more than nodes, or no cluster is built here.
            HostsFailed: Pulumi or the cluster refused.
        """
        spec = self.stack.spec
        rehearsed = STORAGE[self.plan.platform]
        if spec.weights.storage not in rehearsed:
            what = f"Weights on {spec.weights.storage} are not rehearsed in pods on {self.plan.platform}."
            fix = f"Use {', '.join(filter(None, rehearsed))}."
            raise PrerequisiteError(f"{self.stack.file} weights.storage", what, fix)
        installed_programs(os.environ)  # looked for before anything is made
        return self._own() if self.plan.platform == "aws-eks" else self._standing()

    def _standing(self) -> Filled:
        """In a cluster that an operator has configured."""
        room = self._open(self._standing_groups())
        project = make_room_project(
            self.stack.name,
            self._scratch,
            room,
            spec_file=self._spec_file(),
            config={**self._config, "node_selector": f"{SIMULATED}=true"},
        )
        environment = self._environment(project, room)
        bring_up(replace(project, environment=environment), self.say)
        return Filled(
            room=room,
            project_folder=project.folder,
            environment=environment,
            how="real Pulumi engine, real Kubernetes",
        )

    def _own(self) -> Filled:
        """In a cluster that the program makes first."""
        project = make_scratch_project(
            self.stack.name,
            self._scratch,
            spec_file=self._spec_file(),
            pulumi_bin=find_pulumi(),
            config=self._config,
        )
        bring_up(replace(project, environment={**project.environment, **self._variables}), self.say)
        cloud = Store(project.cloud)
        room = self._open(list(self._own_groups(cloud)))
        _create(room, objects_in(cloud))
        return Filled(
            room=room,
            project_folder=project.folder,
            environment=self._environment(project, room),
            how="real Pulumi engine, emulated EKS, its objects in a real Kubernetes",
        )

    @property
    def _scratch(self) -> Path:
        return self.lab.directory / "pulumi"

    @property
    def _config(self) -> dict[str, str]:
        """Whatever an operator has configured for a cluster of theirs."""
        return {"namespace": self.stack.name, "node_tuning": "apply"}

    def _spec_file(self) -> Path:
        own: dict[str, Any] = {
            "secrets": {
                name: {"env": _variable(name)}
                for name in self.plan.secrets
                if name in Secrets.model_fields
            }
        }
        if self.stack.spec.edge is not None:
            edge = self.stack.spec.edge.model_dump(exclude_none=True)
            has_tls = CERTIFICATE in self.plan.secrets
            places = {"certificate": CERTIFICATE, "key": PRIVATE_KEY} if has_tls else {}
            tls = {field: {"env": _variable(name)} for field, name in places.items()}
            own["edge"] = {
                **edge,
                "keys": {"env": _variable(KEYS)},
                **({"tls": tls} if tls else {}),
            }
        return write_stack(self.stack, self.lab.directory, **own)

    def _environment(self, project: PulumiProject, room: Room) -> dict[str, str]:
        kubectl = {"KUBECONFIG": str(room.plane.kubeconfig)}
        return {**project.environment, **self._variables, **kubectl}

    def _open(self, groups: Sequence[NodeGroup]) -> Room:
        """A control plane that ends with the lab."""
        room = open_room(
            self.lab.directory / "cluster",
            groups,
            has_kubelets=False,
            hand_over=self.lab.end_with_lab,
        )
        return self.resources.enter_context(room)

    def _accelerator(self) -> Accelerator:
        """The one of all nodes: stacks in pods have no other."""
        return self.catalog.accelerator(self.plan.hosts[0].accelerator)

    def _standing_groups(self) -> list[NodeGroup]:
        """As many nodes as the stack has hosts with devices, in domains as large as they are built.

        Raises:
            StackError: the catalogue does not know how pods get the accelerator.
        """
        accelerator = self._accelerator()
        has_domain = pod_access(accelerator).domain_label is not None
        count = sum(host.num_devices > 0 for host in self.plan.hosts)
        size = (
            accelerator.fabric.num_devices // accelerator.devices_per_host if has_domain else count
        )
        return [
            NodeGroup(
                name=f"{accelerator.id}-{number}",
                accelerator=accelerator,
                count=min(size, count - first),
                domain=f"rack-{number}.0" if has_domain else None,
                labels={},
                resources={FABRIC: "4"},
                taints=(),
            )
            for number, first in enumerate(range(0, count, max(size, 1)))
        ]

    def _own_groups(self, cloud: Store) -> Iterator[NodeGroup]:
        """The nodes of the emulated groups; those of one reservation share one domain, where there is one."""
        accelerator = self._accelerator()
        has_domain = pod_access(accelerator).domain_label is not None
        for group in stood_up_groups(cloud):
            has_devices = group.instance_type == accelerator.instances.get("aws")
            yield NodeGroup(
                name=group.name,
                accelerator=accelerator if has_devices else None,
                count=group.count,
                domain="ultraserver.0" if has_devices and has_domain else None,
                labels=group.labels,
                resources=group.resources,
                taints=group.taints,
            )


def _create(room: Room, documents: Sequence[Document]) -> None:
    """Create objects in a room's cluster, as they are and in their order.

    Raises:
        HostsFailed: the API server does not take one.
    """
    listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    words = [str(room.programs.bin / "kubectl"), f"--kubeconfig={room.plane.kubeconfig}"]
    words += ["create", "--validate=strict", "--filename=-"]
    try:
        done = subprocess.run(
            words,
            input=json.dumps(listed),
            capture_output=True,
            text=True,
            check=False,
            timeout=CREATE_S,
        )
    except subprocess.TimeoutExpired as error:
        what = f"It has not taken the stack's objects after {CREATE_S:.0f} s."
        raise HostsFailed("the rehearsed cluster", what, "Rehearse again.") from error
    if done.returncode != 0:
        what = f"It does not take an object of the stack: {done.stderr.strip()}"
        fix = "`fab render` writes the objects: mend what they say."
        raise HostsFailed("the rehearsed cluster", what, fix)


def _variable(name: str) -> str:
    return f"REHEARSED_{name.upper()}"
