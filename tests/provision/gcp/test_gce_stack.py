"""A stack on Google Compute Engine: what is made of it, and everything that is refused before the first resource."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import InfraError, ProblemsFound
from infra.provision.gcp.gce_stack import RAW_DISKS
from infra.provision.gcp.machines import domain_number
from infra.provision.gcp.survey import only
from infra.rehearsal.cloud.google_kinds import MACHINE
from infra.rehearsal.cloud.google_world import PROJECT
from infra.rehearsal.cloud.scratch_project import KEY_NAME, SSH_KEY
from infra.rehearsal.cloud.store import Reservation, Resource, Store
from infra.spec.load import PROJECT as SHIPPED

STACK = "gcp-gb200-2p1d"
ZONE = "us-central1-a"
FACTS = {
    "project": PROJECT,
    "zone": ZONE,
    "reservation": KEY_NAME,
    "ssh_key": SSH_KEY,
    "ssh_from_cidr": "10.0.0.0/8",
}
Record = Callable[..., Any]


def configured(**changed: str | None) -> dict[str, str]:
    """The object `gcp` with some keys otherwise, None for one that is not set."""
    values = {**FACTS, **changed}
    return {"gcp": json.dumps({name: value for name, value in values.items() if value is not None})}


def test_machines_are_bound_to_the_reservation_and_share_one_nvlink_domain(record: Record) -> None:
    recorded = record(STACK)
    machines = recorded.of_type("Instance")
    assert len(machines) == 6
    (policy,) = recorded.of_type("ResourcePolicy").values()
    assert policy["groupPlacementPolicy"] == {"collocation": "COLLOCATED", "gpuTopology": "1x72"}
    for machine in machines.values():
        assert machine["machineType"] == "a4x-highgpu-4g"
        assert machine["scheduling"]["provisioningModel"] == "RESERVATION_BOUND"
        assert machine["reservationAffinity"]["specificReservation"]["values"] == [KEY_NAME]
        assert machine["resourcePolicies"].endswith("/gcp-gb200-2p1d-domain-0")
        kinds = [each["nicType"] for each in machine["networkInterfaces"]]
        assert kinds == ["GVNIC"] * 2 + ["MRDMA"] * 4
        assert "serviceAccount" not in machine  # engines find no credentials on their machines
        assert machine["metadata"]["block-project-ssh-keys"] == "TRUE"


def test_no_machine_has_a_public_address_and_port_22_is_open_to_the_operator_alone(
    record: Record,
) -> None:
    recorded = record(STACK)
    for machine in recorded.of_type("Instance").values():
        assert not any("accessConfigs" in each for each in machine["networkInterfaces"])
    rules = recorded.of_type("Firewall")
    assert rules["ssh"]["sourceRanges"] == ["10.0.0.0/8"]
    assert rules["ssh"]["allows"] == [{"protocol": "tcp", "ports": ["22"]}]
    assert {name: rule["sourceRanges"] for name, rule in rules.items() if name != "ssh"} == {
        "hosts-inside": ["10.64.0.0/17"],
        "further-inside": ["10.64.128.0/18"],
    }


def test_without_a_block_of_the_operators_ssh_goes_through_identity_aware_proxy(
    record: Record,
) -> None:
    recorded = record(STACK, **configured(ssh_from_cidr=None))
    assert recorded.of_type("Firewall")["ssh"]["sourceRanges"] == ["198.51.100.0/24"]
    host = recorded.inventory["hosts"][0]
    assert host["proxy_command"] == (
        "gcloud compute start-iap-tunnel gcp-gb200-2p1d-prefill-0 %p --listen-on-stdin"
        f" --project {PROJECT} --zone {ZONE}"
    )
    assert host["user"] == "ubuntu"


def test_components_say_what_they_made(record: Record) -> None:
    assert record(STACK).components == {
        ("moe-infra:gcp:HostNetworks", STACK),
        ("moe-infra:gcp:Machines", STACK),
    }


@pytest.mark.parametrize(
    ("changed", "what", "fix"),
    [
        ({"project": None}, "Not set: the id of the project", "--path gcp.project my-project"),
        ({"zone": "us-central1"}, "us-central1 is not the zone", "--path gcp.zone us-central1-a"),
        ({"reservation": None}, "Not set: the name of the reservation", "--path gcp.reservation"),
        ({"ssh_key": "ssh-ed25519 AAAA"}, "is not LOGIN:PUBLIC KEY", "--path gcp.ssh_key"),
        ({"ssh_from_cidr": "0.0.0.0/0"}, "is not a block of your own", "--path gcp.ssh_from_cidr"),
        ({"vpc_cidr": "10.64.0.0/24"}, "is no block of /8 to /22 in", "10.64.0.0/16"),
        ({"vpc_cidr": "8.8.0.0/16"}, "is no block of /8 to /22 in", "10.64.0.0/16"),
        ({"root_volume_gib": "20"}, "20 GiB do not hold a serving image", "root_volume_gib 300"),
        ({"zones": "us-central1-a"}, "Nothing reads this key", "config rm --path 'gcp[\"zones\"]'"),
        ({"vpc_cidr": "127.0.0.0/16"}, "is no block of /8 to /22 in", "10.64.0.0/16"),
        ({"vpc_cidr": "10.64.0.0/255.255.0.0"}, "is not the address block", "10.64.0.0/16"),
        ({"ssh_from_cidr": "192.0.2.0/255.255.255.0"}, "is not the block", "gcp.ssh_from_cidr"),
        ({"root_volume_gib": "999999"}, "is not the boot volume", "root_volume_gib 300"),
        (
            {"replace_machines": "decode-9"},
            "decode-9 is no host",
            "Did you mean decode-3, decode-2 or decode-1? Type: pulumi config set",
        ),
        ({"reservation": "theirs"}, "There is no reservation theirs", "gcp.reservation"),
        ({"image": "projects/p/global/images/gone"}, "There is no image", "gcp.image"),
    ],
)
def test_a_fact_that_is_missing_or_wrong_names_the_command(
    record: Record, changed: Mapping[str, str | None], what: str, fix: str
) -> None:
    with pytest.raises(InfraError) as caught:
        record(STACK, **configured(**changed))
    said = str(caught.value)
    assert what in said
    assert fix in said


def test_a_key_of_another_platform_is_refused(record: Record) -> None:
    with pytest.raises(InfraError, match="a stack on gcp-gce does not read it"):
        record(STACK, **configured(), zone_id="use1-az4")


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"gcp": "us-central1-a"}, "It is no object of keys"),
        ({"gcp": "[]"}, "It is no object of keys"),
        ({**configured(), "owner": "Team A"}, "Team A cannot be a label at Google"),
    ],
)
def test_values_of_another_kind_are_refused(
    record: Record, config: Mapping[str, str], what: str
) -> None:
    with pytest.raises(InfraError, match=what):
        record(STACK, **config)


def test_a_name_that_is_too_long_is_refused_before_a_network_is_made(
    record: Record, tmp_path: Path
) -> None:
    name = "a-stack-with-a-name-of-fifty-letters-for-an-operator"
    (tmp_path / "stacks").mkdir()
    base = {"extends": str(SHIPPED / "stacks" / f"{STACK}.yaml")}
    (tmp_path / "stacks" / f"{name}.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    with pytest.raises(InfraError, match="a name at Google has 63 at most"):
        record(name, root=tmp_path)


def test_raw_disks_are_those_that_are_there_and_carry_nothing(tmp_path: Path) -> None:
    for name in ("ssd-0", "ssd-1", "ssd-2"):
        (tmp_path / f"google-local-nvme-{name}").write_text(name)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "blkid").write_text('#!/bin/sh\ncase "$1" in *-1) exit 0 ;; *) exit 2 ;; esac\n')
    (tools / "blkid").chmod(0o755)

    def found(folder: Path) -> list[str]:
        command = RAW_DISKS.replace("/dev/disk/by-id", str(folder))
        environment = {"PATH": f"{tools}:/usr/bin:/bin"}
        done = subprocess.run(
            ["sh", "-euc", command], env=environment, capture_output=True, text=True, check=True
        )
        return [Path(line).name for line in done.stdout.splitlines()]

    assert found(tmp_path) == ["google-local-nvme-ssd-0", "google-local-nvme-ssd-2"]
    assert found(tools) == []


@pytest.mark.parametrize(
    ("reservation", "what"),
    [
        ({"instance_type": "a3-ultragpu-8g"}, "holds a3-ultragpu-8g; the stack launches a4x"),
        ({"num_instances": 5}, "has 5 of 5 machines left; the stack launches 6"),
        ({"state": "CREATING"}, "is CREATING"),
    ],
)
def test_a_reservation_that_does_not_fit_is_refused(
    record: Record, reservation: Mapping[str, Any], what: str
) -> None:
    facts = {"kind": "reservation", "instance_type": "a4x-highgpu-4g", "zone_id": ZONE}
    bought = Reservation(**{**facts, "num_instances": 6, **reservation})

    def prepare(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, reservations={KEY_NAME: bought})
        return {}

    with pytest.raises(InfraError) as caught:
        record(STACK, prepare=prepare)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"capacity": {"kind": "ultraserver"}}, "ultraserver is no way to buy machines of Google"),
        ({"weights": {"path": "/models", "storage": "efs"}}, "efs is not made there"),
        ({"ingress": "internal-load-balancer"}, "No load balancer is made on gcp-gce"),
    ],
)
def test_what_is_not_made_there_is_refused(
    record: Record, tmp_path: Path, fields: Mapping[str, Any], what: str
) -> None:
    (tmp_path / "stacks").mkdir()
    file = tmp_path / "stacks" / f"{STACK}.yaml"
    base = str(SHIPPED / "stacks" / f"{STACK}.yaml")
    file.write_text(yaml.safe_dump({"extends": base, **fields}), encoding="utf-8")
    with pytest.raises(InfraError) as caught:
        record(STACK, root=tmp_path)
    assert what in str(caught.value)


@pytest.mark.parametrize("wrong", ["10.64.0.0.1/16", "10.64/16", "ten"])
def test_a_malformed_block_is_told_once(record: Record, wrong: str) -> None:
    with pytest.raises(ProblemsFound) as caught:
        record(STACK, **configured(vpc_cidr=wrong))
    assert len(caught.value.problems) == 1


def test_networks_that_are_too_small_for_the_hosts_are_refused(
    record: Record, tmp_path: Path
) -> None:
    many = {"roles": {"prefill": {"replicas": 25}}}
    own = {"extends": str(SHIPPED / "stacks" / f"{STACK}.yaml"), **many}
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / f"{STACK}.yaml").write_text(yaml.safe_dump(own), encoding="utf-8")
    with pytest.raises(
        InfraError, match="leaves 28 addresses to each RDMA interface; the stack has 29"
    ):
        record(STACK, root=tmp_path, **configured(vpc_cidr="10.64.0.0/22"))


def machine_of(stack: str, host: str) -> Resource:
    """A machine under the name of decode-0, whose labels say whose it is."""
    disk = {"initializeParams": {"size": 300, "image": "projects/p/global/images/i"}}
    inputs: dict[str, Any] = {
        "machineType": "a4x-highgpu-4g",
        "bootDisk": disk,
        "reservationAffinity": {
            "specificReservation": {"key": "k", "values": [KEY_NAME]},
        },
        "labels": {"moe-infra-stack": stack, "moe-infra-host": host},
    }
    name = f"{STACK}-decode-0"
    return Resource(
        type=MACHINE,
        id=f"projects/{PROJECT}/zones/{ZONE}/instances/{name}",
        urn=f"urn:pulumi:test::moe-infra::{MACHINE}::{name}",
        inputs=inputs,
        outputs={"networkInterfaces": [{"nicType": "GVNIC"}]},
        hidden={"digits": "0"},
    )


def test_a_machine_of_somebody_else_under_a_host_s_name_is_refused(record: Record) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        store.put(machine_of("gcp", "gb200-2p1d-decode-0"))
        return {}

    with pytest.raises(InfraError, match="its labels say that it is not decode-0 of this stack"):
        record(STACK, prepare=prepare)


def test_whoever_may_not_ask_about_machines_is_told_and_counts_none_as_new(record: Record) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        full = replace(store.account.reservations[KEY_NAME], num_instances=6)
        store.account = replace(
            store.account, forbidden=("getInstance",), reservations={KEY_NAME: full}
        )
        store.put(machine_of(STACK, "decode-0"))
        return {}

    # the network is looked at as if machines stood, and there is none yet: nothing is made unseen
    with pytest.raises(InfraError, match="There is no subnet gcp-gb200-2p1d-hosts") as caught:
        record(STACK, prepare=prepare)
    assert "machines left" not in str(caught.value)


@pytest.mark.parametrize(
    ("forbidden", "what"),
    [
        ("getImage", "Nobody may look at the image"),
        ("getNetblockIPRanges", "Nobody may look at the blocks of Identity-Aware Proxy"),
    ],
)
def test_what_nothing_can_be_made_without_is_refused_where_nobody_may_look(
    record: Record, forbidden: str, what: str
) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, forbidden=(forbidden,))
        return {}

    with pytest.raises(InfraError, match=what):
        record(STACK, prepare=prepare, **configured(ssh_from_cidr=None))


def test_an_answer_without_what_was_asked_for_is_a_sentence() -> None:
    assert only(["a", "b"], "disk") == "a"
    nothing: tuple[list[str] | None, ...] = ([], None)
    for rows in nothing:
        with pytest.raises(LookupError, match="the answer names no disk"):
            only(rows, "disk")


@pytest.mark.parametrize(
    ("policy", "number"),
    [
        ("https://example.com/projects/p/regions/r/resourcePolicies/a-b-domain-12", 12),
        ("a-b-domain-0", 0),
        ("other-domain-0", None),
        ("a-b-domain-x", None),
        ("", None),
    ],
)
def test_a_policy_tells_its_domain(policy: str, number: int | None) -> None:
    assert domain_number("a-b", policy) == number


def test_the_emulated_project_holds_a_machine_of_each_host(record: Record) -> None:
    kept: list[Store] = []

    def prepare(store: Store) -> Mapping[str, str]:
        kept.append(store)
        return {}

    record(STACK, prepare=prepare)
    assert len(kept[0].of_type(MACHINE)) == 6
