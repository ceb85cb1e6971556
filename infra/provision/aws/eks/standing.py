"""What of a stack's cluster stands already, and what of it stays as it is. What nobody may ask about stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pulumi_aws import eks

from infra.provision.asking import Asking
from infra.provision.aws.eks.config import EksFacts
from infra.provision.aws.eks.rules import owner_problem

KEY, _EXAMPLE = "moe-infra:kubernetes_version", "1.35"
# Its versions are those of Kubernetes: v1.35.0-eksbuild.2 belongs to 1.35.
_PROXY = "kube-proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingGroup:
    """A node group.

    Args:
        version: of Kubernetes, that its nodes were last brought to.
        num_nodes: that it is to have.
        template_id: of its launch template, "" without one.
        subnet_ids: where its nodes stand.
    """

    version: str
    num_nodes: int
    template_id: str
    subnet_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingCluster:
    """The stack's cluster.

    Args:
        version: of Kubernetes; "" where none stands, None when nobody may ask.
        addons: versions by add-on; without those that are not there, or that nobody may ask about.
        groups: by the name that the program gives them; as above.
    """

    version: str | None
    addons: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, StandingGroup] = field(default_factory=dict)

    def settle(self, facts: EksFacts) -> EksFacts:
        """The facts at the version that stands, where the operator names none: no catalogue upgrades a cluster."""
        if facts.names_version or not self.version:
            return facts
        return replace(facts, kubernetes_version=self.version)

    def keeps_kubernetes(self, facts: EksFacts) -> bool:
        """Whether the control plane's version is left alone, as nobody knows it and nobody names one."""
        return self.version is None and not facts.names_version

    def has_nodes(self, group: str) -> bool:
        """Whether nodes of a group run, or nobody may ask."""
        standing = self.groups.get(group)
        return self.version is None or (standing is not None and standing.num_nodes > 0)

    def keeps_addon(self, name: str, wanted: str) -> bool:
        """Whether an add-on stays at its version, for a Kubernetes version that is wanted.

        Most versions do not say which Kubernetes they were taken for. They stay once kube-proxy and all nodes are at
        the wanted one; before that an upgrade is under way, or ended in the middle.
        """
        if self.version is None or (self.version and name not in self.addons):
            return True
        proxy = self.addons.get(_PROXY)
        return self.version == wanted and (
            (proxy is None or proxy.startswith(f"v{wanted}."))
            and (name == _PROXY or all(each.version == wanted for each in self.groups.values()))
        )

    def keeps_release(self, group: str, wanted: str) -> bool:
        """Whether the nodes of a group keep the release of their image, for a Kubernetes version that is wanted."""
        if self.version is None:
            return True
        standing = self.groups.get(group)
        return self.version == wanted and (standing is None or standing.version == wanted)


def find_standing(asking: Asking, addons: Iterable[str]) -> StandingCluster:
    """What stands in the account; a cluster of somebody else's is a problem.

    Args:
        asking: with the stack, whose cluster has its name.
        addons: names of those that the stack uses.
    """
    stack = asking.stack
    names = asking.ask(
        KEY, "answer on which clusters stand", _EXAMPLE, lambda: eks.get_clusters().names
    )
    if names is None:
        return StandingCluster(version=None)
    if stack not in names:
        return StandingCluster(version="")
    found = asking.ask(
        KEY, f"answer on cluster {stack}", _EXAMPLE, lambda: eks.get_cluster(name=stack)
    )
    if found is None:
        return StandingCluster(version=None)
    problem = owner_problem(found.tags or {}, stack)
    if problem is not None:
        asking.note(problem)
        return StandingCluster(version=str(found.version))
    versions = {name: _addon_version(stack, name) for name in addons}
    return StandingCluster(
        version=str(found.version),
        addons={name: version for name, version in versions.items() if version is not None},
        groups=_find_groups(asking),
    )


def _addon_version(stack: str, name: str) -> str | None:
    """The version of an add-on; None when it is not there yet, or nobody may ask."""
    try:
        return str(eks.get_addon(cluster_name=stack, addon_name=name).addon_version)
    except Exception:  # noqa: BLE001 - the SDK raises a bare Exception; either way there is no version to judge by
        return None


def _find_groups(asking: Asking) -> dict[str, StandingGroup]:
    stack = asking.stack
    names = asking.ask(
        KEY,
        f"answer on the node groups of cluster {stack}",
        _EXAMPLE,
        lambda: eks.get_node_groups(cluster_name=stack).names,
    )
    groups = {}
    for name in names or ():
        found = asking.ask(
            KEY,
            f"answer on node group {name}",
            _EXAMPLE,
            lambda name=name: eks.get_node_group(cluster_name=stack, node_group_name=name),  # type: ignore[misc]
        )
        if found is not None:
            # the engine puts seven digits behind the name that the program gives
            groups[name.rpartition("-")[0]] = StandingGroup(
                version=str(found.version),
                num_nodes=sum(int(each.desired_size) for each in found.scaling_configs),
                template_id=next((str(each.id) for each in found.launch_templates), ""),
                subnet_ids=tuple(found.subnet_ids),
            )
    return groups
