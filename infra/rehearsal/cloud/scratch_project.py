"""A scratch Pulumi project in the emulated cloud: an operator's who has bought what the stack needs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import Catalog
from infra.plan.compile import resolve_topology
from infra.plan.topology import Topology
from infra.rehearsal.cloud import google_world
from infra.rehearsal.cloud.plugin import KIND_VARIABLE
from infra.rehearsal.cloud.store import FOLDER_VARIABLE, Account, Reservation, write_account
from infra.rehearsal.cloud.world import ZONES, CloudZone, is_offered
from infra.rehearsal.pulumi_project import (
    copy_project,
    is_initialised,
    make_environment,
    read_config,
    write_config,
)
from infra.spec.load import load_stack
from infra.spec.stack import StackSpec

KEY_NAME = "rehearsal"
# The simulated operator stands inside the network: hosts are dialled at their own addresses.
SSH_FROM = "10.0.0.0/8"
# The login of simulated hosts, and a public key that nobody has the other half of: their sshd has keys of its own.
SSH_KEY = f"ubuntu:ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}"
# And outside of it for a cluster's API.
API_FROM = "198.51.100.0/24"
RESERVATION = "cr-0123456789abcdef0"
_RESERVED_TRAYS = 9  # the smaller UltraServer; other reservations are as large as the stack asks


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchProject:
    """Where one rehearsal's cloud lives.

    Args:
        folder: the scratch copy, for `pulumi -C`.
        cloud: the emulated account.
        environment: complete; PATH finds the command line and the emulated provider.
    """

    stack: str
    folder: Path
    cloud: Path
    environment: Mapping[str, str]

    @property
    def is_initialised(self) -> bool:
        """Whether `pulumi stack init` has run."""
        return is_initialised(self.folder, self.stack)


def make_scratch_project(
    stack: str,
    scratch: Path,
    *,
    spec_file: Path | None,
    pulumi_bin: Path,
    config: Mapping[str, str],
) -> ScratchProject:
    """Copy the project's Pulumi files, buy what the stack needs, and write what an operator would configure.

    Args:
        stack: the stack's name.
        scratch: an empty or new folder.
        spec_file: the stack file, None for a shipped one.
        pulumi_bin: the folder of the command line.
        config: further configuration values; they win.
    """
    folder = scratch / "project"
    own = copy_project(folder, stack, spec_file)
    shipped = read_config(folder, stack)
    bought = prepare_account(stack, own, scratch / "cloud", shipped, Catalog())
    write_config(folder, stack, {**bought, **shipped}, config)
    environment = _environment(scratch, pulumi_bin)
    return ScratchProject(
        stack=stack, folder=folder, cloud=scratch / "cloud", environment=environment
    )


def prepare_account(
    stack: str, spec_file: Path, cloud: Path, shipped: Mapping[str, str], catalog: Catalog
) -> dict[str, str]:
    """The account of an operator who has bought what the stack needs; returns what they configure.

    Args:
        stack: the stack's name.
        spec_file: where its file should be; else the name is looked up.
        cloud: folder of the emulated account, written.
        shipped: configuration that stands already; its zone is where the reservation is.
        catalog: what is true of the world.
    """
    loaded = load_stack(str(spec_file) if spec_file.is_file() else stack)
    _, topology = resolve_topology(loaded, catalog)
    if loaded.spec.platform == "gcp-gce":
        return _prepare_project(topology, cloud)
    instance_type = topology.hosts[0].accelerator.instances.get("aws") or ""
    zone = ZONES.get(shipped.get("moe-infra:zone_id", "")) or _zone(instance_type)
    config = {
        "aws:region": zone.region,
        "moe-infra:zone_id": zone.zone_id,
    }
    if loaded.spec.platform == "aws-eks":
        config |= {
            "moe-infra:api_from_cidr": API_FROM,
            "moe-infra:cluster_admins": f"arn:aws:iam::{Account().account_id}:role/{Account().caller_role}",
        }
    else:
        config |= {"moe-infra:key_name": KEY_NAME, "moe-infra:ssh_from_cidr": SSH_FROM}
    reservations = {}
    # a stack that does not say how its machines are bought is refused by the program: nothing is bought for it
    kind = loaded.spec.capacity.kind if loaded.spec.capacity else "on-demand"
    if kind != "on-demand":
        config["moe-infra:reservation_id"] = RESERVATION
        reservations[RESERVATION] = Reservation(
            kind=kind,
            instance_type=instance_type,
            zone_id=zone.zone_id,
            num_instances=max(len(topology.hosts), _RESERVED_TRAYS if kind == "ultraserver" else 0),
        )
    account = Account(
        key_pairs=(KEY_NAME,), reservations=reservations, buckets=_buckets(loaded.spec, shipped)
    )
    write_account(cloud, account)
    return config


def _prepare_project(topology: Topology, cloud: Path) -> dict[str, str]:
    """A project of Google's with a reservation as large as the stack; returns what its operator configures."""
    machine_type = topology.hosts[0].accelerator.instances.get("gcp", "")
    zone = google_world.zone_that_offers(machine_type)
    reservation = Reservation(
        kind="reservation",
        instance_type=machine_type,
        zone_id=zone,
        num_instances=len(topology.hosts),
    )
    write_account(cloud, Account(reservations={KEY_NAME: reservation}))
    values = {
        "project": google_world.PROJECT,
        "zone": zone,
        "reservation": KEY_NAME,
        "ssh_key": SSH_KEY,
        "ssh_from_cidr": SSH_FROM,
        "interface": "eth0",  # of simulated hosts
    }
    return {"moe-infra:gcp": json.dumps(values)}


def _buckets(spec: StackSpec, shipped: Mapping[str, str]) -> tuple[str, ...]:
    """The buckets that the stack and its configuration name: they are the operator's."""
    source = spec.weights.source or ""
    named = source.removeprefix("s3://").partition("/")[0] if source.startswith("s3://") else ""
    return tuple(filter(None, (named, shipped.get("moe-infra:weights_bucket", ""))))


def _zone(instance_type: str) -> CloudZone:
    """The first zone that offers an instance type; any, when none does (the program then says why not)."""
    offering = (zone for zone in ZONES.values() if is_offered(instance_type, zone))
    return next(offering, next(iter(ZONES.values())))


def _environment(scratch: Path, pulumi_bin: Path) -> dict[str, str]:
    """The command line's environment, with the emulated providers on PATH."""
    programs = scratch / "bin"
    programs.mkdir()
    for kind in ("aws", "gcp", "kubernetes"):
        provider = programs / f"pulumi-resource-{kind}"
        start = f'exec "{sys.executable}" -P -m infra.rehearsal.cloud.plugin "$@"'
        text = f"#!/bin/sh\n{KIND_VARIABLE}={kind}; export {KIND_VARIABLE}\n{start}\n"
        provider.write_text(text, encoding="utf-8")
        provider.chmod(0o755)
    login = (
        programs / "aws"
    )  # an operator of clusters has it; the emulated provider asks it nothing
    login.write_text(
        "#!/bin/sh\necho 'No account is behind this cloud.' >&2; exit 1\n", encoding="utf-8"
    )
    login.chmod(0o755)
    environment = make_environment(scratch, (programs, pulumi_bin))
    return {**environment, FOLDER_VARIABLE: str(scratch / "cloud")}
