"""`--break`: a process that is wrong on its host is named, with the reason, within ten seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.rehearsal.breaking import KINDS
from tests.rehearsal.command import Shell

# a rehearsal of some five seconds for each kind
pytestmark = [pytest.mark.lab, pytest.mark.slow]

# Two processes per host, of which the second breaks; decode stands on as many hosts as that takes.
STACK = """\
extends: gb200-2p1d
platform: existing-hosts
roles:
  prefill: {{replicas: 1, data_parallel: {per_host}, tensor_parallel: 2}}
  decode: {{data_parallel: {ranks}, tensor_parallel: 2}}
"""
PER_HOST = 2
NOTICED_S = 10.0
INSTALLED_S = 5.0
# An engine's own limit of five minutes, at the rehearsal's pace.
HANDSHAKE_S = 6.0
BROKEN = {
    # Two engines share an HTTP port without a word: the one that is wrong is silent where it should answer.
    "decode-0/1:port": (5, "although its own log says that it serves"),
    "decode-0/1:devices": (5, "out of memory"),
    "decode-1/1:dp-address": (5, "Did not receive response from front-end process"),
    "decode-0/1:parallel-flag": (5, "Configuration mismatch"),
    "prefill-0/1:side-channel": (5, "localhost"),
    "prefill-0/1:env": (5, "localhost"),
    "prefill-0/1:mount": (5, "/models/kimi-k2.5-nvfp4"),
    # Nobody dials a decode rank's side channel: only the file on the host differs.
    "decode-0/1:side-channel": (6, "environment of decode-0/1"),
}


def test_every_kind_is_tried() -> None:
    assert {name.rpartition(":")[2] for name in BROKEN} == set(KINDS)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_process_is_named_with_the_reason(
    broken: str, shell: Shell, tmp_path: Path
) -> None:
    code, reason = BROKEN[broken]
    process, _, kind = broken.rpartition(":")
    file = tmp_path / "broken.yaml"
    ranks = 2 * PER_HOST if process.startswith("decode-1/") else PER_HOST
    file.write_text(STACK.format(per_host=PER_HOST, ranks=ranks))
    done = shell.fab("rehearse", "--file", str(file), "--break", broken, "--json")
    done.refused(code)
    *passed, failed = done.document["steps"]
    assert done.document["ok"] is False
    assert all(step["ok"] for step in passed)
    assert failed["ok"] is False
    assert failed["name"] == ("start" if code == 5 else "verify")
    diagnosis, _, differing = failed["detail"].partition(" Not as installed: ")
    assert reason.lower() in diagnosis.lower()
    # Of two that fight for a device the one that loses the race ends: only its file tells the culprit.
    assert process in (differing if kind == "devices" else diagnosis)
    assert failed["detail"] in done.err
    knowable = INSTALLED_S + (HANDSHAKE_S if kind == "dp-address" else 0)
    assert failed["seconds"] < knowable + NOTICED_S
    if code == 5:
        assert " said last:\n" in done.err
    shell.assert_nothing_left()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--break", "decode-0/1"), "port, devices, dp-address"),
        (("--break", "decode-0/1:prot"), "port, devices, dp-address"),
        (("--break", "decode-9/1:port"), "no engine process decode-9/1. Did you mean decode-"),
        (("--break", "decode-0/1:port", "--to-step", "tune"), "--to-step"),
    ],
    ids=["no-kind", "unknown-kind", "unknown-process", "too-early"],
)
def test_what_cannot_be_broken_is_refused(words: tuple[str, ...], said: str, shell: Shell) -> None:
    done = shell.fab("rehearse", "--stack", "gb200-2p1d", *words, "--json")
    done.refused(2, said)
    assert done.document["ok"] is False
    shell.assert_nothing_left()


def test_a_process_without_the_thing_is_refused(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "single.yaml"
    file.write_text("extends: h200-tp8\nplatform: existing-hosts\n")
    done = shell.fab("rehearse", "--file", str(file), "--break", "unified-0/0:dp-address", "--json")
    done.refused(2, "has nothing that dp-address could spoil")
    json.dumps(done.document)
    shell.assert_nothing_left()
