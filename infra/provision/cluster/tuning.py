"""What tunes the nodes of a stack in pods: the agent that `fab tune-hosts` carries, as a DaemonSet."""

from __future__ import annotations

from infra.agent.bundle import needed, program
from infra.agent.condensing import condensed, texts_in
from infra.agent.state.parts import all_parts
from infra.catalog.load import Catalog
from infra.plan.process import Plan
from infra.render.cluster_facts import ClusterFacts
from infra.render.host_state import node_state
from infra.render.node_tuning import NodeTuning, tuning_documents
from infra.render.pod_objects import PodObject
from infra.render.pod_template import pod_access
from infra.render.wanted_tuning import Tuning
from infra.spec.load import PROJECT, LoadedStack


def tuning_objects(
    stack: LoadedStack, plan: Plan, facts: ClusterFacts, catalog: Catalog
) -> tuple[PodObject, ...]:
    """The objects that tune the stack's nodes, or bring back what was found there; () when nodes are left alone.

    Raises:
        StackError: the stack switches on an item that its profile lacks.
    """
    if facts.node_tuning == "none":
        return ()
    texts = texts_in(str(PROJECT / "infra" / "agent"))
    modules = needed(texts, ["conversation", "state.operation", *all_parts()])
    wanted = Tuning(profile=catalog.tuning(plan.tuning), enable=stack.spec.enabled_tuning)
    tuning = NodeTuning(
        state=node_state(plan.stack, wanted),
        mode=facts.node_tuning,
        image=facts.node_tuning_image or catalog.plain_image("python"),
        access=pod_access(catalog.accelerator(plan.hosts[0].accelerator)),
        program=texts["node_tuning"],
        agent=program({name: condensed(text) for name, text in modules.items()}),
    )
    return tuning_documents(tuning, facts)
