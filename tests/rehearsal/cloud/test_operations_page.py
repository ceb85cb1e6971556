"""Pages of docs/operations-cloud.md about AWS, followed word by word: people, state, networks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from infra.rehearsal.cloud.store import Store, read_account, write_account
from tests.provision.belongings import their_network
from tests.rehearsal.cloud.command import STACK, kinds_left
from tests.rehearsal.cloud.operations_page import Typist, instances, page, set_up

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several operations of the real engine for each page
]


def test_several_people_on_one_stack_that_move_its_state_to_s3(
    typist: Typist, tmp_path: Path
) -> None:
    set_up(typist)
    come_second_and_finish_the_work_of_the_first(typist)
    move_the_state(typist, tmp_path / "bucket")
    assert len(instances(typist)) == 6


def come_second_and_finish_the_work_of_the_first(typist: Typist) -> None:
    first = subprocess.Popen(
        ["pulumi", "up", "--yes", "--skip-preview", "--stack", STACK],
        cwd=typist.project.folder,
        env=dict(typist.project.environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    locks = Path(typist.project.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
    try:
        deadline = time.monotonic() + 60
        while not list(locks.rglob("locks/**/*.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGSTOP)  # it is at work for as long as it takes
        second = typist.run(["pulumi", "up", "--stack", STACK])
        assert second.returncode != 0
        assert "the stack is currently locked by 1 lock(s)" in second.stdout + second.stderr
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # their machine died
        first.wait()
    typist.type(page("several people on one stack"))
    assert len(instances(typist)) == 6


def move_the_state(typist: Typist, bucket: Path) -> None:
    """`bucket` stands in for s3://STATE_BUCKET."""
    environment = dict(typist.project.environment)
    old = environment.pop("PULUMI_BACKEND_URL")
    path = typist.project.folder / "Pulumi.yaml"
    text = path.read_text()
    bucket.mkdir()
    for url in (old, f"file://{bucket}"):
        path.write_text(re.sub(r"url: \S+", f"url: {url}", text))
        typist.project = replace(typist.project, environment=environment)
        lines = page("state in S3")
        typist.type(lines[:1] if url == old else lines[1:])
    assert list(bucket.rglob(f"{STACK}.json*"))
    # the project's line wins over a login
    typist.type([f"pulumi login {old}", f"pulumi preview --expect-no-changes --stack {STACK}"])


def test_what_exists_already(typist: Typist) -> None:
    set_up(typist)
    subnet, *_ = their_network(
        Store(typist.project.cloud), region="us-east-1", zones=("use1-dfw2-az1",)
    )
    account = read_account(typist.project.cloud)
    write_account(typist.project.cloud, replace(account, buckets=("their-weights",)))
    typist.names = {**typist.names, "SUBNET": subnet.id, "BUCKET": "their-weights"}
    before = kinds_left(typist.project.cloud)
    typist.type(page("what exists already"))
    previewed = next(text for line, text in typist.said.items() if "preview" in line)
    assert "aws:ec2:Vpc" not in previewed
    assert "aws:s3:Bucket" not in previewed
    assert kinds_left(typist.project.cloud) == before
