"""What a stack registers in a cluster that somebody else runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infra.catalog.load import Catalog
from infra.errors import ProblemsFound, StackError
from infra.plan.compile import compile_stack
from infra.spec.load import PROJECT, load_stack, stack_names
from infra.spec.plain_yaml import parse_yaml
from infra.tasks.manifests import manifests_of
from tests.provision.cluster.answers import (
    A3,
    GB200,
    IN_ONE,
    NODES,
    Cluster,
    of_kind,
    stack_file,
)
from tests.provision.kubernetes_program import (
    readable,
)

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "kubernetes"
UNIT = "k8s-gb200-2p1d-unit"
PARTS = ("account", "right", "grant", "settings")


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


@pytest.mark.parametrize("stack", [GB200, A3])
def test_the_rendered_manifests_are_the_objects_that_are_registered(
    provisioned: Cluster, stack: str, catalog: Catalog
) -> None:
    """What a reviewer reads, and what the program makes."""
    made = provisioned(stack)
    registered = []
    for (kind, _), inputs in made.resources.items():
        if kind.startswith("kubernetes:"):
            metadata = dict(inputs["metadata"])
            metadata.pop("annotations", None)  # how long Pulumi waits
            registered.append({**inputs, "metadata": metadata})
    found = manifests_of(compile_stack(load_stack(stack), catalog=catalog), catalog)
    assert found.namespace == stack
    # of the fabric's devices nothing is configured: an example stands for the four of this cluster
    texts = [each.replace("rdma/hca: '8'", "rdma/hca: '4'") for each in found.files.values()]
    rendered = [parse_yaml(text) for text in texts]
    assert sorted(map(as_text, rendered)) == sorted(map(as_text, registered))


def as_text(document: object) -> str:
    return json.dumps(document, sort_keys=True)


class _WithoutLibyaml(yaml.SafeDumper):
    """PyYAML's own, with what manifests are written by."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


_WithoutLibyaml.add_representer(str, _WithoutLibyaml.represent_text)


def test_manifests_read_the_same_where_yaml_was_built_without_libyaml(catalog: Catalog) -> None:
    files = manifests_of(compile_stack(load_stack(GB200), catalog=catalog), catalog).files
    small = [
        text for text in files.values() if len(text) < 20000
    ]  # it takes long for whole programs
    assert len(small) > 10
    for text in small:
        document = parse_yaml(text)
        plain = yaml.dump(document, Dumper=_WithoutLibyaml, sort_keys=False, allow_unicode=True)
        assert plain == text


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


def test_a_unit_is_asked_through_its_router(provisioned: Cluster, tmp_path: Path) -> None:
    made = provisioned("mine", root=stack_file(tmp_path, **IN_ONE), **NODES)
    assert made.inventory["router"]["url"] == "http://mine-router.mine:8000"
    assert made.inventory["hosts"][2]["address"] == "mine-decode-0"


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
    # one node at a time: the next pod goes when this one is ready
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
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


def test_a_namespace_with_a_claim_in_it_is_lent_and_not_rendered(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    lent = load_stack(A3, ("weights.storage=pvc",))
    found = manifests_of(compile_stack(lent, catalog=catalog), catalog)
    assert not any("namespace-" in name for name in found.files)
    assert any("weights_claim is not configured" in note for note in found.notes)
    named = {"namespace": "serving"}
    monkeypatch.setattr("infra.tasks.manifests.configured", lambda _stack, _names: named)
    stack = load_stack(A3)
    found = manifests_of(compile_stack(stack, catalog=catalog), catalog)
    assert (
        "Leave the file of the namespace serving out where it is lent to the stack." in found.notes
    )


def test_a_size_that_is_no_number_is_refused_in_manifests(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    wrong = {"fsx_capacity_gib": "4800GiB"}
    monkeypatch.setattr("infra.tasks.manifests.configured", lambda _stack, _names: wrong)
    for name in (A3, "eks-b200-tp8"):
        stack = load_stack(name)
        with pytest.raises(ProblemsFound, match="4800GiB is not a whole number"):
            manifests_of(compile_stack(stack, catalog=catalog), catalog)
