from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.agent.condensing import texts_in
from infra.agent.pod_launch import host_of
from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from infra.rehearsal.cluster.pods import resolved
from infra.render.cluster_facts import ClusterFacts, LustreVolume, WeightsVolume
from infra.render.compile_cache import CONTAINER_FOLDER, cache_variables
from infra.render.pod_documents import pod_documents
from infra.render.pod_objects import MAX_CONFIG_BYTES, PodObject
from infra.render.reserved_ports import read_ports
from infra.spec.load import PROJECT
from infra.spec.stack import Workload
from tests.render.pods import CLUSTER, Pod, pod_behind, pods_of

CATALOG = Catalog()
LAUNCHER = texts_in(str(PROJECT / "infra" / "agent"))["pod_launch"]
IN_PODS = ("k8s-gb200-2p1d", "k8s-a3-2p1d")
# The same stacks, each as one DisaggregatedSet.
UNITS = ("unit:k8s-gb200-2p1d", "unit:k8s-a3-2p1d")
# Other stacks moved to Kubernetes by the one field: a vendor, an engine or a mode each.
MOVED = ("mi355x-tp8", "h200-2n-tp16", "b200-sglang-tp8", "a2-2n-dp4tp4", "vllm-hybrid-2n")
RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "ascend": "huawei.com/Ascend910"}


def workload_of(stack: str) -> Workload:
    return "disaggregated-set" if stack.startswith("unit:") else "leader-worker-set"


@cache
def plan_of(stack: str) -> Plan:
    workload = workload_of(stack)
    stack = stack.removeprefix("unit:")
    own = Path(__file__).parents[1] / "stacks" / f"{stack}.yaml"
    name = str(own) if own.is_file() else stack
    sets = ["platform=existing-kubernetes", f"kubernetes.workload={workload}"]
    return compile_file(name, catalog=CATALOG, sets=sets).plan


def documents(
    plan: Plan, workload: Workload = "leader-worker-set", cluster: ClusterFacts = CLUSTER
) -> tuple[PodObject, ...]:
    return pod_documents(
        plan, workload=workload, cluster=cluster, catalog=CATALOG, launcher=LAUNCHER
    )


@cache
def documents_of(stack: str) -> tuple[PodObject, ...]:
    return documents(plan_of(stack), workload_of(stack))


@cache
def pods(stack: str) -> dict[str, Pod]:
    """Pods by the plan host whose address leads to them."""
    objects = documents_of(stack)
    found = list(pods_of(objects))
    hosts = {host.name: pod_behind(host.address, found, objects) for host in plan_of(stack).hosts}
    assert len({pod.name for pod in hosts.values()}) == len(hosts) == len(found)
    return hosts


def rows_of(pod: Pod) -> list[dict[str, Any]]:
    return list(
        host_of(json.loads(pod.files["processes.json"]), dict(pod.environment))["processes"]
    )


def of_kind(stack: str, kind: str) -> dict[str, Any]:
    return {each.name: each.document for each in documents_of(stack) if each.kind == kind}


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS, *MOVED])
def test_every_pod_runs_the_plans_rows_of_its_host(stack: str) -> None:
    plan = plan_of(stack)
    assert {host.name for host in plan.hosts} == set(pods(stack))
    for host, pod in pods(stack).items():
        rows, planned = rows_of(pod), plan.on_host(host)
        assert [row["id"] for row in rows] == [process.id for process in planned]
        for row, process in zip(rows, planned, strict=True):
            argv = [resolved(word, pod.environment) for word in row["argv"]]
            assert argv == [word.replace("$(POD_IP)", pod.address) for word in process.argv]
            env = {name: resolved(value, pod.environment) for name, value in row["env"].items()}
            planned_env = {**process.env, **cache_variables(plan, process, CATALOG)}
            assert env == {
                name: value.replace("$(POD_IP)", pod.address) for name, value in planned_env.items()
            }
            assert not set(env) & set(pod.environment)


