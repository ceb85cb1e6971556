"""What the emulated Google project refuses, on plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.google_kinds import (
    FIREWALL,
    MACHINE,
    NAT,
    NETWORK,
    POLICY,
    ROUTER,
    SUBNETWORK,
)
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.store import Account, Reservation, Resource, Store, write_account

PROJECT, REGION, ZONE = "my-project", "us-central1", "us-central1-a"
PROFILE = f"projects/{PROJECT}/global/networkProfiles/{ZONE}-vpc-roce"
RESERVED = Reservation(
    kind="reservation", instance_type="a4x-highgpu-4g", zone_id=ZONE, num_instances=20
)
OTHER = Reservation(
    kind="reservation", instance_type="a3-ultragpu-8g", zone_id=ZONE, num_instances=1
)


@dataclass
class Google:
    """One project; `make` registers as the engine would."""

    store: Store
    made: list[str] = field(default_factory=list)

    def make(self, token: str, name: str, **inputs: object) -> Resource:
        urn = f"urn:pulumi:test::moe-infra::{token}::{name}"
        values: dict[str, Any] = {"name": name, "project": PROJECT, **inputs}
        assert operations.check(token, urn, values, {}) == []
        return operations.create(self.store, "", urn, values)

    def refusal(self, token: str, name: str, **inputs: object) -> str:
        with pytest.raises(RefusedError) as caught:
            self.make(token, name, **inputs)
        return str(caught.value)

    def network(self, name: str, **inputs: object) -> Resource:
        return self.make(NETWORK, name, autoCreateSubnetworks=False, mtu=8896, **inputs)

    def subnet(self, name: str, network: Resource, block: str, **inputs: object) -> Resource:
        place = {"region": REGION, "network": network.id, "ipCidrRange": block}
        return self.make(SUBNETWORK, name, **{**place, **inputs})

    def interfaces(self) -> list[dict[str, str]]:
        """Those of a machine of GB200, in networks of their own."""
        rdma = self.network("rdma", networkProfile=PROFILE)
        subnets = [
            ("GVNIC", self.subnet("hosts", self.network("hosts"), "10.0.0.0/24")),
            ("GVNIC", self.subnet("further", self.network("further"), "10.0.1.0/24")),
            *(("MRDMA", self.subnet(f"r{n}", rdma, f"10.0.{2 + n}.0/24")) for n in range(4)),
        ]
        return [{"subnetwork": subnet.id, "nicType": kind} for kind, subnet in subnets]


def machine(interfaces: list[dict[str, str]], **changed: object) -> dict[str, Any]:
    """The inputs of a machine that is taken, with some otherwise."""
    specific = {"key": "compute.googleapis.com/reservation-name", "values": ["mine"]}
    return {
        "zone": ZONE,
        "machineType": "a4x-highgpu-4g",
        "bootDisk": {"initializeParams": {"image": "x", "type": "hyperdisk-balanced"}},
        "networkInterfaces": interfaces,
        "scheduling": {
            "provisioningModel": "RESERVATION_BOUND",
            "instanceTerminationAction": "STOP",
            "onHostMaintenance": "TERMINATE",
        },
        "reservationAffinity": {"type": "SPECIFIC_RESERVATION", "specificReservation": specific},
        **changed,
    }


@pytest.fixture
def google(tmp_path: Path) -> Google:
    write_account(tmp_path, Account(reservations={"mine": RESERVED, "theirs": OTHER}))
    return Google(Store(tmp_path))


def test_a_machine_is_launched_and_found_again(google: Google) -> None:
    made = google.make(MACHINE, "decode-0", **machine(google.interfaces()))
    rows: Any = made.outputs["networkInterfaces"]
    assert [row["networkIp"] for row in rows] == [f"10.0.{n}.2" for n in range(6)]
    args = {"name": "decode-0", "project": PROJECT, "zone": ZONE}
    found = look_up(google.store, "", "gcp:compute/getInstance:getInstance", args)
    assert found["machineType"] == "a4x-highgpu-4g"
    args = {"name": "mine", "project": PROJECT, "zone": ZONE}
    held: Any = look_up(google.store, "", "gcp:compute/getReservation:getReservation", args)
    assert held["specificReservations"][0]["inUseCount"] == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"machineType": "a4x-highgpu-8g"}, "machineTypes/a4x-highgpu-8g' was not found"),
        ({"zone": "europe-west4-a"}, "machineTypes/a4x-highgpu-4g' was not found"),
        ({"scheduling": {"provisioningModel": "SPOT"}}, "not SPOT"),
        ({"scheduling": {"provisioningModel": "RESERVATION_BOUND"}}, "onHostMaintenance"),
        ({"reservationAffinity": {"type": "ANY_RESERVATION"}}, "names its reservation"),
        ({"bootDisk": {"initializeParams": {"type": "pd-ssd"}}}, "'pd-ssd'. Not with a4x"),
        ({"labels": {"Role": "decode"}}, "labels.Role"),
        ({"networkInterfaces": []}, "networkInterfaces"),
        ({"resourcePolicies": "nobody"}, "'nobody' does not exist"),
    ],
)
def test_a_machine_that_cannot_run_is_refused(
    google: Google, changed: Mapping[str, object], why: str
) -> None:
    inputs = machine(google.interfaces(), **changed)
    assert why in google.refusal(MACHINE, "decode-0", **inputs)


def test_a_reservation_of_another_type_and_one_that_is_not_there_are_refused(
    google: Google,
) -> None:
    interfaces = google.interfaces()
    for name, why in (("theirs", "holds a3-ultragpu-8g"), ("gone", "gone' was not found")):
        specific = {"key": "compute.googleapis.com/reservation-name", "values": [name]}
        affinity = {"type": "SPECIFIC_RESERVATION", "specificReservation": specific}
        inputs = machine(interfaces, reservationAffinity=affinity)
        assert why in google.refusal(MACHINE, "decode-0", **inputs)


def test_interfaces_stand_in_networks_of_their_kind(google: Google) -> None:
    good = google.interfaces()
    crossed = [good[0], {**good[1], "nicType": "MRDMA"}, *good[2:5]]
    assert "does not fit network" in google.refusal(MACHINE, "m", **machine(crossed))
    twice = [good[0], {**good[1], "subnetwork": good[0]["subnetwork"]}]
    assert "two interfaces in" in google.refusal(MACHINE, "m", **machine(twice))
    first = [good[2], *good[:2]]
    assert "nic0 is no MRDMA" in google.refusal(MACHINE, "m", **machine(first))
    assert "takes 2" in google.refusal(MACHINE, "m", **machine([*good, good[0]]))


def test_one_policy_with_a_topology_is_one_domain(google: Google) -> None:
    interfaces = google.interfaces()
    placement = {"collocation": "COLLOCATED", "gpuTopology": "1x72"}
    policy = google.make(POLICY, "domain-0", region=REGION, groupPlacementPolicy=placement)
    for number in range(18):
        google.make(MACHINE, f"m-{number}", **machine(interfaces, resourcePolicies=policy.id))
    inputs = machine(interfaces, resourcePolicies=policy.id)
    assert "one whole domain" in google.refusal(MACHINE, "m-18", **inputs)
    wrong = {"gpuTopology": "2x72"}
    assert "'2x72'" in google.refusal(POLICY, "p", region=REGION, groupPlacementPolicy=wrong)


def test_a_reservation_that_is_full_takes_no_more(google: Google) -> None:
    interfaces = google.interfaces()
    for number in range(20):
        google.make(MACHINE, f"m-{number}", **machine(interfaces))
    assert "all are in use" in google.refusal(MACHINE, "m-20", **machine(interfaces))


@pytest.mark.parametrize(
    ("token", "inputs", "why"),
    [
        (NETWORK, {"autoCreateSubnetworks": False, "mtu": 9001}, "between 1300 and 8896"),
        (NETWORK, {"networkProfile": PROFILE}, "subnets of its own alone"),
        (NETWORK, {"autoCreateSubnetworks": False, "networkProfile": "x"}, "does not exist"),
        (SUBNETWORK, {"region": REGION, "ipCidrRange": "10.0.0.0/30"}, "smallest subnet is a /29"),
        (SUBNETWORK, {"region": REGION, "ipCidrRange": "10.0.0.0/25"}, "conflicts with existing"),
        (FIREWALL, {"allows": [{"protocol": "all", "ports": ["22"]}]}, "tcp, udp and sctp"),
        (NAT, {"router": "none", "region": REGION,
               "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}, "'none' was not"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_made_are_refused(
    google: Google, token: str, inputs: Mapping[str, object], why: str
) -> None:
    network = google.network("hosts")
    google.subnet("first", network, "10.0.0.0/24")
    where = {} if token in (NETWORK, NAT) else {"network": network.id}
    assert why in google.refusal(token, "second", **where, **inputs)


def test_an_rdma_network_takes_no_firewall_rules_and_subnets_of_its_region_alone(
    google: Google,
) -> None:
    rdma = google.network("rdma", networkProfile=PROFILE)
    assert "takes no VPC firewall rules" in google.refusal(FIREWALL, "f", network=rdma.id)
    place = {"region": "us-east1", "network": rdma.id, "ipCidrRange": "10.0.0.0/24"}
    assert f"profile is of zone {ZONE}" in google.refusal(SUBNETWORK, "s", **place)


def test_what_is_in_use_stays_and_a_name_is_taken_once(google: Google) -> None:
    network = google.network("hosts")
    google.make(ROUTER, "router", region=REGION, network=network.id)
    with pytest.raises(RefusedError, match="depends on it"):
        operations.delete(google.store, network.id, network.urn)
    assert "already exists" in google.refusal(NETWORK, "hosts", autoCreateSubnetworks=False)


@pytest.mark.parametrize("changed", [{"machineType": "a4-highgpu-8g"}, {"resourcePolicies": None}])
def test_what_wants_a_machine_stopped_is_refused_while_it_runs(
    google: Google, changed: Mapping[str, object]
) -> None:
    placement = {"collocation": "COLLOCATED", "gpuTopology": "1x72"}
    policy = google.make(POLICY, "domain-0", region=REGION, groupPlacementPolicy=placement)
    made = google.make(MACHINE, "m", **machine(google.interfaces(), resourcePolicies=policy.id))
    with pytest.raises(RefusedError, match="on a started instance requires stopping it"):
        operations.update(google.store, "", made.id, made.urn, {**made.inputs, **changed})


def test_a_boot_disk_grows_and_never_shrinks(google: Google) -> None:
    disk = {"image": "x", "type": "hyperdisk-balanced", "size": 300}
    inputs = machine(google.interfaces(), bootDisk={"initializeParams": disk})
    made = google.make(MACHINE, "m", **inputs)
    larger = {**made.inputs, "bootDisk": {"initializeParams": {**disk, "size": 500}}}
    operations.update(google.store, "", made.id, made.urn, larger)
    with pytest.raises(RefusedError, match="cannot be smaller than existing size 500"):
        operations.update(google.store, "", made.id, made.urn, dict(made.inputs))


def test_a_subnet_grows_in_place_and_shrinks_by_a_new_one() -> None:
    old = {"ipCidrRange": "10.0.0.0/24"}
    assert operations.changes(SUBNETWORK, old, {"ipCidrRange": "10.0.0.0/23"})[1] == []
    assert operations.changes(SUBNETWORK, old, {"ipCidrRange": "10.0.0.0/25"})[1] == ["ipCidrRange"]
