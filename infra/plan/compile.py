"""The compiler: a stack and the hosts that exist become a plan of processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.catalog.load import Catalog
from infra.engines.capabilities import capabilities_of
from infra.engines.registry import ENGINES
from infra.errors import Problem, ProblemsFound, StackError
from infra.inventory.book import InventoryAddresses, documentation_hosts, match_hosts
from infra.inventory.hosts import AddressBook, Inventory
from infra.inventory.pods import PodAddresses, pod_addresses
from infra.plan.document import plan_hash
from infra.plan.edge import (
    compile_edge,
    edge_secrets,
    has_host_beside,
    plan_edge,
    refuse_edge,
)
from infra.plan.engine_processes import EngineCompiler
from infra.plan.placement import build_topology
from infra.plan.ports import PortAllocator
from infra.plan.process import Firewall, Plan, PlanEngine, PlanHost, Process
from infra.plan.resolve import Problems, ResolvedStack, resolve
from infra.plan.router import RouterPlace, compile_router, num_endpoints
from infra.plan.stack_misfits import refuse_misfits
from infra.plan.topology import Topology
from infra.plan.weights_origin import refuse_unusable_source
from infra.spec.load import LoadedStack, load_stack
from infra.spec.stack import KUBERNETES, StackSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledStack:
    """A stack compiled against addresses: everything that later rooms read.

    `book` knows the inventory's entry of each plan host; pods have none.
    """

    stack: LoadedStack
    resolved: ResolvedStack
    topology: Topology
    book: InventoryAddresses
    plan: Plan


def compile_file(
    name_or_path: str,
    *,
    catalog: Catalog,
    inventory: Inventory | None = None,
    sets: Sequence[str] = (),
) -> CompiledStack:
    """A stack file compiled to a plan.

    Args:
        name_or_path: a stack's name or a file.
        catalog: what is true of the world.
        inventory: the hosts that exist; None for documentation addresses.
        sets: `field=value` words.

    Raises:
        ProblemsFound: the stack cannot be compiled; every problem found on the way.
        StackError: the inventory has too few hosts, or a port block is full.
    """
    return compile_stack(load_stack(name_or_path, sets), catalog=catalog, inventory=inventory)


def compile_stack(
    stack: LoadedStack, *, catalog: Catalog, inventory: Inventory | None = None
) -> CompiledStack:
    """A loaded stack compiled to a plan; see `compile_file`."""
    resolved, topology = resolve_topology(stack, catalog)
    book = address_book(topology, inventory)
    plan = compile_plan(resolved, topology, book, catalog)
    known = book if isinstance(book, InventoryAddresses) else InventoryAddresses({})
    return CompiledStack(stack=stack, resolved=resolved, topology=topology, book=known, plan=plan)


def resolve_topology(stack: LoadedStack, catalog: Catalog) -> tuple[ResolvedStack, Topology]:
    """The part of compilation that needs no address; what provisioning reads.

    Raises:
        ProblemsFound: the stack cannot be placed.
    """
    resolved, topology, problems = analyse_stack(stack, catalog)
    if resolved is None or topology is None or problems:
        raise ProblemsFound(problems)
    return resolved, topology


def analyse_stack(
    stack: LoadedStack, catalog: Catalog
) -> tuple[ResolvedStack | None, Topology | None, tuple[Problem, ...]]:
    """As far as a stack can be resolved and placed, and every problem on the way; raises nothing.

    A topology may come with problems (devices left idle, a missing router): rules can still judge it.
    """
    problems = Problems(stack)
    resolved = resolve(stack, catalog, problems)
    _refuse_incomplete(stack, problems)
    refuse_unusable_source(stack, problems)
    refuse_edge(stack, problems)
    topology = build_topology(resolved, problems) if resolved else None
    if topology is not None:
        _refuse_missing_router(stack, topology, problems)
    return resolved, topology, tuple(problems.found)


def address_book(
    topology: Topology, inventory: Inventory | None
) -> InventoryAddresses | PodAddresses:
    """Addresses of the topology's hosts: names of pods, from an inventory, or documentation addresses.

    Raises:
        StackError: the inventory has too few hosts, or the hosts are pods and need none.
    """
    if topology.is_of_pods:
        if inventory is not None:
            what = (
                f"The stack runs in pods ({topology.platform}): no host of an inventory serves it."
            )
            raise StackError(str(inventory.path), what, "Leave --inventory out.")
        groups = [(each.name, each.hosts) for each in topology.groups]
        return pod_addresses(topology.stack, groups, topology.workload)
    wanted = [(host.name, str(host.roles[0])) for host in topology.hosts]
    wanted += [(topology.edge_host, "edge")] if topology.has_own_edge else []
    if inventory is None:
        return documentation_hosts([name for name, _ in wanted])
    return InventoryAddresses(match_hosts(wanted, inventory))


def compile_plan(
    resolved: ResolvedStack, topology: Topology, book: AddressBook, catalog: Catalog
) -> Plan:
    """Every process of a topology, with addresses from a book.

    Raises:
        ProblemsFound: a value does not pass the gate.
    """
    spec, first = resolved.stack.spec, resolved.roles[0]
    plan = Plan(
        stack=resolved.stack.name,
        hash="",
        model=first.weights.checkpoint.repository,
        checkpoint=first.weights.checkpoint.id,
        platform=spec.platform,
        runtime=spec.runtime,
        tuning=resolved.tuning,
        engine=_engine(resolved),
        weights_path=spec.weights.path,
        secrets=_secrets(spec),
        hosts=_hosts(resolved, topology, book),
        processes=_processes(resolved, topology, book, catalog),
        capabilities=capabilities_of(resolved.roles),
        firewall=Firewall(clients=spec.clients, monitors=spec.monitors)
        if spec.firewall == "plan"
        else None,
        edge=plan_edge(spec),
    )
    refuse_misfits(plan, resolved.stack)
    return replace(plan, hash=plan_hash(plan))


def _secrets(spec: StackSpec) -> Mapping[str, Mapping[str, str]]:
    """Every reference by name; keys of clients belong to an edge alone."""
    own = {name: ref.model_dump(exclude_none=True) for name, ref in spec.secrets.items()}
    return dict(sorted({**own, **edge_secrets(spec)}.items()))


def _hosts(resolved: ResolvedStack, topology: Topology, book: AddressBook) -> tuple[PlanHost, ...]:
    """The topology's hosts; a router or an edge that runs on none of them has a host without devices."""
    hosts = tuple(
        PlanHost(
            name=host.name,
            roles=host.roles,
            address=book.address(host.name, seen_from=host.name),
            accelerator=host.accelerator.id,
            num_devices=host.accelerator.devices_per_host,
        )
        for host in topology.hosts
    )
    spec = resolved.stack.spec
    fronts: list[tuple[str, str]] = []
    if spec.router is not None and topology.is_of_pods:
        fronts.append((topology.router_host, "router"))
    if has_host_beside(spec, topology):
        fronts.append((topology.edge_host, "edge"))
    return hosts + tuple(
        replace(
            hosts[0],
            name=name,
            roles=(role,),
            address=book.address(name, seen_from=name),
            num_devices=0,
        )
        for name, role in fronts
    )


