"""Pages of docs/operations.md about AWS, followed word by word with the real command line: the life of a stack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import read_account, write_account
from tests.rehearsal.cloud.command import STACK, kinds_left, resources
from tests.rehearsal.cloud.operations_page import NEXT, Typist, deploy, instances, page, titles

pytestmark = [
    pytest.mark.pulumi,
    pytest.mark.slow,  # several operations of the real engine for each page
]


def edit(typist: Typist, **fields: object) -> None:
    """What an operator changes in the stack file."""
    own = typist.project.folder / "stacks" / f"{STACK}.yaml"
    document = yaml.safe_load(own.read_text())
    own.write_text(yaml.safe_dump({**document, **fields}))


def test_every_page_is_followed() -> None:
    folder = Path(__file__).parent
    text = "".join(path.read_text() for path in folder.glob("test_operations_*.py"))
    assert [title for title in titles() if f'page("{title}")' not in text] == []


def test_a_first_deployment_and_another_topology(typist: Typist) -> None:
    typist.type(page("a first deployment"))
    inventory = yaml.safe_load((typist.project.folder / "inventory.yml").read_text())
    assert "decode-3" in json.dumps(inventory)
    before = instances(typist)

    stack = yaml.safe_load((typist.project.folder / "stacks" / f"{STACK}.yaml").read_text())
    stack["roles"]["prefill"]["replicas"] = 5
    edit(typist, roles=stack["roles"])
    typist.type(page("another topology"))
    assert before < instances(typist)
    assert len(instances(typist)) == 9
    assert any("stage-weights" in line for line in typist.elsewhere)


def test_a_broken_machine(typist: Typist) -> None:
    deploy(typist)
    account = read_account(typist.project.cloud)
    full = replace(account.reservations[RESERVATION], num_instances=6)  # no spare
    write_account(typist.project.cloud, replace(account, reservations={RESERVATION: full}))
    before = instances(typist)
    look, *rest = page("a broken machine")
    typist.type([look])
    (urn,) = set(re.findall(r"urn:\S+aws:ec2/instance:Instance::decode-3", typist.said[look]))
    typist.names = {**typist.names, "URN": urn}
    typist.type(rest)
    assert len(instances(typist)) == 6
    assert len(before - instances(typist)) == 1

    # AWS has ended one itself
    resources(typist.project.cloud, "Instance")[0].unlink()
    typist.type([f"pulumi refresh --stack {STACK}", f"pulumi up --stack {STACK}"])
    assert len(instances(typist)) == 6


def test_the_end_of_a_reservation_and_everything_gone(typist: Typist) -> None:
    deploy(typist)
    account = read_account(typist.project.cloud)
    bought = {**account.reservations, NEXT: account.reservations[RESERVATION]}
    write_account(typist.project.cloud, replace(account, reservations=bought))
    lines = page("the end of a reservation")
    destroy = next(line for line in lines if line.startswith("pulumi destroy"))
    end = lines.index(destroy) + 1
    typist.type(lines[:end])
    assert kinds_left(typist.project.cloud) == ["Bucket", "BucketPublicAccessBlock"]
    (bucket,) = resources(typist.project.cloud, "Bucket")
    typist.type(lines[end:])
    assert len(instances(typist)) == 6
    assert resources(typist.project.cloud, "Bucket") == [bucket]

    typist.type(page("everything gone"))
    assert kinds_left(typist.project.cloud) == ["Bucket", "BucketPublicAccessBlock"]
    # a later deployment reads the same weights
    first, *config, up = (
        line for line in page("a first deployment") if "pulumi" in line or "init" in line
    )
    again = [first, *(line for line in config if "config" in line)]
    typist.type([*again, f"pulumi config set weights_bucket {bucket.stem} --stack {STACK}", up])
    assert resources(typist.project.cloud, "Bucket") == [bucket]


def test_several_people_on_one_stack(typist: Typist) -> None:
    lines = page("a first deployment")
    typist.type([line for line in lines if line.startswith(("scripts", "pulumi config"))])
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
