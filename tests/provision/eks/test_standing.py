"""What of a cluster that stands stays as it is, also when an upgrade ended in the middle."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from infra.provision.aws.eks.config import EksFacts
from infra.provision.aws.eks.standing import StandingCluster, StandingGroup
from infra.rehearsal.cloud.store import Store

FACTS = EksFacts(
    kubernetes_version="1.35",
    names_version=False,
    support="EXTENDED",
    api_from=ipaddress.IPv4Network("198.51.100.0/24"),
    admins=(),
    control_subnet_ids=(),
    namespace="mine",
    node_tuning="apply",
    node_tuning_image="",
)
ADDONS = {"kube-proxy": "v1.35.0-eksbuild.2", "coredns": "v1.12.4-eksbuild.1"}


def group(version: str) -> StandingGroup:
    return StandingGroup(version=version, num_nodes=1, template_id="lt-1")


WHOLE = StandingCluster(
    version="1.35", addons=ADDONS, groups={"system": group("1.35"), "accelerators": group("1.35")}
)
OLD_PROXY = replace(WHOLE, addons={**ADDONS, "kube-proxy": "v1.34.1-eksbuild.1"})
OLD_NODES = replace(WHOLE, groups={"system": group("1.35"), "accelerators": group("1.34")})
UNKNOWN = StandingCluster(version=None)
NEW = StandingCluster(version="")


@pytest.mark.parametrize(
    ("standing", "wanted", "kept"),
    [
        (WHOLE, "1.35", {"coredns", "kube-proxy"}),
        (WHOLE, "1.36", set()),
        (OLD_PROXY, "1.35", set()),
        (OLD_NODES, "1.35", {"kube-proxy"}),
        (UNKNOWN, "1.35", {"coredns", "kube-proxy"}),
        (NEW, "1.35", set()),
        (replace(WHOLE, addons={}), "1.36", {"coredns", "kube-proxy"}),  # nobody may ask about them
    ],
)
def test_addons_stay_unless_an_upgrade_has_yet_to_reach_them(
    standing: StandingCluster, wanted: str, kept: set[str]
) -> None:
    assert {name for name in ADDONS if standing.keeps_addon(name, wanted)} == kept


@pytest.mark.parametrize(
    ("standing", "wanted", "kept"),
    [
        (WHOLE, "1.35", {"system", "accelerators"}),
        (WHOLE, "1.36", set()),
        (OLD_NODES, "1.35", {"system"}),
        (UNKNOWN, "1.35", {"system", "accelerators"}),
        (replace(WHOLE, groups={}), "1.35", {"system", "accelerators"}),
        (NEW, "1.35", set()),
    ],
)
def test_nodes_keep_their_release_by_the_version_of_their_own_group(
    standing: StandingCluster, wanted: str, kept: set[str]
) -> None:
    found = {name for name in WHOLE.groups if standing.keeps_release(name, wanted)}
    assert found == kept


@pytest.mark.parametrize(
    ("standing", "names_version", "version", "keeps"),
    [
        ("1.34", False, "1.34", False),
        ("1.34", True, "1.35", False),
        ("", False, "1.35", False),
        (None, False, "1.35", True),
        (None, True, "1.35", False),
    ],
)
def test_a_cluster_that_stands_keeps_its_version_until_the_operator_names_another(
    standing: str | None, names_version: bool, version: str, keeps: bool
) -> None:
    cluster, facts = StandingCluster(version=standing), replace(FACTS, names_version=names_version)
    assert cluster.settle(facts).kubernetes_version == version
    assert cluster.keeps_kubernetes(facts) is keeps


def test_whoever_may_not_ask_what_stands_makes_a_cluster_and_is_told(
    record: Callable[..., Any],
) -> None:
    def forbid(store: Store) -> dict[str, str]:
        store.account = replace(store.account, forbidden=("getClusters",))
        return {}

    recorded = record("eks-b200-tp8", prepare=forbid)
    assert recorded.of_type("Cluster")["cluster"]["version"] == "1.35"
    assert any("which clusters stand was not looked at" in said for said in recorded.said)