@pytest.mark.parametrize("stack", IN_PODS)
def test_a_pod_keeps_what_its_engines_compile_while_it_lives(stack: str) -> None:
    """Its containers begin anew and find it; a node holds nothing afterwards that nobody would clear."""
    for pod in pods(stack).values():
        places = {each["name"]: each["mountPath"] for each in pod.container["volumeMounts"]}
        volumes = [each for each in pod.spec["volumes"] if each["name"] == "compile-cache"]
        is_engine = pod.container["name"] == "engine"
        assert volumes == [{"name": "compile-cache", "emptyDir": {}}] * is_engine
        assert places.get("compile-cache") == (CONTAINER_FOLDER if is_engine else None)


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS, *MOVED])
def test_every_pod_claims_all_devices_of_its_host_and_masks_choose_among_them(stack: str) -> None:
    plan = plan_of(stack)
    for host in plan.hosts:
        if host.name == "router":
            assert "limits" not in pods(stack)["router"].container["resources"]
            continue
        accelerator = CATALOG.accelerator(host.accelerator)
        limits = pods(stack)[host.name].container["resources"]["limits"]
        assert limits[RESOURCES[accelerator.vendor]] == str(host.num_devices)
        for row in rows_of(pods(stack)[host.name]):
            mask = row["env"].get(accelerator.mask_variable)
            shown = range(host.num_devices) if mask is None else [int(i) for i in mask.split(",")]
            (process,) = (p for p in plan.processes if p.id == row["id"])
            assert tuple(shown) == process.devices


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS])
def test_a_pod_has_what_engines_need_of_it(stack: str) -> None:
    for host, pod in pods(stack).items():
        assert pod.spec["enableServiceLinks"] is False
        # an image whose own entry point prepares what follows keeps it
        is_kept = host != "router" and not plan_of(stack).engine.entrypoint
        started = pod.container["args" if is_kept else "command"]
        assert started[:2] == ["python3", "/etc/moe-infra/launch.py"]
        assert not {"args", "command"} <= set(pod.container)
        assert "livenessProbe" not in pod.container  # a busy engine is silent, and lives
        if host == "router":
            continue
        assert pod.container["resources"]["limits"]["rdma/hca"] == "4"
        assert "IPC_LOCK" in pod.container["securityContext"]["capabilities"]["add"]
        places = {m["name"]: m["mountPath"] for m in pod.container["volumeMounts"]}
        assert (places["weights"], places["shared-memory"]) == ("/models", "/dev/shm")
        assert pod.spec["nodeSelector"] == CLUSTER.node_selector
        start = pod.container["startupProbe"]
        assert start["failureThreshold"] * start["periodSeconds"] >= 3600


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS])
def test_pods_keep_what_their_vendor_asks_for_and_the_router_is_nobody(stack: str) -> None:
    for name, pod in pods(stack).items():
        context = pod.container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        if name == "router":
            assert "add" not in context["capabilities"]
            assert context["readOnlyRootFilesystem"] is True
            assert pod.spec["securityContext"]["runAsNonRoot"] is True
            assert pod.spec["securityContext"]["runAsUser"] == 65534
            continue
        access = CATALOG.accelerator(plan_of(stack).host(name).accelerator).container
        assert set(context["capabilities"]["add"]) == {"IPC_LOCK", *access.capabilities}


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS, *MOVED])
def test_a_pod_is_filtered_and_a_container_says_only_that_it_is_not(stack: str) -> None:
    for name, pod in pods(stack).items():
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        asked = CATALOG.accelerator(plan_of(stack).host(name).accelerator).container
        is_open = name != "router" and "seccomp=unconfined" in asked.security_options
        own = pod.container["securityContext"].get("seccompProfile")
        assert own == ({"type": "Unconfined"} if is_open else None)


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS, *MOVED])
def test_shared_memory_has_a_limit_below_what_is_reserved(stack: str) -> None:
    for name, pod in pods(stack).items():
        volumes = [each for each in pod.spec["volumes"] if each["name"] == "shared-memory"]
        limit = {"medium": "Memory", "sizeLimit": "32Gi"}
        is_engine = name != "router"
        assert volumes == [{"name": "shared-memory", "emptyDir": limit}] * is_engine
        if is_engine:  # it counts as memory of the container
            assert pod.container["resources"]["requests"]["memory"] == "64Gi"


def test_files_of_the_node_are_mounted_as_in_containers_of_hosts() -> None:
    pod = pods("k8s-a3-2p1d")["decode-1"]
    volumes = {v["name"]: v["hostPath"]["path"] for v in pod.spec["volumes"] if "hostPath" in v}
    mounts = {volumes[m["name"]] for m in pod.container["volumeMounts"] if m["name"] in volumes}
    assert {"/etc/hccn.conf", "/usr/local/Ascend/driver/lib64", "/models"} <= mounts