def _engine(resolved: ResolvedStack) -> PlanEngine:
    spec, image = resolved.stack.spec, resolved.roles[0].image
    return PlanEngine(
        name=spec.engine.name,
        version=spec.engine.version,
        image=spec.engine.image or (image.reference if image else ""),
        entrypoint=image.entrypoint if image else (),
    )


def _processes(
    resolved: ResolvedStack, topology: Topology, book: AddressBook, catalog: Catalog
) -> tuple[Process, ...]:
    spec = resolved.stack.spec
    allocator = PortAllocator(left=spec.leave_devices)
    # without a router the only endpoint takes it, and SGLang's other hosts the same one
    has_front = spec.router is not None or spec.edge is not None
    for name in [topology.router_host] if has_front else [host.name for host in topology.hosts]:
        allocator.reserve(name, spec.port)
    compiler = EngineCompiler(
        engine=ENGINES[spec.engine.name],
        flags=catalog.flags(resolved.roles[0].release.flags_catalogue),
        book=book,
        peers={settings.role: settings for settings in resolved.roles},
        allocator=allocator,
        client_port=None if has_front or num_endpoints(topology) != 1 else spec.port,
        num_devices={host.name: host.accelerator.devices_per_host for host in topology.hosts},
    )
    engines = compiler.compile_all(topology)
    processes = tuple(process for process, _ in engines)
    if spec.router is not None:
        place = _router_place(spec, topology, allocator)
        processes += (compile_router(resolved, book, catalog, engines, place),)
    if spec.edge is not None:
        serving = next(p for p in reversed(processes) if p.endpoint is not None)
        processes += (compile_edge(spec, topology, book, serving),)
    return processes


