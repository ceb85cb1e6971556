"""Pages of docs/operations-cloud.md about AWS, followed word by word with the real command line: a stack's life."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.provision.naming import give_back_machines
from infra.rehearsal.cloud.scratch_project import RESERVATION
from infra.rehearsal.cloud.store import read_account, write_account
from tests.rehearsal.cloud.command import BUCKET_KINDS, STACK, edit_stack, kinds_left, resources
from tests.rehearsal.cloud.operations_page import NEXT, Typist, instances, page, titles

pytestmark = pytest.mark.pulumi


def test_every_page_is_followed() -> None:
    folder = Path(__file__).parent
    text = "".join(path.read_text() for path in folder.glob("test_operations_*.py"))
    followed = {
        **{title: f'page("{title}")' for title in titles("AWS")},
        **{f"{title}, on EKS": f'page("{title}", on="EKS")' for title in titles("EKS")},
    }
    assert [title for title, call in followed.items() if call not in text] == []


@pytest.mark.slow  # several operations of the real engine for each page
def test_the_pages_from_a_first_deployment_until_everything_is_gone(typist: Typist) -> None:
    deploy(typist)
    change_the_topology(typist)
    launch_two_machines_anew(typist)
    replace_a_broken_machine(typist)
    end_a_reservation_and_begin_another(typist)
    take_everything_away_and_come_back_to_the_weights(typist)


def deploy(typist: Typist) -> None:
    typist.type(page("a first deployment"))
    inventory = yaml.safe_load((typist.project.folder / "inventory.yml").read_text())
    assert "decode-3" in json.dumps(inventory)
    assert len(instances(typist)) == 6


def change_the_topology(typist: Typist) -> None:
    """Three more hosts, as many as the reservation has left."""
    before = instances(typist)
    stack = yaml.safe_load((typist.project.folder / "stacks" / f"{STACK}.yaml").read_text())
    stack["roles"]["prefill"]["replicas"] = 5
    edit_stack(typist.project.folder, STACK, roles=stack["roles"])
    typist.type(page("another topology"))
    assert before < instances(typist)
    assert len(instances(typist)) == 9
    assert any("stage-weights" in line for line in typist.elsewhere)


def launch_two_machines_anew(typist: Typist) -> None:
    before = instances(typist)
    typist.type(page("machines launched anew"))
    preview = f"pulumi preview --stack {STACK}"
    assert "2 to replace" in typist.said[preview]
    assert len(instances(typist)) == 9
    assert len(before - instances(typist)) == 2


def replace_a_broken_machine(typist: Typist) -> None:
    """The reservation has no spare."""
    before = instances(typist)
    assert read_account(typist.project.cloud).reservations[RESERVATION].num_instances == len(before)
    look, *rest = page("a broken machine")
    typist.type([look])
    (urn,) = set(re.findall(r"urn:\S+aws:ec2/instance:Instance::decode-3", typist.said[look]))
    typist.names = {**typist.names, "URN": urn}
    typist.type(rest)
    assert len(instances(typist)) == 9
    assert len(before - instances(typist)) == 1

    # AWS has ended one itself
    resources(typist.project.cloud, "Instance")[0].unlink()
    typist.type([f"pulumi refresh --stack {STACK}", f"pulumi up --stack {STACK}"])
    assert len(instances(typist)) == 9


def end_a_reservation_and_begin_another(typist: Typist) -> None:
    account = read_account(typist.project.cloud)
    bought = {**account.reservations, NEXT: account.reservations[RESERVATION]}
    write_account(typist.project.cloud, replace(account, reservations=bought))
    lines = page("the end of a reservation")
    machines, rest = (line for line in lines if line.startswith("pulumi destroy"))
    assert shlex.split(machines) == shlex.split(give_back_machines(STACK))
    end = lines.index(rest) + 1
    typist.type(lines[:end])
    assert kinds_left(typist.project.cloud) == BUCKET_KINDS
    before = resources(typist.project.cloud, "Bucket")
    # the outputs still name six machines
    gone = typist.run(["fab", "inventory", "--stack", STACK])
    assert gone.returncode == 3, gone.stdout + gone.stderr
    assert "so they were given back: " in gone.stderr
    typist.type(lines[end:])
    assert len(instances(typist)) == 9
    assert resources(typist.project.cloud, "Bucket") == before


def take_everything_away_and_come_back_to_the_weights(typist: Typist) -> None:
    (bucket,) = resources(typist.project.cloud, "Bucket")
    typist.type(page("everything gone"))
    assert kinds_left(typist.project.cloud) == BUCKET_KINDS
    # a later deployment reads the same weights
    first, *config, up = (
        line for line in page("a first deployment") if "pulumi" in line or "init" in line
    )
    again = [first, *(line for line in config if "config" in line)]
    typist.type([*again, f"pulumi config set weights_bucket {bucket.stem} --stack {STACK}", up])
    assert resources(typist.project.cloud, "Bucket") == [bucket]
