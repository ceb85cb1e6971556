"""What Kubernetes does to containers of a manifest: variables of services, probes that end them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.foreign.importing import imported

ENGINE = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: kimi{namespace}}}
spec:
  template:
    spec:
{spec}      containers:
        - name: engine
          image: vllm/vllm-openai:v0.22.1
          args: [moonshotai/Kimi-K2.5, --tensor-parallel-size, "8"]
{more}"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{{spec}ports: [{{port: 8000}}]}}
"""


def pod(*, namespace: str = "", spec: str = "", more: str = "") -> str:
    return ENGINE.format(namespace=namespace, spec=spec, more=more)


def port_of(folder: Path, text: str) -> str | None:
    (process,) = imported(folder, text, "kimi.yaml").assembled.plan.processes
    return process.env.get("VLLM_PORT")


def silence_of(folder: Path, probes: str) -> int | None:
    more = "".join(f"          {row}\n" for row in probes.splitlines())
    (seat,) = imported(folder, pod(more=more), "kimi.yaml").assembled.seats.values()
    assert seat.launch.container is not None
    return seat.launch.container.silence_s


def test_a_service_called_vllm_sets_its_pods_port(tmp_path: Path) -> None:
    text = SERVICE.format(name="vllm", spec="") + pod()
    assert port_of(tmp_path, text) == "tcp://198.51.100.1:8000"


@pytest.mark.parametrize(
    "text",
    [
        SERVICE.format(name="kimi", spec="") + pod(),
        SERVICE.format(name="vllm", spec="clusterIP: None, ") + pod(),
        SERVICE.format(name="vllm", spec="type: ExternalName, ") + pod(),
        SERVICE.format(name="vllm", spec="") + pod(spec="      enableServiceLinks: false\n"),
        SERVICE.format(name="vllm", spec="") + pod(namespace=", namespace: other"),
    ],
    ids=["other-name", "headless", "external", "links-off", "other-namespace"],
)
def test_other_services_set_nothing(tmp_path: Path, text: str) -> None:
    assert port_of(tmp_path, text) is None


def test_a_variable_of_the_container_wins(tmp_path: Path) -> None:
    own = '          env: [{name: VLLM_PORT, value: "9000"}]\n'
    assert port_of(tmp_path, SERVICE.format(name="vllm", spec="") + pod(more=own)) == "9000"


@pytest.mark.parametrize(
    ("probes", "seconds"),
    [
        ("", None),
        ("livenessProbe: {httpGet: {port: 8000}}", 30),
        ("livenessProbe: {tcpSocket: {port: 8000}, initialDelaySeconds: 60, periodSeconds: 5}", 75),
        ("startupProbe: {httpGet: {port: 8000}, failureThreshold: 60}", 600),
        (
            "livenessProbe: {grpc: {port: 8000}}\nstartupProbe: {grpc: {port: 8000}, failureThreshold: 9}",
            90,
        ),
        ("startupProbe: {exec: {command: [cat, /ready]}}", None),
        ("readinessProbe: {httpGet: {port: 8000}}", None),
    ],
)
def test_how_long_a_container_may_be_silent(
    tmp_path: Path, probes: str, seconds: int | None
) -> None:
    assert silence_of(tmp_path, probes) == seconds