def _router_place(spec: StackSpec, topology: Topology, allocator: PortAllocator) -> RouterPlace:
    """What clients dial, or (behind an edge of its host) a port that nobody else reaches."""
    host = topology.router_host
    if spec.edge is None or topology.edge_host != host:
        return RouterPlace(host=host, port=spec.port, is_behind_edge=False)
    return RouterPlace(host=host, port=allocator.allocate("http", (host,), 1), is_behind_edge=True)


def _refuse_incomplete(stack: LoadedStack, problems: Problems) -> None:
    """What the fields demand of each other, before anything is placed."""
    spec = stack.spec
    disaggregated = spec.roles.unified is None
    if disaggregated and spec.kv_transfer is None:
        fix = "Add `kv_transfer: nixl` or `kv_transfer: mooncake`."
        problems.add(
            "missing-kv-transfer", "kv_transfer", "Prefill and decode need a KV transfer.", fix
        )
    if disaggregated and spec.router is None:
        fix = "Add `router: {name: vllm-router}` (sglang-router for SGLang, ascend-proxy for vllm-ascend)."
        problems.add("missing-router", "router", "Prefill and decode need a router in front.", fix)
    if spec.firewall == "plan" and spec.platform in KUBERNETES:
        what = f"Pods of {spec.platform} have networks of their own, which no table of a host's own ports filters."
        fix = "Remove it; close the nodes' network with security groups, or the cluster's own host policies."
        problems.add("firewall-of-pods", "firewall", what, fix)
    if disaggregated and spec.engine.name == "vllm-ascend" and spec.kv_transfer == "nixl":
        what = "vllm-ascend moves KV caches with Mooncake's connector; nixl would be left unused."
        problems.add("kv-transfer-engine", "kv_transfer", what, "Write kv_transfer: mooncake.")
    if not disaggregated and spec.kubernetes.workload == "disaggregated-set":
        what = "A DisaggregatedSet holds prefill and decode; a unified role is one set already."
        fix = "Write kubernetes.workload: leader-worker-set, or prefill and decode under roles."
        problems.add("workload-of-one-role", "kubernetes.workload", what, fix)
    if not disaggregated and spec.kv_transfer is not None:
        problems.add(
            "needless-kv-transfer",
            "kv_transfer",
            "A unified role transfers no KV.",
            "Remove kv_transfer.",
        )


def _refuse_missing_router(stack: LoadedStack, topology: Topology, problems: Problems) -> None:
    if stack.spec.roles.unified is None or stack.spec.router is not None:
        return
    count = num_endpoints(topology)
    if count > 1:
        what = f"The stack has {count} endpoints and no router: clients would need to know all of them."
        problems.add(
            "missing-router",
            "router",
            what,
            "Add `router: {name: vllm-router}`, or use one internal replica.",
        )
