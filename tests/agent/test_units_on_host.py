"""What a real systemd says of a start that it has taken and makes wait for another unit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import infra.agent
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import Bind, LabHost
from infra.rehearsal.lab.starting import start_lab
from tests.needed import need_lab

# Slow: a host of its own, which no other test may ask to start what never begins.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

AGENT = Path(infra.agent.__file__).parent
PROGRAMS = Path(__file__).parent / "on_host"
READ = f"python3 -B {PROGRAMS}/read_units.py {AGENT.parents[1]} moe-late.service\n"
# What comes first begins when it is let: as docker does after a boot.
INSTALL = """
cat >/run/systemd/system/moe-first.service <<'UNIT'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'until test -e /run/moe-first-may-end; do sleep 0.1; done'
UNIT
cat >/run/systemd/system/moe-late.service <<'UNIT'
[Unit]
After=moe-first.service
[Service]
ExecStart=/bin/sleep 600
UNIT
systemctl daemon-reload
"""
QUEUE = "systemctl start --no-block moe-first.service moe-late.service\n"
LET = """
touch /run/moe-first-may-end
until systemctl is-active -q moe-late.service; do sleep 0.1; done
"""
WAITS = {"job": True, "active_state": "inactive", "waits": True, "state": "waiting"}
STOPPED = {"job": False, "active_state": "inactive", "waits": False, "state": "stopped"}
RUNS = {"job": False, "active_state": "active", "waits": False, "state": "running"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    need_lab()
    binds = tuple(Bind(source=str(each), target=str(each)) for each in (AGENT, PROGRAMS))
    with start_lab(
        tmp_path / "l", [LabHost(name="late", address="192.0.2.1", binds=binds)]
    ) as running:
        running.wait_ready(30)
        yield running


def read(lab: Lab, script: str) -> object:
    """What is read of the unit that is late, after a script."""
    done = subprocess.run(
        ["ssh", "-F", str(lab.ssh_config), "-l", "root", "late", "bash", "-es"],
        input=script + READ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_start_that_waits_is_told_withdrawn_by_a_stop_and_begins(lab: Lab) -> None:
    assert read(lab, INSTALL) == STOPPED
    assert read(lab, QUEUE) == WAITS
    assert read(lab, "systemctl stop moe-late.service\n") == STOPPED
    assert read(lab, QUEUE) == WAITS
    assert read(lab, LET) == RUNS
