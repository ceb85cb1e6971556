"""The prefill/decode unit as one DisaggregatedSet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.render.pods import REVISION
from tests.render.test_pod_documents import UNITS, documents_of, of_kind, plan_of, pods

GB200, A3 = UNITS


@pytest.mark.parametrize("stack", UNITS)
def test_it_is_one_object_with_a_role_for_each_of_the_stack(stack: str) -> None:
    assert of_kind(stack, "LeaderWorkerSet") == {}
    (unit,) = of_kind(stack, "DisaggregatedSet").values()
    shape = {
        role["name"]: (role["spec"]["replicas"], role["spec"]["leaderWorkerTemplate"]["size"])
        for role in unit["spec"]["roles"]
    }
    decode_hosts = sum(host.roles == ("decode",) for host in plan_of(stack).hosts)
    assert shape == {"prefill": (2, 1), "decode": (1, decode_hosts)}


@pytest.mark.parametrize("stack", UNITS)
def test_all_of_it_is_replaced_at_once(stack: str) -> None:
    (unit,) = of_kind(stack, "DisaggregatedSet").values()
    for role in unit["spec"]["roles"]:
        rollout = role["spec"]["rolloutStrategy"]
        assert rollout["type"] == "RollingUpdate"  # nothing else is accepted, nor a partition
        counts = {"maxUnavailable": role["spec"]["replicas"], "maxSurge": 0}
        assert rollout["rollingUpdateConfiguration"] == counts


@pytest.mark.parametrize("stack", UNITS)
def test_nothing_depends_on_a_revision(stack: str) -> None:
    """The names of its sets and pods hold one: commands, services and budgets must do without."""
    text = json.dumps([each.document for each in documents_of(stack)])
    assert REVISION not in text
    sets = {pod.name for pod in pods(stack).values() if "router" not in pod.name}
    assert all(REVISION in name for name in sets)
    keys = {key for each in of_kind(stack, "Service").values() for key in each["spec"]["selector"]}
    assert "leaderworkerset.sigs.k8s.io/name" not in keys
    (budget,) = of_kind(stack, "PodDisruptionBudget").values()
    assert budget["spec"]["minAvailable"] == len(plan_of(stack).hosts) - 1
    selector = budget["spec"]["selector"]["matchLabels"]
    chosen = [name for name, pod in pods(stack).items() if selector.items() <= pod.labels.items()]
    assert sorted(chosen) == sorted(h.name for h in plan_of(stack).hosts if h.name != "router")


def test_peers_are_asked_for_before_they_are_ready() -> None:
    services = of_kind(GB200, "Service")
    for host in plan_of(GB200).hosts:
        if host.name != "router":
            spec = services[host.name]["spec"]
            assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)


def test_a_pod_waits_until_names_lead_to_its_own_revision() -> None:
    told = json.loads(pods(GB200)["decode-2"].files["processes.json"])
    (host,) = (host for host in told["hosts"] if host["name"] == "decode-2")
    assert host["awaits"] == [
        {"name": f"k8s-gb200-2p1d-decode-{index}", "worker": index} for index in range(4)
    ]


def test_one_unit_has_its_nvlink_domain_to_itself() -> None:
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    for name, pod in pods(GB200).items():
        if name == "router":
            continue
        affinity: Any = pod.spec["affinity"]
        (together,) = affinity["podAffinity"][rule]
        assert together["topologyKey"] == "nvidia.com/gpu.clique"
        assert together["labelSelector"]["matchLabels"].items() <= pod.labels.items()
        (apart,) = affinity["podAntiAffinity"][rule]
        assert apart["topologyKey"] == "nvidia.com/gpu.clique"
        assert apart["namespaceSelector"] == {}  # of every namespace
        selector = apart["labelSelector"]
        assert selector["matchLabels"].items() <= pod.labels.items()
        (other,) = selector["matchExpressions"]
        assert other == {
            "key": "app.kubernetes.io/instance",
            "operator": "NotIn",
            "values": [pod.labels["app.kubernetes.io/instance"]],
        }
    assert "affinity" not in pods(A3)["decode-0"].spec
