"""Whatever file an operator names, `fab` ends soon, with 2 and the reason."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.fab_process import run_fab

NO_FILE, A_DEVICE = "no ordinary file", "a pipe or a device"
LIMIT_S = 10.0
STACK = ("--stack", "h200-tp8")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    os.mkfifo(folder / "pipe.yaml")
    (folder / "folder.yaml").mkdir()
    (folder / "endless.yaml").symlink_to("/dev/zero")
    (folder / "sparse.yaml").touch()
    os.truncate(folder / "sparse.yaml", 5 << 30)
    (folder / "latin.yaml").write_bytes(b"a: \xff\n")
    (folder / "deep.yaml").write_text("[" * 100_000 + "]" * 100_000)
    aliases = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    (folder / "bomb.yaml").write_text("\n".join(["a0: &a0 [x]", *aliases]))
    return folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pipe.yaml", (NO_FILE, A_DEVICE)),
        ("endless.yaml", (NO_FILE, A_DEVICE)),
        ("folder.yaml", ("directory", "is a folder")),
        ("sparse.yaml", ("5368709120 bytes",)),
        ("latin.yaml", ("UTF-8", "not JSON")),
        ("deep.yaml", ("40 levels", "not JSON")),
        ("bomb.yaml", ("more than 20000", "not JSON")),
    ],
)
@pytest.mark.parametrize(
    "words", [("--file",), (*STACK, "--inventory"), ("--plan",)], ids=lambda words: words[-1]
)
def test_a_file_that_is_none_is_told_soon(
    words: tuple[str, ...], name: str, said: tuple[str, ...], inputs: Path
) -> None:
    began = time.monotonic()
    done = run_fab("check", *words, str(inputs / name), "--json")
    assert time.monotonic() - began < LIMIT_S
    assert done.returncode == 2
    told = json.dumps(json.loads(done.stdout))
    assert any(each in told for each in said), told
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["pipe.yaml", "endless.yaml", "sparse.yaml"])
@pytest.mark.parametrize(
    "words",
    [
        ("import", "{}"),
        ("-S", "{}", "-H", "127.0.0.1:9", "tune-hosts"),
        ("-H", "127.0.0.1:9", "tune-hosts", "--sudo-password-from", "file:{}"),
        ("stage-weights", *STACK, "--image-archive", "{}"),
    ],
    ids=lambda words: words[0],
)
def test_the_same_of_files_for_hosts(words: tuple[str, ...], name: str, inputs: Path) -> None:
    began = time.monotonic()
    done = run_fab(*(word.replace("{}", str(inputs / name)) for word in words))
    assert time.monotonic() - began < LIMIT_S
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
