"""Printed commands arrive on a host as they are meant, through both shells that read them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from infra.catalog.load import Catalog
from infra.launch.preflight.table import judge
from tests.launch.preflight.scenes import change, healthy, tell
from tests.launch.preflight.test_declared_network import CARDS
from tests.launch.preflight.test_rdma import port

HOST = "unified-0"
# As the real ones do: ssh joins its words to one line for the host's shell, and sudo takes what that makes of it.
PROGRAMS = {
    "ssh": '#!/bin/sh\nshift\nexec sh -c "$*"\n',
    "sudo": '#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n',
}


def arrives(command: str, folder: Path) -> list[str]:
    """The words that sudo gets on the host when an operator types it."""
    for name, text in PROGRAMS.items():
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", "-c", command], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_fix_with_quotes_arrives_whole(catalog: Catalog, tmp_path: Path) -> None:
    scene = tell(healthy("h200-tp8", catalog), HOST, "own-name", "127.0.1.1 STREAM x\n")
    downed = {f"{CARDS}/mlx5_0/ports/1/counters/link_downed": "9\n"}
    scene = change(scene, HOST, files={**scene.hosts[HOST].files, **port("mlx5_0"), **downed})
    fixes = {one.check: one.fix or "" for one in judge(scene) if one.severity != "pass"}
    assert {check: arrives(fix.partition("; ")[0], tmp_path) for check, fix in fixes.items()} == {
        "own-name": ["sed", "-i", r"s/^127.0.1.1\b/192.0.2.1/", "/etc/hosts"],
        "rdma-flaps": ["journalctl", "-k", "-b", "-g", "link down|lost carrier"],
    }
