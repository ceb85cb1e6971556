"""Machines and networks of one stack on Google Compute Engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute

from infra.catalog.machine_types import MachineType, read_machine_type
from infra.errors import Problem, ProblemsFound
from infra.plan.topology import Topology, TopologyHost
from infra.provision.boot_script import CONTAINERS, DISKS, joined_disks, prepared
from infra.provision.gcp.config import GoogleConfig, read_google_config
from infra.provision.gcp.host_networks import LONGEST_PART, HostNetworks, NetworkSettings
from infra.provision.gcp.machines import Machines, MachineSettings, domain_number, machine_name
from infra.provision.gcp.rules import (
    moved_problem,
    name_problem,
    network_problem,
    replace_problems,
    stack_problems,
    standing_problems,
)
from infra.provision.gcp.survey import Survey, survey_project
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.judged_stack import judged_plan
from infra.provision.nvlink_domains import place_in_domains
from infra.provision.platform import Declared
from infra.provision.previous import read_previous_machines
from infra.spec.stack import StackSpec

# Links to the host's own disks that carry no file system yet (Google, Compute Engine, "Add Local SSD").
RAW_DISKS = (
    "for each in /dev/disk/by-id/google-local-nvme-ssd-*; do"
    ' if [ -e "$each" ] && ! blkid "$each" > /dev/null; then readlink -f "$each"; fi; done'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided before anything is registered."""

    topology: Topology
    spec: StackSpec
    config: GoogleConfig
    machine: MachineType
    survey: Survey
    domains: Mapping[str, int]


def decide(declared: Declared) -> Decided:
    """Everything that can be refused, before the first resource.

    Raises:
        InfraError: the stack or the configuration is wrong, or the project lacks what they name.
    """
    stack, topology = declared.stack, declared.topology
    judged_plan(stack, declared.catalog)
    spec = stack.spec
    name = topology.stack
    machine_names = {host.name: machine_name(name, host.name) for host in topology.hosts}
    _refuse(
        *stack_problems(topology, spec),
        name_problem((*machine_names.values(), LONGEST_PART.format(stack=name)), name),
    )
    machine = read_machine_type(topology.hosts[0].accelerator.instances["gcp"])
    config = read_google_config(name, len(topology.hosts))
    _refuse(moved_problem(config, read_previous_machines(name), name))
    survey = survey_project(config, machine, machine_names, name)
    _refuse(
        *replace_problems(config, topology),
        *standing_problems(survey.standing, config, machine, name),
        network_problem(survey, config, name),
    )
    pulumi.log.info(
        f"{len(topology.hosts)} × {machine.id} of {config.reservation}: the catalogue has no price of Google's "
        "machines; your agreement has it."
    )
    return Decided(
        topology=topology,
        spec=spec,
        config=config,
        machine=machine,
        survey=survey,
        domains=_domains(topology, machine, survey),
    )


def _refuse(*problems: Problem | None) -> None:
    """Refuse what has a problem.

    Raises:
        ProblemsFound: all that is one.
    """
    found = tuple(problem for problem in problems if problem is not None)
    if found:
        raise ProblemsFound(found)


def make(declared: Declared, decided: Decided) -> pulumi.Output[dict[str, object]]:
    """Register the resources of a stack; returns the inventory document."""
    stack, config = declared.topology.stack, decided.config
    ssh_from = (config.ssh_from,) if config.ssh_from else decided.survey.proxy_ranges
    networks = HostNetworks(
        stack, NetworkSettings(config=config, machine=decided.machine, ssh_from=ssh_from)
    )
    settings = MachineSettings(
        config=config,
        machine=decided.machine,
        image=decided.survey.image,
        startup=_startup(decided.spec.weights.path),
        interfaces=networks.interfaces,
        domains=decided.domains,
        ready=networks.ready,
    )
    return _inventory(decided, Machines(stack, decided.topology.hosts, settings).instances)


def _domains(topology: Topology, machine: MachineType, survey: Survey) -> Mapping[str, int]:
    """The NVLink domain of each host; {} where domains end at the host, or the stack has one host alone."""
    if machine.hosts_per_domain is None or len(topology.hosts) == 1:
        return {}
    standing = {
        host: domain
        for host, each in survey.standing.items()
        if (domain := domain_number(topology.stack, each.policy)) is not None
    }
    return place_in_domains(topology, machine.hosts_per_domain, standing)


def _startup(path: str) -> str:
    """The script that joins the host's own disks, and puts weights and docker's data on them, at every boot."""
    lines = f'disks={DISKS}\nif ! mountpoint -q "$disks"; then\n{joined_disks(RAW_DISKS)}fi\n'
    return prepared(path) + lines + CONTAINERS


def _inventory(
    decided: Decided, instances: Mapping[str, compute.Instance]
) -> pulumi.Output[dict[str, object]]:
    """The inventory document, known when every machine is."""
    reached = {
        name: pulumi.Output.all(id=instance.id, address=instance.network_interfaces[0].network_ip)
        for name, instance in instances.items()
    }
    weights = {"storage": "local", "path": decided.spec.weights.path}
    return pulumi.Output.all(hosts=reached).apply(
        lambda known: inventory_document(
            decided.topology,
            {
                host.name: _record(decided, host, known["hosts"][host.name])
                for host in decided.topology.hosts
            },
            weights=weights,
            spec=decided.spec,
            url=None,
        )
    )


def _record(decided: Decided, host: TopologyHost, known: Mapping[str, str]) -> HostRecord:
    config = decided.config
    name = machine_name(decided.topology.stack, host.name)
    proxy = None if config.ssh_from else identity_aware_proxy(name, config)
    return HostRecord(
        address=known["address"],
        instance_id=known["id"],
        user=config.login,
        proxy_command=proxy,
        host_key=None,
        interface=config.interface or decided.machine.interface,
        # RDMA devices are named after their PCI slots; hosts tell, not the cloud.
        rdma_devices=(),
    )


def identity_aware_proxy(name: str, config: GoogleConfig) -> str:
    """The command through which SSH reaches a machine without a public address (`%p`: the port)."""
    return (
        f"gcloud compute start-iap-tunnel {name} %p --listen-on-stdin"
        f" --project {config.project} --zone {config.zone}"
    )
