"""The script of the container that copies weights, run against a bucket that is a folder."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.plan.process import Plan
from infra.render.cluster_facts import BucketCopy
from infra.render.weights_copy import copy_container

FOLDER = "kimi/54383e8"
INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
# As the command line lists, copies and fails (exit codes: AWS CLI User Guide, "Command line return codes").
AWS = """\
#!/bin/sh
echo "$*" >> "$ASKED"
[ "$1" = s3 ] || exit 0
if [ -e "$BUCKET/refused" ] && [ "$2" = "$(cat "$BUCKET/refused")" ]; then
  echo "An error occurred (AccessDenied) when calling the operation: Access Denied" >&2; exit 254
fi
case "$2" in
ls) list=$(ls "$BUCKET/${3#s3://bucket/}" 2> /dev/null) || exit 1
    for name in $list; do echo "2026-11-22 08:00:00      12345 $name"; done ;;
cp) cat "$BUCKET/${4#s3://bucket/}" ;;
sync) mkdir -p "$5" && cp "$BUCKET/${4#s3://bucket/}"/* "$5" ;;
esac
"""
# Time passes: the next file of the upload is there. Nothing to upload is a script that waits for ever.
SLEEP = """\
#!/bin/sh
name=$(ls "$UPLOAD" | head -n 1)
[ -n "$name" ] || kill -TERM $PPID
mkdir -p "$BUCKET/$FOLDER" && mv "$UPLOAD/$name" "$BUCKET/$FOLDER/${name#*:}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket, an upload that goes on, and a node's disk."""

    root: Path

    def holds(self, *names: str) -> None:
        for name in names:
            put(self.root / "bucket" / FOLDER / name)

    def gets(self, *names: str) -> None:
        """In this order, one whenever the script sleeps."""
        for number, name in enumerate(names):
            put(self.root / "upload" / f"{number}:{name}")

    def refuses(self, verb: str) -> None:
        (self.root / "bucket" / "refused").write_text(verb, encoding="utf-8")

    @property
    def copied(self) -> set[str]:
        return {path.name for path in (self.root / "models" / FOLDER).glob("*")}

    def copy(self) -> subprocess.CompletedProcess[str]:
        plan = SimpleNamespace(
            weights_path=str(self.root / "models"),
            processes=(SimpleNamespace(argv=("--model", f"{self.root}/models/{FOLDER}")),),
        )
        copy = BucketCopy(source="s3://bucket/", node_folder="/mnt", image="example.com/aws:1")
        container: dict[str, Any] = cast("dict[str, Any]", copy_container(cast("Plan", plan), copy))
        environment = {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "BUCKET": str(self.root / "bucket"),
            "UPLOAD": str(self.root / "upload"),
            "ASKED": str(self.root / "asked"),
            "FOLDER": FOLDER,
            "TMPDIR": str(self.root),
            **{each["name"]: each["value"] for each in container["env"]},
        }
        return subprocess.run(
            container["command"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shards = {f"layer.{number}": name for number, name in enumerate((*SHARDS, SHARDS[0]))}
    text = json.dumps({"weight_map": shards}) if path.name.endswith(INDEX) else "{}"
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    for folder in ("bin", "bucket", "upload"):
        (tmp_path / folder).mkdir()
    for name, text in (("aws", AWS), ("sleep", SLEEP)):
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    return Bucket(root=tmp_path)


def test_weights_that_are_there_are_copied_at_once(bucket: Bucket) -> None:
    bucket.holds("config.json", INDEX, *SHARDS)
    done = bucket.copy()
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert bucket.copied == {"config.json", INDEX, *SHARDS}


@pytest.mark.parametrize(
    "order",
    [
        ("config.json", INDEX, *SHARDS),
        (*SHARDS, INDEX, "config.json"),
        (INDEX, SHARDS[1], "config.json", SHARDS[0]),
    ],
)
def test_an_upload_is_waited_for_to_its_last_shard(bucket: Bucket, order: tuple[str, ...]) -> None:
    bucket.gets(*order)
    done = bucket.copy()
    assert done.returncode == 0, done.stderr
    assert bucket.copied == set(order)
    waits = done.stdout.splitlines()
    assert len(waits) == len(order)
    assert waits[0] == f"waiting for s3://bucket/{FOLDER}: 2 missing, config.json first"
    if order[-1] == SHARDS[1]:
        assert waits[-1].endswith(f"{FOLDER}: 1 missing, {SHARDS[1]} first")


def test_a_checkpoint_of_one_file_has_no_index(bucket: Bucket) -> None:
    bucket.gets("config.json", "tokenizer.json", "model.safetensors")
    done = bucket.copy()
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in bucket.copied
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize(("verb", "where"), [("ls", "/"), ("cp", f"/{INDEX}"), ("sync", "/")])
def test_what_may_not_be_read_ends_the_container_and_names_the_fix(
    bucket: Bucket, verb: str, where: str
) -> None:
    bucket.holds("config.json", INDEX, *SHARDS)
    bucket.refuses(verb)
    done = bucket.copy()
    assert done.returncode == 1
    assert f"error: s3://bucket/{FOLDER}{where}: An error occurred (AccessDenied)" in done.stderr
    assert "fix: the role of these pods" in done.stderr
    assert (bucket.root / "asked").read_text(encoding="utf-8").count("s3 ls") == 1


def test_an_index_that_names_no_shard_is_refused(bucket: Bucket) -> None:
    bucket.holds("config.json")
    (bucket.root / "bucket" / FOLDER / INDEX).write_text("{}", encoding="utf-8")
    done = bucket.copy()
    assert done.returncode == 1
    assert f"{INDEX}: it names no shard" in done.stderr
