"""Journal files of a real journald, read from the files and by journalctl: the same entries, whatever is in them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import infra.agent
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import Bind, LabHost
from infra.rehearsal.lab.starting import start_lab
from tests.needed import need_lab

# Slow: each test writes thousands of entries to a real journal and reads them back in two ways.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

AGENT = Path(infra.agent.__file__).parent
PROGRAMS = Path(__file__).parent / "on_host"
UNITS = ("moe-s-engine@0", "moe-s-engine@1", "moe-s-user@0")
COMPACT, KEYED, ZSTD = 16, 4, 8
# What journald is told, one phase each: today's files, and those of older releases (their XZ and LZ4 it cannot
# write any more: `test_journal_parts`).
PHASES = (
    "SYSTEMD_JOURNAL_COMPACT=1",
    "SYSTEMD_JOURNAL_COMPACT=0",
    "SYSTEMD_JOURNAL_KEYED_HASH=0 SYSTEMD_JOURNAL_COMPACT=0",
)
PREPARE = """
mkdir -p /var/log/journal /etc/systemd/journald.conf.d /etc/systemd/system/systemd-journald.service.d
printf '[Journal]\\nStorage=persistent\\n' >/etc/systemd/journald.conf.d/zz.conf
systemctl restart systemd-journald; journalctl --flush
"""
PHASE = f"""
printf '[Service]\\nEnvironment=%s\\n' "$1" >/etc/systemd/system/systemd-journald.service.d/zz.conf
systemctl daemon-reload; systemctl restart systemd-journald
journalctl --flush  # as systemd-journal-flush.service does, which simulated hosts do not start
journalctl --rotate
run() {{ systemd-run -q --wait -p LogRateLimitIntervalSec=0 -p StandardOutput=journal "$@"; }}
run --unit=moe-s-engine@0 python3 {PROGRAMS}/journal_writer.py engine moe-s-engine@0 &
run --unit=moe-s-engine@1 python3 {PROGRAMS}/journal_writer.py engine moe-s-engine@1 &
run --unit=moe-s-user@0 -p User=ubuntu python3 {PROGRAMS}/journal_writer.py engine moe-s-user@0 &
wait
for user in root ubuntu; do
  run --unit=moe-s-forger -p User=$user python3 {PROGRAMS}/journal_writer.py forger moe-s-engine@0
done
journalctl --sync
"""


# Each tells which start it is and fails, so that systemd still knows it afterwards.
QUICK = [f"moe-quick@{number}.service" for number in range(30)]
RUN_QUICK = f"""
cat >/run/systemd/system/moe-quick@.service <<'UNIT'
[Service]
ExecStart=/bin/sh -c 'echo I am $INVOCATION_ID; exit 1'
UNIT
renice -n 19 -p 1 >/dev/null  # some speak before systemd says that it starts them
for round in 1 2; do systemctl start {" ".join(QUICK)}; done
renice -n 0 -p 1 >/dev/null
while systemctl is-active -q {" ".join(QUICK)}; do sleep 0.1; done
journalctl --sync
"""


def on_host(lab: Lab, script: str, *arguments: str) -> str:
    done = subprocess.run(
        ["ssh", "-F", str(lab.ssh_config), "-l", "root", "writer", "bash", "-s", "--", *arguments],
        input=script,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_lab()
    binds = tuple(Bind(source=str(each), target=str(each)) for each in (AGENT, PROGRAMS))
    host = LabHost(name="writer", address="192.0.2.1", binds=binds)
    with start_lab(tmp_path_factory.mktemp("lab") / "l", [host]) as running:
        running.wait_ready(30)
        yield running


def test_words_of_processes_that_end_at_once_are_those_of_their_start(lab: Lab) -> None:
    on_host(lab, RUN_QUICK)
    script = f"python3 -B {PROGRAMS}/read_starts.py {AGENT.parents[1]} {' '.join(QUICK)}"
    found = json.loads(on_host(lab, script))
    for unit, told in found.items():
        spoken = [text for text in told["texts"] if text.startswith("I am ")]
        assert spoken == [f"I am {told['start']}"], (unit, told)


@pytest.fixture(scope="module")
def compared(lab: Lab) -> dict[str, Any]:
    """Three phases of writing, a boot after the first, and both ways to read what came of it."""
    on_host(lab, PREPARE)
    for number, environment in enumerate(PHASES):
        if number == 1:
            lab.reset("writer")  # power is cut: the files stay as they are
            lab.wait_reboot("writer", 1, 30)
        on_host(lab, PHASE, f"'{environment}'")
    units = " ".join(f"{unit}.service" for unit in UNITS)
    text = on_host(lab, f"python3 -B {PROGRAMS}/journal_compare.py {AGENT.parents[1]} {units}")
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_entry_is_read_as_journalctl_reads_it(compared: dict[str, Any]) -> None:
    assert compared["num_entries"] > 3000
    assert compared["differing"] == []


def test_the_last_lines_are_those_of_journalctl(compared: dict[str, Any]) -> None:
    assert compared["tails"] == []


def test_files_of_every_kind_were_read(compared: dict[str, Any]) -> None:
    """Else the comparison would prove less than it says."""
    flags = compared["formats"]
    assert any(flag & COMPACT for flag in flags)
    assert any(not flag & COMPACT for flag in flags)
    assert any(not flag & KEYED for flag in flags)
    assert any(flag & ZSTD for flag in flags)
    assert any(name.endswith("~") for name in compared["files"]), "a file that power was cut from"
    assert any(name.startswith("user-") for name in compared["files"]), "another sequence"


def test_damage_is_noticed_or_harmless(compared: dict[str, Any]) -> None:
    assert compared["damaged"] > 50


def test_what_the_files_do_not_tell_journalctl_does(lab: Lab, compared: dict[str, Any]) -> None:
    units = " ".join(f"{unit}.service" for unit in UNITS)
    compare = f"{PROGRAMS}/journal_compare.py {AGENT.parents[1]}"
    found = json.loads(on_host(lab, f"CUT_ONE=1 python3 -B {compare} {units}"))["through_damage"]
    assert [found[way]["difference"] for way in ("entry", "cut")] == [None, None]
    assert 0 < found["entry"]["from_files"] < found["entry"]["lines"]
    assert found["cut"]["from_files"] == 0
