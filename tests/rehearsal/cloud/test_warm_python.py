"""What runs in a copy of the warm Python cannot tell it from one that was started anew."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rehearsal.cloud.warm_python import LIST, SCRIPT, WarmPython

PROGRAM = """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), os.environ["WHO"], sys.path[0], sys.stdin.read()]))
print("to the other stream", file=sys.stderr)
raise {ending}
"""
INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("ready", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("told")
    sys.exit(7)
"""


@pytest.fixture
def python(warm_python: WarmPython, tmp_path: Path) -> Path:
    warm_python.put_environment(tmp_path / ".venv")
    return tmp_path / ".venv" / "bin" / "python"


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *words],
        cwd=python.parent,
        env={"WHO": "me"},
        input="told",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [("SystemExit(32)", 32, ""), ("SystemExit", 0, ""), ("ValueError('no')", 1, "Traceback")],
)
@pytest.mark.slow
def test_a_program_runs_as_in_a_python_of_its_own(
    python: Path, tmp_path: Path, ending: str, code: int, said: str
) -> None:
    script = tmp_path / SCRIPT
    script.write_text(PROGRAM.format(ending=ending))
    warm, cold = (run(each, str(script), "a", "b") for each in (python, Path(sys.executable)))
    assert json.loads(warm.stdout) == [
        [str(script), "a", "b"],
        str(python.parent),
        "me",
        str(tmp_path),
        "told",
    ]
    assert warm.returncode == cold.returncode == code
    assert "to the other stream" in warm.stderr
    assert said in warm.stderr


def test_other_commands_are_those_of_the_environment(python: Path) -> None:
    assert run(python, "-c", "import sys; print(sys.prefix)").stdout.strip() == sys.prefix
    names = {each["name"] for each in json.loads(run(python, *LIST).stdout)}
    assert {"pulumi", "pulumi_aws"} <= {name.replace("-", "_") for name in names}


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_program_is_told_when_it_is_interrupted(
    python: Path, tmp_path: Path, is_warm: bool
) -> None:
    script = tmp_path / SCRIPT
    script.write_text(INTERRUPTED)
    program = python if is_warm else sys.executable
    words = [str(program), str(script)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        client.send_signal(signal.SIGINT)
        assert client.stdout.read() == "told\n"
    assert client.returncode == 7


def test_a_copy_ends_with_whoever_asked_for_it(python: Path, tmp_path: Path) -> None:
    script = tmp_path / SCRIPT
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    with subprocess.Popen([python, str(script)], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        number = int(client.stdout.readline())
        client.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{number}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{number}").exists()
