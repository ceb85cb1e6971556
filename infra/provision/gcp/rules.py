"""Why a stack cannot be had from Google, or would take machines that stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from infra.catalog.machine_types import MachineType
from infra.errors import Problem
from infra.plan.topology import Topology
from infra.provision.config_problems import stack_problem
from infra.provision.gcp.config import GoogleConfig, config_problem
from infra.provision.gcp.survey import FoundMachine, Survey
from infra.provision.naming import give_back_machines
from infra.spec.nearest import nearest
from infra.spec.stack import StackSpec

LONGEST_NAME = 63  # RFC 1035, as Compute Engine has it
_LACKS, _STANDS = "platform-lacks", "machines-stand"


def stack_problems(topology: Topology, spec: StackSpec) -> Iterator[Problem]:
    """What a stack may ask for elsewhere and not here."""
    stack = topology.stack
    accelerators = {host.accelerator.id: host.accelerator for host in topology.hosts}
    for name, accelerator in accelerators.items():
        if "gcp" not in accelerator.instances:
            fix = "Set platform: existing-hosts and write an inventory."
            yield stack_problem(_LACKS, "accelerator", f"Google rents no {name}.", fix, stack)
    if len(accelerators) > 1:
        what = "One reservation holds one machine type, and the roles name different accelerators."
        yield stack_problem(_LACKS, "roles", what, "Give every role the same accelerator.", stack)
    kind = spec.capacity.kind if spec.capacity else None
    if kind != "reservation":
        said = f"{kind} is no way to buy" if kind else "It does not say how to buy"
        fix = "Write capacity: {kind: reservation}."
        yield stack_problem(_LACKS, "capacity", f"{said} machines of Google.", fix, stack)
    if spec.weights.storage not in (None, "local"):
        what = f"On gcp-gce weights lie on the hosts' own disks; {spec.weights.storage} is not made there."
        fix = "Write storage: local; `fab stage-weights` fills the disks from weights.source."
        yield stack_problem(_LACKS, "weights.storage", what, fix, stack)
    if spec.ingress != "none":
        what = "No load balancer is made on gcp-gce; clients call the router's host."
        yield stack_problem(_LACKS, "ingress", what, "Write ingress: none.", stack)


def name_problem(names: tuple[str, ...], stack: str) -> Problem | None:
    """A name of a machine, or of a part of the network, that is too long."""
    longest = max(names, key=len)
    if len(longest) <= LONGEST_NAME:
        return None
    what = f"{longest} has {len(longest)} letters, and a name at Google has {LONGEST_NAME} at most."
    return stack_problem(_LACKS, "", what, "Give the stack file a shorter name.", stack)


def replace_problems(config: GoogleConfig, topology: Topology) -> Iterator[Problem]:
    """Names in `gcp.replace_machines` that no host of the stack has."""
    hosts = [host.name for host in topology.hosts]
    for name in sorted(set(config.replace_machines) - set(hosts)):
        what = f"{name} is no host of {topology.stack}."
        problem = config_problem("replace_machines", what, "HOST,HOST", topology.stack)
        yield replace(problem, fix=f"{nearest(name, hosts)} {problem.fix}")


def moved_problem(config: GoogleConfig, previous: Mapping[str, str], stack: str) -> Problem | None:
    """Another project or zone than that of machines that stand: Compute Engine moves none."""
    place = f"projects/{config.project}/zones/{config.zone}/"
    elsewhere = next((each for each in previous.values() if not each.startswith(place)), None)
    if elsewhere is None:
        return None
    _, project, _, zone, *_ = elsewhere.split("/")
    key, was = ("project", project) if project != config.project else ("zone", zone)
    what = f"Machines of this stack stand in zone {zone} of {project}. A machine keeps its place."
    problem = config_problem(key, what, was, stack)
    return replace(problem, rule=_STANDS, fix=f"{problem.fix}. {_give_back(stack)}")


def network_problem(survey: Survey, config: GoogleConfig, stack: str) -> Problem | None:
    """Another block than that of the subnet in which machines stand."""
    if survey.hosts_block in (None, str(config.hosts_cidr)):
        return None
    what = (
        f"Machines stand in {survey.hosts_block}, and the configuration wants {config.hosts_cidr}. "
        "A machine keeps its network."
    )
    fix = f"Put the old value back. {_give_back(stack)}"
    return replace(config_problem("vpc_cidr", what, "", stack, fix), rule=_STANDS)


def standing_problems(
    standing: Mapping[str, FoundMachine], config: GoogleConfig, machine: MachineType, stack: str
) -> Iterator[Problem]:
    """Why machines that stand would have to go, unless the operator replaces some of them."""
    wanted = {
        "machine type": machine.id,
        "reservation": config.reservation,
        **({"image": config.image} if config.image else {}),
        "interfaces": machine.interface_types,
    }
    by_change: dict[str, list[str]] = {}
    for host, found in standing.items():
        changed = [word for word, value in wanted.items() if found.launched[word] != value]
        told = ", ".join(f"{word} ({found.launched[word]}; now {wanted[word]})" for word in changed)
        by_change.setdefault(told, []).append(host)
    by_change.pop("", None)
    if not set(standing) & set(config.replace_machines):
        for told, hosts in by_change.items():
            what = f"{_counted(hosts)} launched with another {told}. A machine takes such a value at its launch alone."
            problem = config_problem("replace_machines", what, hosts[0], stack)
            fix = (
                f"To keep the machines, put the old value back. To replace some, type `fab down --stack {stack}`. "
                f"{problem.fix.replace('Type', 'Then type')}"
            )
            yield replace(problem, rule=_STANDS, fix=fix)
    larger = [host for host, each in standing.items() if each.root_gib > config.root_volume_gib]
    if larger:
        size = max(standing[host].root_gib for host in larger)
        what = f"{_counted(larger)} launched with {size} GiB. A boot volume grows in place and never shrinks."
        problem = config_problem("root_volume_gib", what, str(size), stack)
        yield replace(problem, rule=_STANDS)


def _counted(hosts: list[str]) -> str:
    """`1 machine (decode-0) was`, `6 machines (prefill-0, …) were`."""
    if len(hosts) == 1:
        return f"1 machine ({hosts[0]}) was"
    return f"{len(hosts)} machines ({hosts[0]}, …) were"


def _give_back(stack: str) -> str:
    return f"Or give the machines back first: `fab down --stack {stack}`, then `{give_back_machines(stack)}`."