def test_pods_of_an_nvlink_domain_claim_it_and_stand_on_its_nodes() -> None:
    (domain,) = of_kind("k8s-gb200-2p1d", "ComputeDomain").values()
    claim = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
    for host, pod in pods("k8s-gb200-2p1d").items():
        if host == "router":
            continue
        assert pod.spec["resourceClaims"][0]["resourceClaimTemplateName"] == claim
        assert pod.container["resources"]["claims"] == [
            {"name": pod.spec["resourceClaims"][0]["name"]}
        ]
        (term,) = pod.spec["affinity"]["podAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["topologyKey"] == "nvidia.com/gpu.clique"
    assert of_kind("k8s-a3-2p1d", "ComputeDomain") == {}


def test_no_pod_of_a_group_can_be_evicted() -> None:
    stack = "k8s-gb200-2p1d"
    (budget,) = of_kind(stack, "PodDisruptionBudget").values()
    selector = budget["spec"]["selector"]["matchLabels"]
    chosen = {name for name, pod in pods(stack).items() if selector.items() <= pod.labels.items()}
    assert chosen == {host.name for host in plan_of(stack).hosts} - {"router"}
    assert budget["spec"]["minAvailable"] == len(chosen)


@pytest.mark.parametrize(
    ("stack", "host", "asked"),
    [
        ("k8s-gb200-2p1d", "prefill-0", [7100, 7101, 7102, 7103]),
        ("k8s-gb200-2p1d", "decode-1", []),  # a bare request can kill a decode rank
        ("k8s-gb200-2p1d", "router", [8000]),
        ("mi355x-tp8", "unified-0", [8000]),
        ("h200-2n-tp16", "unified-1", []),  # headless
    ],
)
def test_a_pod_is_ready_when_its_ranks_have_generated_a_token(
    stack: str, host: str, asked: list[int]
) -> None:
    rows = rows_of(pods(stack)[host])
    assert [question["port"] for row in rows for question in row["proof"]] == asked
    planned = [p for p in plan_of(stack).on_host(host) if p.kind == "engine" and p.endpoint]
    health = [question["port"] for row in rows for question in row["health"]]
    assert health == [int(str(p.endpoint).rpartition(":")[2]) for p in planned]


def test_the_router_waits_for_every_endpoint_and_runs_from_its_environment() -> None:
    pod = pods("k8s-gb200-2p1d")["router"]
    told = json.loads(pod.files["processes.json"])
    plan = plan_of("k8s-gb200-2p1d")
    engines = [p.endpoint for p in plan.processes if p.kind == "engine"]
    assert told["urls"] == [f"{url}/health" for url in engines]
    (row,) = rows_of(pod)
    assert "PATH=/opt/moe-infra/routers/vllm-router-0.1.17/bin" in row["wrapper"][2]
    assert "pip install vllm-router==0.1.17" in pod.spec["initContainers"][0]["command"][2]
    # vllm-ascend's proxy is in the engine's image
    assert "initContainers" not in pods("k8s-a3-2p1d")["router"].spec


def test_clients_find_the_router_or_the_only_endpoint() -> None:
    service = of_kind("k8s-a3-2p1d", "Service")["clients"]
    assert service["metadata"]["name"] == "k8s-a3-2p1d-router"
    assert service["spec"]["ports"][0]["port"] == 1999
    labels = of_kind("k8s-a3-2p1d", "Deployment")["router"]["spec"]["template"]["metadata"][
        "labels"
    ]
    assert service["spec"]["selector"].items() <= labels.items()
    alone = of_kind("mi355x-tp8", "Service")["clients"]["spec"]
    assert alone["selector"]["leaderworkerset.sigs.k8s.io/name"] == "mi355x-tp8-unified-0"


def test_secrets_are_references() -> None:
    plan = replace(
        plan_of("k8s-gb200-2p1d"), secrets={"hf_token": {"env": "A"}, "api_key": {"env": "B"}}
    )
    objects = documents(plan)
    by_name = {pod.name: pod for pod in pods_of(objects)}
    engine = by_name["k8s-gb200-2p1d-prefill-0-0"]
    assert engine.environment["VLLM_API_KEY"] == "secret:api_key"
    assert engine.environment["HF_TOKEN_PATH"] == "/run/secrets/hf_token"
    (row, *_) = rows_of(engine)
    assert row["proof"][0]["key_variable"] == "VLLM_API_KEY"
    (router,) = (pod for name, pod in by_name.items() if "-router-" in name)
    assert router.environment["OPENAI_API_KEY"] == "secret:api_key"


def test_another_command_is_another_map_and_so_another_pod() -> None:
    plan = plan_of("mi355x-tp8")
    (process,) = plan.processes
    other = replace(plan, processes=(replace(process, argv=(*process.argv, "--seed", "7")),))
    names = [
        {
            each.document["metadata"]["name"]  # type: ignore[index]
            for each in documents(p)
            if each.kind == "ConfigMap"
        }
        for p in (plan, plan, other)
    ]
    assert names[0] == names[1] != names[2]


def test_a_dollar_of_a_command_stays_a_dollar() -> None:
    plan = plan_of("mi355x-tp8")
    (process,) = plan.processes
    words = ("--chat-template", "a$$b $(PATH) $HOME $(POD_IP)$")
    odd = replace(plan, processes=(replace(process, argv=(*process.argv, *words)),))
    objects = documents(odd)
    (pod,) = pods_of(objects)
    (row,) = rows_of(pod)
    known = {**pod.environment, "PATH": "/bin"}
    assert resolved(row["argv"][-1], known) == f"a$$b $(PATH) $HOME {pod.address}$"


@pytest.mark.parametrize(
    ("weights", "claim"),
    [
        (WeightsVolume(kind="claim", claim="models"), "models"),
        (
            WeightsVolume(
                kind="lustre",
                lustre=LustreVolume(
                    file_system_id="fs-0123",
                    dns_name="fs-0123.fsx.example.com",
                    mount_name="abcd",
                    capacity_gib=4800,
                ),
            ),
            "k8s-gb200-2p1d-weights",
        ),
    ],
)
def test_weights_come_from_a_claim(weights: WeightsVolume, claim: str) -> None:
    cluster = replace(CLUSTER, weights=weights)
    objects = documents(plan_of("k8s-gb200-2p1d"), cluster=cluster)
    pod = next(pods_of(objects))
    volume = next(v for v in pod.spec["volumes"] if v["name"] == "weights")
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    volumes = [each.document["spec"] for each in objects if each.kind == "PersistentVolume"]
    if weights.lustre is None:
        assert volumes == []
    else:
        (spec,) = volumes
        assert isinstance(spec, dict)
        assert spec["csi"]["volumeAttributes"] == {
            "dnsname": "fs-0123.fsx.example.com",
            "mountname": "abcd",
        }


def test_huge_pages_are_asked_for_where_the_fabric_wants_them() -> None:
    cluster = replace(CLUSTER, network={"vpc.amazonaws.com/efa": 4}, huge_pages_mib=5120)
    objects = documents(plan_of("k8s-gb200-2p1d"), cluster=cluster)
    resources = next(pods_of(objects)).container["resources"]
    assert (
        resources["limits"]["hugepages-2Mi"] == resources["requests"]["hugepages-2Mi"] == "5120Mi"
    )
    assert "memory" in resources["requests"]  # the API server wants one with huge pages


def test_a_group_whose_commands_fit_no_object_is_refused() -> None:
    plan = plan_of("mi355x-tp8")
    (process,) = plan.processes
    long = replace(process, argv=(*process.argv, "x" * MAX_CONFIG_BYTES))
    with pytest.raises(StackError, match="a ConfigMap holds"):
        documents(replace(plan, processes=(long,)))


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS])
def test_every_pod_keeps_the_ports_of_its_engines_from_outgoing_connections(stack: str) -> None:
    """Of its own network namespace: the node's setting does not reach it."""
    for host in plan_of(stack).hosts:
        spec = pods(stack)[host.name].spec
        rows = spec.get("securityContext", {}).get("sysctls", [])
        kept = {row["name"]: read_ports(row["value"]) for row in rows}
        bound = {
            port
            for process in plan_of(stack).on_host(host.name)
            for bind in process.binds
            for port in range(bind.port, bind.port + bind.count)
            if port > 32767
        }
        assert bound <= kept.get("net.ipv4.ip_local_reserved_ports", set())
        assert set(kept) <= {"net.ipv4.ip_local_reserved_ports"}
        if "a3" in stack and host.name != "router":
            assert 60000 in kept["net.ipv4.ip_local_reserved_ports"]  # HCCL takes it by itself


@pytest.mark.parametrize("stack", [*IN_PODS, *UNITS])
def test_what_a_bill_goes_by_is_told_by_labels(stack: str) -> None:
    """The owner stands on objects alone: a pod's labels cannot change while it runs."""
    for each in documents_of(stack):
        metadata: Any = each.document["metadata"]
        assert metadata["labels"]["app.kubernetes.io/instance"] == plan_of(stack).stack
        assert metadata["labels"]["owner"] == "team-a"
    for host in plan_of(stack).hosts:
        labels = pods(stack)[host.name].labels
        assert labels["app.kubernetes.io/instance"] == plan_of(stack).stack
        assert labels["moe-infra/role"] == host.roles[0]
        assert "owner" not in labels
