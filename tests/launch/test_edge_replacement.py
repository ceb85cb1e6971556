"""What a change of the edge's files stops: new keys or another configuration nobody, its unit the edge alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.launch.replacement import plan_replacement
from infra.render.host_paths import credential_path
from infra.render.release_record import read_release, release_record
from tests.launch.scripted_fleet import make_deployment

STACK = str(Path(__file__).parents[1] / "stacks" / "vllm-shared-edge.yaml")
NAME = "vllm-shared-edge"
ALL = {"prefill/0", "decode/0", "router/0", "edge/0"}
FOLDER = f"/etc/moe-infra/{NAME}"
UNITS = f"/etc/systemd/system/moe-{NAME}"


@pytest.mark.parametrize(
    ("path", "stopped"),
    [
        (credential_path(NAME, "edge_keys"), set()),
        (credential_path(NAME, "edge_certificate"), set()),
        (credential_path(NAME, "edge_private_key"), set()),
        (credential_path(NAME, "api_key"), ALL),
        (f"{FOLDER}/edge-0/haproxy.cfg", set()),
        (f"{FOLDER}/edge-0/launch", {"edge/0"}),
        (f"{UNITS}-edge@.service", {"edge/0"}),
        (f"/etc/systemd/system/multi-user.target.d/moe-{NAME}-edge.conf", {"edge/0"}),
        (f"{UNITS}-engine@.service", ALL - {"edge/0"}),
        (f"{FOLDER}/router-0/launch", {"router/0"}),
    ],
)
def test_no_more_is_stopped_than_what_a_file_concerns(
    catalog: Catalog, path: str, stopped: set[str]
) -> None:
    deployment, _, _ = make_deployment(STACK, catalog)
    plan = deployment.plan
    record = release_record(plan, plan.on_host("host-0"), has_containers=True)
    before = {"host-0": read_release("host-0", NAME, record)}
    row = {"id": f"file:{path}", "group": "files", "state": "changed"}
    found = plan_replacement(deployment, before, {"host-0": {"items": [row]}})
    assert {process.group for process in found.stale["host-0"]} == stopped
    assert bool(found.reasons) is bool(stopped)
