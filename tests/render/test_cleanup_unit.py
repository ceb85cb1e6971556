"""The unit that removes containers, run by a shell beside a runtime that does as it is told."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from infra.render.units import cleanup_unit_text

CONTAINERS = ("moe-a-engine-0", "moe-a-engine-1")
# What it says is in /bin/sh: `rm` prints and leaves with what a test says, `ps` lists what is there.
RUNTIME = """\
#!/bin/sh
case "$1" in
rm) {rm} ;;
ps) {ps} ;;
esac
"""


def ran(tmp_path: Path, runtime: str | None) -> tuple[int, str]:
    """How the unit's command ends, and what it writes."""
    text = cleanup_unit_text("a", "docker", CONTAINERS)
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    # as systemd reads it: quotes of its own, $$ for $
    argv = shlex.split(line.removeprefix("ExecStart=").replace("$$", "$"))
    if runtime is not None:
        program = tmp_path / "docker"
        program.write_text(runtime)
        program.chmod(0o755)
    done = subprocess.run(
        argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("rm", "ps", "code", "said"),
    [
        ("echo removed", ":", 0, ""),
        # older releases fail for what is not there
        ("echo 'Error: No such container: moe-a-engine-1' >&2; exit 1", "echo other", 0, ""),
        # a name that only begins so is another stack's
        (":", "echo moe-a-engine-10; echo x-moe-a-engine-1", 0, ""),
        (
            "echo 'Error response from daemon: driver failed to remove root filesystem' >&2; exit 1",
            "echo other; echo moe-a-engine-1",
            1,
            "cannot remove moe-a-engine-1: Error response from daemon: driver failed to remove root filesystem\n",
        ),
        (":", "echo moe-a-engine-1; echo moe-a-engine-0", 1, "cannot remove moe-a-engine-0 moe-a-engine-1:\n"),
        (
            "exit 1",
            "echo 'Cannot connect to the Docker daemon' >&2; exit 1",
            1,
            "cannot list containers: Cannot connect to the Docker daemon\n",
        ),
    ],
)  # fmt: skip
def test_it_fails_while_a_container_is_there(
    tmp_path: Path, rm: str, ps: str, code: int, said: str
) -> None:
    assert ran(tmp_path, RUNTIME.format(rm=rm, ps=ps)) == (code, said)


def test_without_the_runtime_there_are_none(tmp_path: Path) -> None:
    assert ran(tmp_path, None) == (0, "")
