"""The edge in a cluster: what clients dial there, what it reads, and how it takes other keys while it serves."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from infra.agent.condensing import texts_in
from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.render import pod_edge
from infra.render.pod_documents import CLIENTS, pod_documents
from infra.spec.load import PROJECT
from tests.needed import need_program
from tests.render.pods import CLUSTER

CATALOG = Catalog()
LAUNCHER = texts_in(str(PROJECT / "infra" / "agent"))["pod_launch"]
EDGE = "edge={name: haproxy, keys: {env: KEYS}, tls: {certificate: {env: C}, key: {env: K}}}"
SINGLE = ("roles={unified: {tensor_parallel: 4}}", "router=null", "kv_transfer=null")


def objects(*sets: str) -> dict[str, dict[str, Any]]:
    plan = compile_file("k8s-gb200-2p1d", catalog=CATALOG, sets=(EDGE, *sets)).plan
    found = pod_documents(
        plan, workload="leader-worker-set", cluster=CLUSTER, catalog=CATALOG, launcher=LAUNCHER
    )
    return {each.name: each.document for each in found}


def test_clients_dial_the_edge_and_the_edge_dials_the_router() -> None:
    made = objects()
    clients, behind = made[CLIENTS], made["behind-edge-service"]
    assert clients["metadata"]["name"] == "k8s-gb200-2p1d-edge"
    labels = made["edge"]["spec"]["template"]["metadata"]["labels"]
    assert clients["spec"]["selector"].items() <= labels.items()
    assert clients["spec"]["ports"][0]["port"] == 8000
    name, port = behind["metadata"]["name"], behind["spec"]["ports"][0]["port"]
    assert f"server behind {name}:{port}" in made["edge-config"]["data"]["haproxy.cfg"]
    policy = made["behind-edge"]["spec"]
    assert policy["podSelector"]["matchLabels"] == behind["spec"]["selector"]
    allowed = policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert allowed.items() <= labels.items()


def test_a_single_endpoint_has_its_service_behind_the_edge() -> None:
    made = objects(*SINGLE, "secrets.api_key.env=K")
    assert made["behind-edge-service"]["metadata"]["name"].endswith("-endpoint")
    container = made["edge"]["spec"]["template"]["spec"]["containers"][0]
    names = {each["name"] for each in container["env"]}
    assert names == {"CREDENTIALS_DIRECTORY", "MOE_ENGINE_KEY"}


def test_the_pod_is_nobodys_and_reads_its_own_secrets_alone() -> None:
    pod = objects("secrets.api_key.env=A", "secrets.hf_token.env=B")["edge"]["spec"]["template"][
        "spec"
    ]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    own = pod["containers"][0]["securityContext"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"]
    assert not own["allowPrivilegeEscalation"]
    secret = next(each["secret"] for each in pod["volumes"] if "secret" in each)
    assert [each["key"] for each in secret["items"]] == [
        "edge_keys",
        "edge_certificate",
        "edge_private_key",
    ]


def test_without_an_edge_nothing_of_it_is_there() -> None:
    made = objects("edge=null")
    assert not {"edge", "edge-config", "behind-edge", "behind-edge-service"} & made.keys()
    assert made[CLIENTS]["metadata"]["name"] == "k8s-gb200-2p1d-router"


@pytest.mark.slow  # the pod looks for other keys twice a second here
def test_the_pods_own_command_takes_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_program("haproxy", "haproxy")
    made = objects("edge.tls=none", "port=18080")
    folder, secrets = tmp_path / "etc", tmp_path / "secrets"
    folder.mkdir()
    config = made["edge-config"]["data"]["haproxy.cfg"].replace(
        "server behind k8s-gb200-2p1d-router", "server behind 127.0.0.1"
    )
    (folder / "haproxy.cfg").write_text(config)
    for name in ("one", "two"):
        (secrets / name).mkdir(parents=True)
        (secrets / name / "edge_keys").write_text("")
    (secrets / "..data").symlink_to("one")
    (secrets / "edge_keys").symlink_to("..data/edge_keys")
    words = made["edge"]["spec"]["template"]["spec"]["containers"][0]["command"]
    script = (
        words[2]
        .replace(pod_edge.SECRETS_FOLDER, str(secrets))
        .replace(pod_edge.FOLDER, str(folder))
    )
    script = script.replace(f"sleep {pod_edge.LOOK_S}", "sleep 0.5")
    environment = {"CREDENTIALS_DIRECTORY": str(secrets), "PATH": os.environ["PATH"]}
    log = (tmp_path / "log").open("wb")
    pod = subprocess.Popen(
        [*words[:2], script, *words[3:]], env=environment, stdout=log, stderr=log
    )
    try:
        until(tmp_path, 1)
        new = secrets / "new"
        new.symlink_to("two")
        new.rename(secrets / "..data")
        until(tmp_path, 2)
    finally:
        pod.send_signal(signal.SIGTERM)
        assert pod.wait(10) == 0
        log.close()


def until(folder: Path, workers: int) -> None:
    """Wait until HAProxy's master has started so many workers."""
    deadline = time.monotonic() + 10
    while (folder / "log").read_text().count("Loading success") < workers:
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.05)
