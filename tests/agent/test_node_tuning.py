"""The program of the pod that tunes its node: its probe, its report, and whether the node is taken back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.agent import conversation, node_tuning
from infra.spec.load import PROJECT
from tests.agent.cluster_certificate import make_certificate

PROGRAM = PROJECT / "infra" / "agent" / "node_tuning.py"
DAEMON_SET = {"namespace": "serving", "name": "x-node-tuning"}
PLACE = "/apis/apps/v1/namespaces/serving/daemonsets/x-node-tuning"
THERE = {"metadata": {"name": "x-node-tuning"}}
GOING = {"metadata": {"name": "x-node-tuning", "deletionTimestamp": "2026-11-22T06:00:00Z"}}


def row(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "state": state, "before": "60", "after": "0", "why": "because", **more}


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's files, and its own folder for temporary ones."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = {"every_s": 300, "limit_s": 120, "daemon_set": DAEMON_SET, "request": {}}
    (tmp_path / "tuning.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("ok", "changed", "not_applicable"), 0),
        (("ok", "blocked"), 0),
        (("blocked", "failed"), 1),
        ((), 0),
    ],
)
def test_a_pod_is_ready_when_no_item_has_failed(
    pod: Path, capsys: pytest.CaptureFixture[str], states: tuple[str, ...], code: int
) -> None:
    items = [row(f"item-{number}", state) for number, state in enumerate(states)]
    node_tuning.keep({"items": items, "at": time.time()})
    assert node_tuning.main(["ready", str(pod)]) == code
    told = capsys.readouterr().out.splitlines()
    assert len(told) == sum(state in ("blocked", "failed") for state in states)
    if code:
        assert told[0] == "item-1: failed, because"


def test_a_pod_is_not_ready_before_the_first_look_nor_long_after_the_last(
    pod: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert node_tuning.main(["ready", str(pod)]) == 1
    node_tuning.keep({"items": [], "at": time.time() - 841})
    assert node_tuning.main(["ready", str(pod)]) == 1
    node_tuning.keep({"error": {"what": "no python3", "fix": "Install it."}, "at": time.time()})
    assert node_tuning.main(["ready", str(pod)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "the node has not been looked at yet",
        "the node was last looked at 841 s ago",
        "no python3 Install it.",
    ]


def test_the_report_is_the_document_of_tune_hosts(
    pod: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOE_NODE", "node-7")
    node_tuning.keep({"items": [row("vm.swappiness", "changed", wanted="0")], "at": 0.0})
    assert node_tuning.main(["report", str(pod)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["changed"], told["failed"]) == (True, 1, 0)
    (host,) = told["hosts"]
    assert host["name"] == "node-7"
    assert host["items"] == [
        {
            "id": "vm.swappiness", "state": "changed", "before": "60", "wanted": "0", "after": "0",
            "why": "because", "needs": None,
        }
    ]  # fmt: skip


def test_only_what_is_new_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    first = {"items": [row("a", "changed"), row("b", "ok")]}
    second = {"items": [row("a", "ok"), row("b", "ok")]}
    node_tuning.tell(first, {})
    node_tuning.tell(second, first)
    node_tuning.tell(second, second)
    assert capsys.readouterr().out.splitlines() == [
        "moe-infra: a: changed, 60 → 0",
        "moe-infra: b: ok, 0",
        "moe-infra: 2 items: 1 changed, 1 ok",
        "moe-infra: a: ok, 0",
        "moe-infra: 2 items: 2 ok",
    ]


def test_the_report_of_the_agent_is_found_among_other_words() -> None:
    text = json.dumps({"items": []}).encode()
    said = b"welcome\n\n%s %d\n%s\nbye" % (conversation.MARKER.encode(), len(text), text)
    assert node_tuning.find_report(said) == {"items": []}
    assert node_tuning.find_report(said[:-8]) is None


def test_a_pod_without_the_nodes_processes_refuses_to_tune_itself() -> None:
    own = "/proc/self/ns"
    with pytest.raises(node_tuning.Refused, match="hostPID"):
        node_tuning.open_namespaces(own)


@pytest.fixture
def api(pod: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An API server with TLS that asks for the account's token; the folder that tells it what to say."""
    certificate, with_key = make_certificate()
    (pod / "ca.crt").write_bytes(certificate)
    (pod / "tls.pem").write_bytes(with_key)
    (pod / "token").write_text("sesame")
    program = Path(__file__).with_name("api_of_a_cluster.py")
    with subprocess.Popen([sys.executable, str(program), str(pod)]) as server:
        until = time.monotonic() + 60
        while not (pod / "port").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        monkeypatch.setattr(node_tuning, "ACCOUNT", str(pod))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", (pod / "port").read_text())
        yield pod
        server.kill()


@pytest.mark.parametrize(
    ("answer", "stays"), [(THERE, "the next one takes over"), (GOING, ""), (None, "")]
)
def test_the_daemon_set_alone_says_whether_a_node_is_taken_back(
    api: Path, answer: dict[str, Any] | None, stays: str
) -> None:
    (api / "answer").write_text(json.dumps(answer) if answer else "")
    why = node_tuning.why_to_stay(DAEMON_SET)
    assert why.endswith(stays)
    assert bool(why) == bool(stays)
    assert (api / "asked").read_text().splitlines() == [PLACE]


def test_an_api_that_does_not_say_takes_nothing_back(
    api: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (api / "answer").write_text(json.dumps(GOING))
    (api / "token").write_text("sesame")
    monkeypatch.setattr(node_tuning, "ACCOUNT", str(api / "nowhere"))
    assert "does not say" in node_tuning.why_to_stay(DAEMON_SET)
    monkeypatch.setattr(node_tuning, "ACCOUNT", str(api))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    assert "does not say" in node_tuning.why_to_stay(DAEMON_SET)
    assert not (api / "asked").exists()


def test_an_api_that_refuses_the_account_takes_nothing_back(api: Path) -> None:
    (api / "answer").write_text(json.dumps(GOING))
    certificate = (api / "ca.crt").read_text()
    (api / "token").write_text("sesame")
    wrong = api / "wrong"
    wrong.mkdir()
    (wrong / "ca.crt").write_text(certificate)
    (wrong / "token").write_text("open")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_tuning, "ACCOUNT", str(wrong))
        assert node_tuning.why_to_stay(DAEMON_SET) == "the API answers 401 about the DaemonSet"
