"""`fab` on a disk without room: 3, the place, and nothing half written."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.spec.load import PROJECT
from tests.fab_process import FAB
from tests.needed import lacks

RECIPE = (
    "docker run --net=host vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n"
)
AWAY = 'from pathlib import Path; import sys; sys.path.insert(0, "."); place = Path(sys.argv[1])\n'
TELLS = """
from infra.errors import InfraError
try:
    write(place)
except InfraError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
# What only a cloud or hosts would have `fab` write.
FACTS = """
from infra.tasks.facts_writing import add_facts
from infra.inventory.collective_baseline import RecordedCollective
one = RecordedCollective(group="g", addresses=(), num_ranks=8, backend="nccl", bus_gb_s=1.0, runtime="r")
def write(place): add_facts(place, {}, [one])
"""
KEYS = """
from infra.whole_file import append_line
def write(place): append_line(place, "unified-0 ssh-ed25519 AAAA")
"""
BUNDLE = """
from infra.launch.evidence import HostEvidence, write_archive
def write(place): write_archive(place, "s", [HostEvidence("a")])
"""
INVENTORY = """
from infra.whole_file import write_whole
def write(place): write_whole(place, "all: {}")
"""
PROGRAMS = (FACTS, KEYS, BUNDLE, INVENTORY)
COMMANDS = (
    "render --stack h200-tp8 --to FOLDER/rendered",
    "render --stack k8s-a3-2p1d --to FOLDER/rendered",
    "plan --stack h200-tp8 --picture FOLDER/plan.svg",
    "plan --stack h200-tp8 --picture FOLDER/plan.png",
    "estimate --stack h200-tp8 --picture FOLDER/memory.svg",
    "import RECIPE --accelerator h200 --to-plan FOLDER/plan.json",
    "import RECIPE --accelerator h200 --to-stack FOLDER/mine.yaml",
)
# A disk of its own with one file on it that takes all the room; what lies there afterwards is told.
FULL = """
set -u
mount -t tmpfs -o size=64k none {folder}
head -c 1000000 /dev/zero > {folder}/filler 2> {folder}.told
{command}
code=$?
ls -A {folder}
exit $code
"""


@cache
def namespace() -> tuple[str, ...]:
    """What gives a command mounts of its own."""
    return ("unshare", "--mount") if os.getuid() == 0 else ("unshare", "-rm")


def on_a_full_disk(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """A command, with a folder that has no room; its output ends with what lies there."""
    if subprocess.run([*namespace(), "true"], check=False, capture_output=True).returncode:
        fix = "Run the tests as root, or allow user namespaces."
        lacks(PrerequisiteError("this machine", "Nobody may mount here.", fix))
    script = FULL.format(folder=shlex.quote(str(folder)), command=shlex.join(words))
    return subprocess.run(
        [*namespace(), "sh", "-c", script], cwd=PROJECT, capture_output=True, text=True, check=False
    )


@pytest.mark.slow  # each starts the interpreter
@pytest.mark.parametrize(
    "words",
    [
        *(pytest.param((FAB, *shlex.split(each)), id=each) for each in COMMANDS),
        *((sys.executable, "-c", AWAY + each + TELLS, "FOLDER/file") for each in PROGRAMS),
    ],
)
def test_a_disk_without_room_is_named_and_gets_nothing(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    recipe = tmp_path / "serve.sh"
    recipe.write_text(RECIPE)
    places = {"FOLDER": str(folder), "RECIPE": str(recipe)}
    done = on_a_full_disk(folder, [_filled(word, places) for word in words])
    assert done.returncode == 3, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"{folder}/" in last
    assert "No space left on device. Make room on this machine" in last
    assert done.stdout.splitlines()[-1] == "filler"
    assert "Traceback" not in done.stderr


def _filled(word: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        word = word.replace(name, place)
    return word
