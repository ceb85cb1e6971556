"""Pages of docs/operations-cloud.md about EKS, followed word by word with the real command line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.provision.aws.naming import give_back_nodes
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import read_account, write_account
from infra.render.weights_copy import copied_folders
from tests.rehearsal.cloud.command import BUCKET_KINDS, EKS_STACK, kinds_left, resources
from tests.rehearsal.cloud.operations_page import NEXT, Typist, page

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several operations of the real engine for each page
]


def test_the_life_of_a_cluster_page_by_page(eks_typist: Typist, catalog: Catalog) -> None:
    typist = eks_typist
    typist.type(page("a first deployment", on="EKS"))
    assert_what_is_typed_elsewhere_is_what_the_stack_says(typist, catalog)
    (bucket,) = resources(typist.project.cloud, "Bucket")

    typist.type(page("a broken node", on="EKS"))
    (label,) = (f"{key}={value}" for key, value in node_labels(typist).items())
    assert f"kubectl get nodes -l {label} --watch" in typist.elsewhere

    reserve(typist, RESERVATION, 2)
    own = typist.project.folder / "stacks" / f"{EKS_STACK}.yaml"
    document = yaml.safe_load(own.read_text())
    more = {"roles": {"unified": {"replicas": 2}}, "router": {"name": "sglang-router"}}
    own.write_text(yaml.safe_dump({**document, **more}))
    before = template(typist)
    typist.type(page("another topology", on="EKS"))
    assert len(resources(typist.project.cloud, "LeaderWorkerSet")) == 2
    assert template(typist) == before  # nodes that run stay

    reserve(typist, NEXT, 2)
    lines = page("the end of a reservation", on="EKS")
    end = 1 + next(n for n, line in enumerate(lines) if line.startswith("pulumi destroy"))
    assert "; ".join(lines[end - 3 : end]) == give_back_nodes(EKS_STACK)
    typist.type(lines[:end])
    assert kinds_left(typist.project.cloud) == BUCKET_KINDS
    typist.type(lines[end:])
    assert resources(typist.project.cloud, "Bucket") == [bucket]
    target = template(typist)["capacityReservationSpecification"]["capacityReservationTarget"]
    assert target["capacityReservationId"] == NEXT


def assert_what_is_typed_elsewhere_is_what_the_stack_says(typist: Typist, catalog: Catalog) -> None:
    """Where weights go, how one logs in, and where pods are."""
    (said,) = (text for line, text in typist.said.items() if "output inventory" in line)
    told = json.loads(said)
    assert told["cluster"]["log_in"] in typist.elsewhere
    file = typist.project.folder / "stacks" / f"{EKS_STACK}.yaml"
    plan = compile_file(str(file), catalog=catalog).plan
    (folder,) = copied_folders(plan)
    assert f"aws s3 sync FOLDER s3://BUCKET/{folder}" in typist.elsewhere
    (bucket,) = resources(typist.project.cloud, "Bucket")
    assert told["weights"]["source"] == f"s3://{bucket.stem}/"
    (namespace,) = objects(typist, "Namespace")
    name = namespace["metadata"]["name"]
    assert f"kubectl -n {name} get pods --watch" in typist.elsewhere


def reserve(typist: Typist, identity: str, num_instances: int) -> None:
    """What is bought beside what there is."""
    account = read_account(typist.project.cloud)
    known = replace(account.reservations[RESERVATION], num_instances=num_instances)
    reservations = {**account.reservations, identity: known}
    write_account(typist.project.cloud, replace(account, reservations=reservations))


def template(typist: Typist) -> dict[str, Any]:
    """What nodes with accelerators are launched from."""
    (found,) = (each for each in objects(typist, "LaunchTemplate") if "networkInterfaces" in each)
    return found


def node_labels(typist: Typist) -> dict[str, str]:
    """Those of nodes with accelerators."""
    (found,) = (each["labels"] for each in objects(typist, "NodeGroup") if each.get("labels"))
    labels: dict[str, str] = found
    return labels


def objects(typist: Typist, kind: str) -> list[dict[str, Any]]:
    """What was asked of the cloud and of the cluster, by kind."""
    paths = resources(typist.project.cloud, kind)
    return [json.loads(path.read_text())["inputs"] for path in paths]
