from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.errors import InfraError, PrerequisiteError, ProblemsFound, StackError
from infra.spec.load import PROJECT, load_stack, stack_names
from tests.provision.kubernetes_program import (
    A3_NODES,
    CLAIMS,
    DOMAINS,
    GB200_NODES,
    LWS,
    UNITS,
    WEBHOOKS,
    Made,
    put_kubectl,
    readable,
    run_program,
    whole_cluster,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kubernetes"
GB200, A3 = "k8s-gb200-2p1d", "k8s-a3-2p1d"
# The stack on GB200 as one DisaggregatedSet.
UNIT, IN_ONE = "k8s-gb200-2p1d-unit", {"kubernetes": {"workload": "disaggregated-set"}}
NODES = {"node_selector": "nvidia.com/gpu.product=NVIDIA-GB200"}
PARTS = ("account", "right", "grant", "settings")
Cluster = Callable[..., Made]


@pytest.fixture
def provisioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Run the program of a stack in a cluster that answers so; keyword arguments are configuration values."""
    folder = tmp_path / "bin"

    def run(stack: str, answers: dict[str, Any] | None = None, **more: Any) -> Made:
        put_kubectl(folder, whole_cluster() if answers is None else answers)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return run_program(stack, folder, **more)

    return run


def stack_file(tmp_path: Path, **fields: Any) -> Path:
    """A project with one stack of its own, `mine`, that extends the one on GB200."""
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "stacks" / "mine.yaml").write_text(yaml.safe_dump({"extends": GB200, **fields}))
    return folder


def of_kind(made: Made, kind: str) -> dict[str, Any]:
    return {
        name: inputs for (typ, name), inputs in made.resources.items() if typ.endswith(f":{kind}")
    }


@pytest.mark.parametrize("golden", [GB200, A3, UNIT])
def test_the_objects_of_a_stack_are_those_of_its_golden_file(
    provisioned: Cluster, tmp_path: Path, golden: str, update_golden: bool
) -> None:
    own = {"root": stack_file(tmp_path, **IN_ONE), **NODES} if golden == UNIT else {}
    made = provisioned("mine" if own else golden, **own)
    text = json.dumps(readable(made.resources), indent=1, sort_keys=True) + "\n"
    path = GOLDEN / f"{golden}.json"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "pytest --update-golden writes it anew"


def test_every_golden_file_is_of_a_stack() -> None:
    of_eks = {name for name in stack_names() if load_stack(name).spec.platform == "aws-eks"}
    assert {path.stem for path in GOLDEN.glob("*.json")} == {GB200, A3, UNIT, *of_eks}


def test_a_replica_is_one_set_with_a_pod_per_host(provisioned: Cluster) -> None:
    sets = of_kind(provisioned(GB200), "LeaderWorkerSet")
    assert set(sets) == {"prefill-0", "prefill-1", "decode-0"}
    assert sets["decode-0"]["spec"]["leaderWorkerTemplate"]["size"] == 4
    assert sets["decode-0"]["metadata"]["namespace"] == GB200


def test_the_inventory_names_pods_and_the_service(provisioned: Cluster) -> None:
    inventory = provisioned(A3, namespace="serving").inventory
    assert inventory["platform"] == "existing-kubernetes"
    assert inventory["hosts"][3]["address"] == "k8s-a3-2p1d-decode-0-0-1.k8s-a3-2p1d-decode-0"
    assert inventory["router"]["url"] == "http://k8s-a3-2p1d-router.serving:1999"


def test_the_chosen_context_and_kubeconfig_are_used_everywhere(provisioned: Cluster) -> None:
    made = provisioned(GB200, kubeconfig="/etc/kubernetes/rack.yaml")
    (provider,) = of_kind(made, "kubernetes").values()
    assert (provider["context"], provider["kubeconfig"]) == ("rack-1", "/etc/kubernetes/rack.yaml")
    assert made.asked
    assert all("--context=rack-1" in line for line in made.asked)
    assert all("--kubeconfig=/etc/kubernetes/rack.yaml" in line for line in made.asked)


def test_nobody_waits_for_engines_to_load(provisioned: Cluster) -> None:
    made = provisioned(GB200)
    for kind in ("Deployment", "Service"):
        for inputs in of_kind(made, kind).values():
            assert inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_secrets_go_into_one_object(
    provisioned: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stack_file(tmp_path, secrets={"api_key": {"env": "MY_KEY"}})
    with pytest.raises(StackError, match="the variable MY_KEY, which is empty"):
        provisioned("mine", root=root, node_selector="nvidia.com/gpu.product=NVIDIA-GB200")
    monkeypatch.setenv("MY_KEY", "sesame")
    made = provisioned("mine", root=root, node_selector="nvidia.com/gpu.product=NVIDIA-GB200")
    (secret,) = of_kind(made, "Secret").values()
    assert secret["stringData"] == {"api_key": "sesame"}
    others = {key: value for key, value in made.resources.items() if key[1] != "secrets"}
    assert "sesame" not in str(others)


def lacking(*paths: str) -> dict[str, Any]:
    answers = whole_cluster()
    for path in paths:
        del answers[path]
    return answers


def changed(path: str, document: Any) -> dict[str, Any]:
    return {**whole_cluster(), path: document}


def with_node(path: str, number: int, **status: Any) -> dict[str, Any]:
    answers = whole_cluster()
    answers[path]["items"][number]["status"].update(status)
    return answers


def cordoned(path: str, number: int) -> dict[str, Any]:
    answers = whole_cluster()
    answers[path]["items"][number]["spec"]["unschedulable"] = True
    return answers


def split_domain() -> dict[str, Any]:
    answers = whole_cluster()
    for number in (4, 5):
        answers[GB200_NODES]["items"][number]["metadata"]["labels"] = {
            "nvidia.com/gpu.clique": "other.0"
        }
    return answers


def tainted(path: str, number: int, **taint: str) -> dict[str, Any]:
    answers = whole_cluster()
    answers[path]["items"][number]["spec"]["taints"] = [taint]
    return answers


def two_racks(second: int) -> dict[str, Any]:
    """Six nodes of one rack, and so many of another."""
    answers = whole_cluster()
    for number in range(6, 6 + second):
        more = copy.deepcopy(answers[GB200_NODES]["items"][0])
        more["metadata"] = {"name": f"node-{number}", "labels": {"nvidia.com/gpu.clique": "b.1"}}
        answers[GB200_NODES]["items"].append(more)
    return answers


def namespace_of(stack: str, *, is_own: bool, is_lent: bool) -> dict[str, Any]:
    own = {"app.kubernetes.io/instance": stack, "app.kubernetes.io/managed-by": "moe-infra"}
    lent = {"moe-infra/lent-to": stack}
    return {"metadata": {"labels": {**(own if is_own else {}), **(lent if is_lent else {})}}}


def enforcing(stack: str, level: str) -> dict[str, Any]:
    labels = {"moe-infra/lent-to": stack, "pod-security.kubernetes.io/enforce": level}
    return {"metadata": {"labels": labels}}


OTHERS = {"metadata": {"labels": {"app.kubernetes.io/instance": "a-shop"}}}
INSTALL = "kubectl apply --server-side -f https://github.com/kubernetes-sigs/lws/releases"


@pytest.mark.parametrize(
    ("stack", "answers", "what", "fix"),
    [
        (A3, lacking(LWS), "knows no LeaderWorkerSet", INSTALL),
        (A3, changed(WEBHOOKS, {"items": []}), "none of its webhooks is there", INSTALL),
        (GB200, lacking(DOMAINS), "knows no ComputeDomain", "helm install"),
        (GB200, lacking(CLAIMS), "knows no resource.k8s.io", "1.34"),
        (
            GB200,
            with_node(GB200_NODES, 2, allocatable={"nvidia.com/gpu": "2", "rdma/hca": "4"}),
            r"needs 6 nodes with 4 nvidia.com/gpu and 4 rdma/hca each; .* 5 .*\(node-2 has 2 nvidia",
            "pulumi config set node_selector",
        ),
        (
            A3,
            with_node(A3_NODES, 0, allocatable={"huawei.com/Ascend910": "16"}),
            "node-0 has 0 rdma/hca",
            "device plugin",
        ),
        (A3, cordoned(A3_NODES, 3), r"3 have that \(node-3 is cordoned or not ready\)", "uncordon"),
        (A3, changed(A3_NODES, {"items": []}), "of the 0 with accelerator=huawei-Ascend910", "Add"),
        (GB200, split_domain(), "the largest of 2 has 4", "one rack"),
        (
            GB200,
            two_racks(2),
            r"fewer than the 6 nodes that the stack needs \(b.1 has 2\)",
            "node_selector nvidia.com/gpu.product=NVIDIA-GB200,nvidia.com/gpu.clique=rack.0 --stack",
        ),
        (
            GB200,
            tainted(GB200_NODES, 1, key="kubernetes.io/arch", value="arm64", effect="NoSchedule"),
            r"5 have that \(node-1 has the taint kubernetes.io/arch=arm64:NoSchedule\)",
            "untaint",
        ),
        (
            A3,
            tainted(A3_NODES, 1, key="huawei.com/Ascend910", effect="NoExecute"),
            r"node-1 has the taint huawei.com/Ascend910:NoExecute",
            "untaint",
        ),
        (
            A3,
            changed(f"/api/v1/namespaces/{A3}", namespace_of(A3, is_own=True, is_lent=True)),
            "was made for this stack and is lent to it",
            f"kubectl label namespace {A3} moe-infra/lent-to-",
        ),
        (
            A3,
            changed(
                f"/api/v1/namespaces/{A3}",
                {"metadata": {"deletionTimestamp": "2026-11-22T06:00:00Z"}},
            ),
            "is being deleted",
            f"kubectl get namespace {A3}",
        ),
        (
            A3,
            changed(f"/api/v1/namespaces/{A3}", enforcing(A3, "baseline")),
            "enforces the pod security standard baseline",
            f"kubectl label --overwrite namespace {A3} pod-security.kubernetes.io/enforce=privileged",
        ),
        (
            A3,
            changed(f"/api/v1/namespaces/{A3}", OTHERS),
            "was not made for this stack: it belongs to a-shop",
            f"kubectl label namespace {A3} moe-infra/lent-to={A3}",
        ),
    ],
)  # fmt: skip
def test_a_cluster_that_cannot_take_the_stack_is_refused_with_the_fix(
    provisioned: Cluster, stack: str, answers: dict[str, Any], what: str, fix: str
) -> None:
    with pytest.raises(ProblemsFound, match=what) as refused:
        provisioned(stack, answers)
    (problem,) = refused.value.problems
    assert fix in problem.fix


@pytest.mark.parametrize(
    "answers",
    [
        two_racks(6),
        tainted(GB200_NODES, 1, key="nvidia.com/gpu", value="present", effect="NoSchedule"),
        tainted(GB200_NODES, 1, key="example.com/slow", effect="PreferNoSchedule"),
    ],
)
def test_what_stops_no_pod_is_not_refused(provisioned: Cluster, answers: dict[str, Any]) -> None:
    assert len(of_kind(provisioned(GB200, answers), "LeaderWorkerSet")) == 3


def test_what_the_rules_refuse_is_refused_before_the_cluster_is_asked(
    provisioned: Cluster, tmp_path: Path
) -> None:
    root = stack_file(tmp_path, defaults={"max_model_len": 2000000})
    with pytest.raises(ProblemsFound, match=r"max_model_len.*2000000") as refused:
        provisioned("mine", {"silent": "nobody is there"}, root=root, node_selector="a=b")
    assert all(problem.blocks for problem in refused.value.problems)


def test_what_the_rules_warn_of_is_logged(
    provisioned: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    root = stack_file(tmp_path, defaults={"env": {"VLLM_NOBODY_READS_THIS": "1"}})
    provisioned("mine", root=root, node_selector="nvidia.com/gpu.product=NVIDIA-GB200")
    assert any("VLLM_NOBODY_READS_THIS" in each for each in said)


def test_a_unit_wants_its_own_definition(provisioned: Cluster, tmp_path: Path) -> None:
    root = stack_file(tmp_path, **IN_ONE)
    with pytest.raises(ProblemsFound, match="knows no DisaggregatedSet") as refused:
        provisioned("mine", lacking(UNITS), root=root, **NODES)
    (problem,) = refused.value.problems
    assert INSTALL in problem.fix
    assert "kubernetes.workload: leader-worker-set" in problem.fix


def test_a_unit_is_asked_through_its_router(provisioned: Cluster, tmp_path: Path) -> None:
    made = provisioned("mine", root=stack_file(tmp_path, **IN_ONE), **NODES)
    assert made.inventory["router"]["url"] == "http://mine-router.mine:8000"
    assert made.inventory["hosts"][2]["address"] == "mine-decode-0"


def test_kubelets_that_may_forbid_reserved_ports_are_warned_of(
    provisioned: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    provisioned(A3, with_node(A3_NODES, 1, nodeInfo={"kubeletVersion": "v1.26.15-r3"}))
    (told,) = [each for each in said if "ip_local_reserved_ports" in each]
    assert "node-1 has v1.26.15-r3" in told
    assert "--allowed-unsafe-sysctls=net.ipv4.ip_local_reserved_ports" in told
    provisioned(GB200, with_node(GB200_NODES, 1, nodeInfo={"kubeletVersion": "v1.26.15-r3"}))
    assert len([each for each in said if "ip_local_reserved_ports" in each]) == 1  # binds none


def test_nodes_without_the_pages_of_efa_are_refused(provisioned: Cluster) -> None:
    answers = whole_cluster()
    for node in answers[GB200_NODES]["items"]:
        pages = {"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "10256Mi"}
        node["status"]["allocatable"] = {"nvidia.com/gpu": "4", **pages}
    efa = {"network_resource": "vpc.amazonaws.com/efa=4"}
    assert of_kind(provisioned(GB200, answers, **efa), "LeaderWorkerSet")
    answers[GB200_NODES]["items"][2]["status"]["allocatable"]["hugepages-2Mi"] = "1Gi"
    with pytest.raises(ProblemsFound, match="node-2 has 1Gi hugepages-2Mi of 5120Mi"):
        provisioned(GB200, answers, **efa)


def test_all_that_is_wrong_is_told_at_once(provisioned: Cluster) -> None:
    with pytest.raises(ProblemsFound) as refused:
        provisioned(GB200, lacking(LWS, DOMAINS, GB200_NODES))
    assert len(refused.value.problems) == 3


def test_nothing_is_registered_in_a_cluster_that_is_refused(
    provisioned: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.provision.kubernetes_program._Recorder.new_resource", None)
    with pytest.raises(ProblemsFound):
        provisioned(A3, lacking(LWS))


@pytest.mark.parametrize(
    "said", ["The connection to the server 192.0.2.1:6443 was refused", "error: no context exists with the name"]
)  # fmt: skip
def test_a_kubeconfig_that_does_not_answer_is_one_message(provisioned: Cluster, said: str) -> None:
    with pytest.raises(PrerequisiteError, match=said) as refused:
        provisioned(A3, {"silent": said})
    assert "kubectl --context=rack-1 get nodes" in refused.value.fix


def test_a_machine_without_kubectl_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_kubectl(tmp_path / "bin", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="no kubectl"):
        run_program(A3, tmp_path / "bin")


def test_a_namespace_of_ours_is_taken_up_again(provisioned: Cluster) -> None:
    namespaces = of_kind(provisioned(A3), "Namespace")
    ours = changed(f"/api/v1/namespaces/{A3}", {"metadata": namespaces["namespace"]["metadata"]})
    assert of_kind(provisioned(A3, ours), "Namespace") == namespaces


def test_a_namespace_that_is_lent_is_used_and_never_made(provisioned: Cluster) -> None:
    lent = changed("/api/v1/namespaces/team", {"metadata": {"labels": {"moe-infra/lent-to": A3}}})
    made = provisioned(A3, lent, namespace="team")
    assert of_kind(made, "Namespace") == {}
    assert {i["metadata"]["namespace"] for i in of_kind(made, "LeaderWorkerSet").values()} == {
        "team"
    }


def test_weights_in_a_claim_want_the_claim(provisioned: Cluster, tmp_path: Path) -> None:
    root = stack_file(tmp_path, weights={"storage": "pvc"})
    facts = {"node_selector": "nvidia.com/gpu.product=NVIDIA-GB200", "root": root}
    with pytest.raises(ProblemsFound, match="the claim with the weights"):
        provisioned("mine", **facts)
    namespace = "/api/v1/namespaces/mine"
    lent = changed(namespace, namespace_of("mine", is_own=False, is_lent=True))
    with pytest.raises(ProblemsFound, match="has no claim models"):
        provisioned("mine", lent, weights_claim="models", **facts)
    lent[f"{namespace}/persistentvolumeclaims/models"] = {}
    made = provisioned("mine", lent, weights_claim="models", **facts)
    assert of_kind(made, "LeaderWorkerSet")
    assert of_kind(made, "Namespace") == {}


@pytest.mark.parametrize("is_there", [False, True])
def test_weights_in_a_claim_never_lie_in_a_namespace_that_goes_with_the_stack(
    provisioned: Cluster, tmp_path: Path, is_there: bool
) -> None:
    answers = whole_cluster()
    if is_there:
        own = namespace_of("mine", is_own=True, is_lent=False)
        answers |= {"/api/v1/namespaces/mine": own}
        answers |= {"/api/v1/namespaces/mine/persistentvolumeclaims/models": {}}
    with pytest.raises(ProblemsFound, match="goes with it, and so would the claim") as refused:
        provisioned(
            "mine",
            answers,
            root=stack_file(tmp_path, weights={"storage": "pvc"}),
            node_selector="nvidia.com/gpu.product=NVIDIA-GB200",
            weights_claim="models",
        )
    (problem,) = refused.value.problems
    assert "lent to the stack by the label moe-infra/lent-to=mine" in problem.fix


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kubernetes_context", ""),
        ("node_selector", ""),
        ("node_selector", "no-equals"),
        ("network_resource", ""),
        ("network_resource", "rdma/hca"),
        ("network_resource", "rdma/hca=0"),
        ("namespace", "Not_A_Name"),
        ("node_tuning", "yes"),
        ("owner", "Team A"),
        ("cost_center", "-7"),
    ],
)
def test_a_fact_that_is_missing_or_wrong_names_the_command(
    provisioned: Cluster, key: str, value: str
) -> None:
    with pytest.raises(ProblemsFound) as refused:
        provisioned(A3, **{key: value})
    (problem,) = refused.value.problems
    assert problem.field == f"moe-infra:{key}"
    assert problem.fix.startswith(f"Type: pulumi config set {key} ")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"ingress": "internal-load-balancer"}, "has its own way in"),
        ({"weights": {"storage": "efs"}}, "efs has no form in pods"),
    ],
)
def test_what_has_no_form_in_pods_is_refused(
    provisioned: Cluster, tmp_path: Path, fields: dict[str, Any], what: str
) -> None:
    root = stack_file(tmp_path, **fields)
    with pytest.raises(InfraError, match=what):
        provisioned("mine", root=root, node_selector="a=b")


def test_a_stack_moves_to_kubernetes_by_one_field(provisioned: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    document = {"extends": "a3-2p1d", "platform": "existing-kubernetes"}
    (folder / "stacks" / "mine.yaml").write_text(yaml.safe_dump(document))
    made = provisioned("mine", root=folder, node_selector="accelerator=huawei-Ascend910")
    assert set(of_kind(made, "LeaderWorkerSet")) == {"prefill-0", "prefill-1", "decode-0"}
    shipped = yaml.safe_load((PROJECT / "stacks" / f"{A3}.yaml").read_text())
    assert {key for key in shipped if key not in ("summary", "extends")} == {"platform"}


def test_nodes_are_tuned_before_engines_start_and_taken_back_after_they_end(
    provisioned: Cluster,
) -> None:
    """Pulumi makes things in the order of what they depend on, and unmakes them the other way round."""
    made = provisioned(GB200)
    (daemon_set,) = of_kind(made, "DaemonSet").values()
    assert daemon_set["metadata"]["annotations"] == {
        "pulumi.com/waitFor": "jsonpath={.metadata.uid}"
    }
    order = [name for _, name in made.resources]
    assert order.index("node-tuning") < order.index("prefill-0")
    assert all(order.index(f"node-tuning-{part}") < order.index("node-tuning") for part in PARTS)


def test_nodes_are_left_alone_where_the_operator_says_so(provisioned: Cluster) -> None:
    made = provisioned(GB200, node_tuning="none")
    assert not [name for _, name in made.resources if name.startswith("node-tuning")]


def test_an_explicit_rollback_asks_for_what_was_found(provisioned: Cluster) -> None:
    made = provisioned(GB200, node_tuning="rollback")
    told = json.loads(of_kind(made, "ConfigMap")["node-tuning-settings"]["data"]["tuning.json"])
    assert (told["request"]["mode"], told["request"]["items"]) == ("rollback", [])


def test_a_namespace_that_is_made_admits_what_lies_in_it(provisioned: Cluster) -> None:
    (namespace,) = of_kind(provisioned(GB200, owner="team-a"), "Namespace").values()
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["owner"] == "team-a"
