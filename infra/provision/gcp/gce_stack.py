"""Machines and networks of one stack on Google Compute Engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pulumi
from pulumi_gcp import compute

from infra.catalog.machine_types import MachineType, read_machine_type
from infra.errors import Problem, ProblemsFound
from infra.plan.topology import Topology, TopologyHost
from infra.provision.boot_script import CONTAINERS, DISKS, joined_disks, prepared
from infra.provision.gcp.config import GoogleConfig, config_problem, read_google_config
from infra.provision.gcp.host_networks import LONGEST_NAME, HostNetworks, NetworkSettings
from infra.provision.gcp.machines import Machines, MachineSettings, machine_name
from infra.provision.gcp.survey import FoundMachine, Survey, survey_project
from infra.provision.inventory_output import HostRecord, inventory_document
from infra.provision.judged_stack import judged_plan
from infra.provision.naming import give_back_machines
from infra.provision.nvlink_domains import place_in_domains
from infra.provision.platform import Declared
from infra.provision.previous import read_previous_machines
from infra.spec.nearest import nearest
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
    image: str
    domains: Mapping[str, int]


def decide(declared: Declared) -> Decided:
    """Everything that can be refused, before the first resource.

    Raises:
        InfraError: the stack or the configuration is wrong, or the project lacks what they name.
    """
    stack, topology = declared.stack, declared.topology
    judged_plan(stack, declared.catalog)
    spec = stack.spec
    refused = tuple(_stack_problems(topology, spec))
    if refused:
        raise ProblemsFound(refused)
    machine = read_machine_type(topology.hosts[0].accelerator.instances["gcp"])
    config = read_google_config(topology.stack, "reservation")
    moved = _moved_problem(config, read_previous_machines(topology.stack), topology.stack)
    if moved is not None:
        raise ProblemsFound((moved,))
    names = {host.name: machine_name(topology.stack, host.name) for host in topology.hosts}
    survey = survey_project(config, machine, names, topology.stack)
    problems = [
        *_name_problems(names, topology.stack),
        *_replace_problems(config, topology),
        *_standing_problems(survey.standing, config, machine, topology.stack),
        *filter(None, (_network_problem(survey, config, topology.stack),)),
    ]
    if survey.image is None and not problems:
        what = f"Nobody may look at {machine.image.project}, and a machine starts from one certain image."
        problems.append(
            config_problem(
                "image", what, "projects/my-project/global/images/my-image", topology.stack
            )
        )
    if problems:
        raise ProblemsFound(tuple(problems))
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
        image=survey.image or "",
        domains=_domains(topology, machine),
    )


def make(declared: Declared, decided: Decided) -> pulumi.Output[dict[str, object]]:
    """Register the resources of a stack; returns the inventory document."""
    stack, config = declared.topology.stack, decided.config
    own = (config.ssh_from,) if config.ssh_from else decided.survey.proxy_ranges or ()
    networks = HostNetworks(
        stack, NetworkSettings(config=config, machine=decided.machine, ssh_from=own)
    )
    settings = MachineSettings(
        config=config,
        machine=decided.machine,
        image=decided.image,
        startup=_startup(decided.spec.weights.path),
        interfaces=networks.interfaces,
        domains=decided.domains,
        ready=networks.ready,
    )
    return _inventory(decided, Machines(stack, decided.topology.hosts, settings).instances)


def _stack_problems(topology: Topology, spec: StackSpec) -> Iterator[Problem]:
    """What a stack may ask for elsewhere and not here."""
    for accelerator in {host.accelerator.id: host.accelerator for host in topology.hosts}.values():
        if "gcp" not in accelerator.instances:
            fix = "Set platform: existing-hosts and write an inventory."
            what = f"Google rents no {accelerator.id}."
            yield _stack_problem(topology.stack, "accelerator", what, fix)
    if len({host.accelerator.id for host in topology.hosts}) > 1:
        what = "One reservation holds one machine type, and the roles name different accelerators."
        yield _stack_problem(topology.stack, "roles", what, "Give every role the same accelerator.")
    if spec.capacity is None or spec.capacity.kind != "reservation":
        said = (
            f"{spec.capacity.kind} is no way to buy"
            if spec.capacity
            else "It does not say how to buy"
        )
        what = f"{said} machines of Google."
        yield _stack_problem(
            topology.stack, "capacity", what, "Write capacity: {kind: reservation}."
        )
    if spec.weights.storage not in (None, "local"):
        what = f"On gcp-gce weights lie on the hosts' own disks; {spec.weights.storage} is not made there."
        fix = "Write storage: local; `fab stage-weights` fills the disks from weights.source."
        yield _stack_problem(topology.stack, "weights.storage", what, fix)
    if spec.ingress != "none":
        what = "No load balancer is made on gcp-gce; clients call the router's host."
        yield _stack_problem(topology.stack, "ingress", what, "Write ingress: none.")


def _name_problems(names: Mapping[str, str], stack: str) -> Iterator[Problem]:
    longest = max((*names.values(), LONGEST_NAME.format(stack=stack)), key=len)
    if len(longest) > 63:  # noqa: PLR2004 - RFC 1035, as Compute Engine has it
        what = f"{longest} has {len(longest)} letters, and a name at Google has 63 at most."
        yield _stack_problem(stack, "", what, "Give the stack file a shorter name.")


def _replace_problems(config: GoogleConfig, topology: Topology) -> Iterator[Problem]:
    hosts = [host.name for host in topology.hosts]
    for name in sorted(set(config.replace_machines) - set(hosts)):
        what = f"{name} is no host of {topology.stack}."
        problem = config_problem("replace_machines", what, "HOST,HOST", topology.stack)
        yield replace(problem, fix=f"{nearest(name, hosts)} {problem.fix}")


def _standing_problems(
    standing: Mapping[str, FoundMachine],
    config: GoogleConfig,
    machine: MachineType,
    stack: str,
) -> Iterator[Problem]:
    """Why a machine that stands would have to go: it takes these at its launch alone."""
    wanted = {
        "machine type": machine.id,
        "reservation": config.reservation or "",
        **({"image": config.image} if config.image else {}),
        "interfaces": ["GVNIC"] * machine.num_host_interfaces
        + ["MRDMA"] * machine.num_rdma_interfaces,
    }
    by_change: dict[str, list[str]] = {}
    for host, found in standing.items():
        changed = [word for word, value in wanted.items() if found.launched[word] != value]
        if (
            found.root_volume_gib > config.root_volume_gib
        ):  # Compute Engine lets a disk grow in place
            changed.append("root_volume_gib")
        launched = {**found.launched, "root_volume_gib": found.root_volume_gib}
        now = {**wanted, "root_volume_gib": config.root_volume_gib}
        told = ", ".join(f"{word} ({launched[word]}; now {now[word]})" for word in changed)
        by_change.setdefault(told, []).append(host)
    by_change.pop("", None)
    if set(standing) & set(config.replace_machines):
        return  # the operator replaces them step by step; the others keep what they have
    for told, hosts in by_change.items():
        count = (
            f"{len(hosts)} machine{'s' * (len(hosts) > 1)} ({hosts[0]}{', …' * (len(hosts) > 1)})"
        )
        what = f"{count} were launched with another {told}. A machine takes such a value at its launch alone."
        problem = config_problem("replace_machines", what, hosts[0], stack)
        fix = (
            f"To keep the machines, put the old value back. To replace some, type `fab down --stack {stack}`. "
            f"{problem.fix.replace('Type', 'Then type')}"
        )
        yield replace(problem, rule="machines-stand", fix=fix)


def _moved_problem(config: GoogleConfig, previous: Mapping[str, str], stack: str) -> Problem | None:
    """Another project or zone than that of machines that stand: Compute Engine moves none."""
    place = f"projects/{config.project}/zones/{config.zone}/"
    elsewhere = next((each for each in previous.values() if not each.startswith(place)), None)
    if elsewhere is None:
        return None
    _, project, _, zone, *_ = elsewhere.split("/")
    key, was = ("project", project) if project != config.project else ("zone", zone)
    what = f"Machines of this stack stand in zone {zone} of {project}. A machine keeps its place."
    problem = config_problem(key, what, was, stack)
    return replace(problem, rule="machines-stand", fix=f"{problem.fix}. {_give_back(stack)}")


def _network_problem(survey: Survey, config: GoogleConfig, stack: str) -> Problem | None:
    """Another block than that of the subnet in which machines stand."""
    if survey.hosts_block in (None, str(config.hosts_cidr)):
        return None
    what = (
        f"{len(survey.standing)} machines stand in {survey.hosts_block}, and the configuration wants "
        f"{config.hosts_cidr}. A machine keeps its network."
    )
    fix = f"Put the old value back. {_give_back(stack)}"
    return replace(config_problem("vpc_cidr", what, "", stack), rule="machines-stand", fix=fix)


def _give_back(stack: str) -> str:
    return f"Or give the machines back first: `fab down --stack {stack}`, then `{give_back_machines(stack)}`."


def _stack_problem(stack: str, field: str, what: str, fix: str) -> Problem:
    return Problem(
        rule="platform-lacks",
        severity="error",
        file=f"stacks/{stack}.yaml",
        field=field,
        what=what,
        fix=fix,
    )


def _domains(topology: Topology, machine: MachineType) -> Mapping[str, int]:
    """The NVLink domain of each host; {} where domains end at the host, or the stack has one host alone."""
    if machine.hosts_per_domain is None or len(topology.hosts) == 1:
        return {}
    return place_in_domains(topology, machine.hosts_per_domain)


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
