"""A stack with an edge in a real Kubernetes: who is led to the edge, what it may read, and that nothing stays of it."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from infra.rehearsal.cluster.certificate import make_certificate
from infra.rehearsal.cluster.room import Room
from infra.render.pod_edge import IMAGE, edge_labels
from tests.kubernetes.seen import everything, wait_for
from tests.rehearsal.cloud.command import Pulumi

GB200 = "k8s-gb200-2p1d"
Deploy = Callable[..., Pulumi]


def test_a_stack_with_an_edge(room: Room, pulumi_in: Deploy, tmp_path: Path) -> None:
    key = secrets.token_hex(32)
    made, keys = make_certificate(tmp_path / "made"), tmp_path / "clients.keys"
    keys.write_text(f"alice {key}\n")
    keys.chmod(0o600)
    edge = {
        "name": "haproxy",
        "keys": {"file": str(keys)},
        "tls": {"certificate": {"file": str(made.file)}, "key": {"file": str(made.key)}},
    }
    file = tmp_path / "edged.yaml"
    file.write_text(yaml.safe_dump({"extends": GB200, "edge": edge}), encoding="utf-8")
    before = everything(room.api)
    pulumi = pulumi_in(room, "edged", spec_file=file)
    assert set(pulumi.changes("up")) == {"create"}

    def of(kind: str, group: str = "api/v1") -> list[dict[str, Any]]:
        return list(room.api.items(f"/{group}/namespaces/edged/{kind}"))

    labels = edge_labels("edged")
    (pod,) = wait_for(
        "the edge's pod",
        lambda: [p for p in of("pods") if labels.items() <= p["metadata"]["labels"].items()],
    )
    assert [each["image"] for each in pod["spec"]["containers"]] == [IMAGE]
    assert pod["spec"]["nodeName"]
    # clients are led to the edge and to nobody else, and the edge to the router
    led = [s for s in of("services") if labels.items() <= (s["spec"].get("selector") or {}).items()]
    assert [service["spec"]["ports"][0]["port"] for service in led] == [8000]
    (config,) = [m for m in of("configmaps") if "haproxy.cfg" in m.get("data", {})]
    server = config["data"]["haproxy.cfg"].split("server behind ")[1].split(":")[0]
    (behind,) = [s for s in of("services") if s["metadata"]["name"] == server]
    policies = of("networkpolicies", "apis/networking.k8s.io/v1")
    assert behind["spec"]["selector"] in [p["spec"]["podSelector"]["matchLabels"] for p in policies]
    # a digest of the key is there, and the key nowhere
    kept = [value for secret in of("secrets") for value in (secret.get("data") or {}).values()]
    digest = hashlib.sha256(key.encode()).hexdigest()
    assert f"{digest} alice" in [base64.b64decode(value).decode().strip() for value in kept]
    for kind in ("secrets", "configmaps", "pods", "services"):
        told = json.dumps(of(kind))
        assert key not in told
        assert base64.b64encode(key.encode()).decode() not in told

    assert set(pulumi.changes("up", "--refresh")) == {"same"}
    assert set(pulumi.changes("destroy")) == {"delete"}
    wait_for("the last objects to go", lambda: everything(room.api) <= before)
