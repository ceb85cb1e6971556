"""What the program of a stack on EKS puts into its cluster, put into one that stands: without account and charts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pulumi

from infra.catalog.eks import read_eks_parts
from infra.catalog.load import Catalog
from infra.provision.aws.account import Demand, read_account, read_values
from infra.provision.aws.eks.config import read_eks, read_eks_values
from infra.provision.aws.eks.pods import pod_facts, weights_volume
from infra.provision.aws.eks_stack import late_texts
from infra.provision.aws.weight_store import choose_store
from infra.provision.cluster.workload import ClusterApi, Workload, judged_pods, workload_content
from infra.provision.naming import Tags
from infra.rehearsal.cluster.control_plane import CONTEXT
from infra.spec.load import load_stack

SOURCE = "s3://weights-of-the-stack/"
# Where the cluster is: of no production program's configuration.
KUBECONFIG = "room:kubeconfig"


def main() -> None:
    """Register the workload, as `eks_stack.make` does once cluster, nodes and software are there."""
    name, catalog = pulumi.get_stack(), Catalog()
    stack = load_stack(str(Path(pulumi.get_root_directory()) / "stacks" / f"{name}.yaml"))
    plan = judged_pods(stack, catalog)
    demand = Demand(
        stack=name,
        capacity="capacity-block",
        num_hosts=plan.num_hosts,
        num_addresses=plan.num_hosts,
        uses_lustre=False,
        wants_load_balancer=False,
        has_login=False,
    )
    account = read_account(read_values(), demand)
    store = choose_store(stack.spec.weights, account, Tags(stack=name, further=account.tags))
    own = read_eks(read_eks_values(), name)
    weights = weights_volume(store.storage, store.path, lustre_gib=0, parts=read_eks_parts())
    facts = pod_facts(
        weights,
        namespace=own.namespace,
        node_tuning=own.node_tuning,
        labels=account.tags,
        num_efa=0,
    )
    made = SimpleNamespace(place={"source": SOURCE}, lustre=None)
    late = late_texts(made)  # type: ignore[arg-type]  # what it asks of a weight store
    bag, key = KUBECONFIG.split(":")
    arguments = {"kubeconfig": pulumi.Config(bag).require(key), "context": CONTEXT}
    content = workload_content(stack, plan, facts, catalog, late=late)
    Workload(name, content, ClusterApi(provider=None, arguments=arguments))
