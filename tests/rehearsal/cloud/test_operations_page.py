"""Pages of docs/operations.md about AWS, followed word by word with the real command line: state, and what exists."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from infra.rehearsal.cloud.store import Store, read_account, write_account
from tests.provision.belongings import their_network
from tests.rehearsal.cloud.command import STACK, kinds_left
from tests.rehearsal.cloud.operations_page import Typist, deploy, instances, page

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several operations of the real engine for each page
]


def test_state_in_s3(typist: Typist, tmp_path: Path) -> None:
    deploy(typist)
    environment = dict(typist.project.environment)
    old = environment.pop("PULUMI_BACKEND_URL")
    path = typist.project.folder / "Pulumi.yaml"
    text = path.read_text()
    (tmp_path / "bucket").mkdir()
    for url in (old, f"file://{tmp_path}/bucket"):  # stands in for s3://STATE_BUCKET
        path.write_text(re.sub(r"url: \S+", f"url: {url}", text))
        typist.project = replace(typist.project, environment=environment)
        lines = page("state in S3")
        typist.type(lines[:1] if url == old else lines[1:])
    assert list((tmp_path / "bucket").rglob(f"{STACK}.json*"))
    # the project's line wins over a login
    typist.type([f"pulumi login {old}", f"pulumi preview --expect-no-changes --stack {STACK}"])
    assert len(instances(typist)) == 6


def test_what_exists_already(typist: Typist) -> None:
    typist.type(
        [
            line
            for line in page("a first deployment")
            if line.startswith(("scripts", "pulumi config"))
        ]
    )
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
