"""An imported recipe as a stack file, and how the stack's plan differs from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.catalog.schema import Checkpoint
from infra.engines.command_line import as_map, compact_json
from infra.engines.registry import ENGINES
from infra.errors import StackError
from infra.plan.foreign.imported_recipe import ImportedRecipe
from infra.plan.foreign.seats import Seat, is_address
from infra.plan.process import Plan, Process

_LIMITS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
_ROUTERS = {"vllm": "vllm-router", "vllm-ascend": "ascend-proxy", "sglang": "sglang-router"}
_MODES = {"hybrid": "hybrid", "external": "external", "multi-port": "multi-port"}
_EXPERTS = ("enable-expert-parallel", "expert-parallel-size")
_ABSENT = "not set"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that the stack's plan has otherwise than the recipe, in a role's first process that shows it."""

    role: str
    what: str
    theirs: str
    ours: str


def stack_fields(recipe: ImportedRecipe, catalog: Catalog) -> dict[str, object]:
    """The stack file's content.

    Raises:
        StackError: the recipe leaves open what a stack must say.
    """
    facts, plan = recipe.facts, recipe.assembled.plan
    if facts.checkpoint is None or facts.unknown:
        lacking = ", ".join(sorted(facts.unknown)) or "checkpoint"
        fix = "Give --engine, --accelerator and --checkpoint as far as the catalogue has them."
        raise StackError("--to-stack", f"A stack must name what is not known here: {lacking}.", fix)
    pinned = catalog.releases(plan.engine.name)
    if plan.engine.version not in pinned:
        what = f"{plan.engine.name} {plan.engine.version} is known for judging alone."
        fix = f"Give --engine {plan.engine.name}:VERSION with one of {', '.join(pinned)}."
        raise StackError("--to-stack", what, fix)
    roles = {
        role: _role_fields(recipe, role)
        for role in ("unified", "prefill", "decode")
        if any(process.role == role for process in plan.processes)
    }
    if len(roles) == 1 and "unified" not in roles:
        what = f"The recipe has {next(iter(roles))} alone; a stack has both roles."
        raise StackError("--to-stack", what, "Give a file that starts both.")
    fields: dict[str, object] = {
        "summary": f"Imported from {recipe.file.rpartition('/')[2]}",
        "checkpoint": facts.checkpoint.id,
        "accelerator": facts.accelerator.id,
        "engine": {"name": plan.engine.name, "version": plan.engine.version},
        "platform": "existing-hosts",
        "roles": roles,
    }
    if plan.runtime != "native":  # of a bare command line nobody knows what it is wrapped in
        fields["runtime"] = plan.runtime
    draft = _draft(recipe, catalog)
    if draft is not None:
        fields["draft"] = draft
    transfer = _kv_transfer(recipe)
    if transfer is not None:
        fields["kv_transfer"] = transfer
    served = [process for process in plan.processes if process.endpoint]
    if len(served) > 1:
        fields["router"] = {"name": _ROUTERS[plan.engine.name]}
    entrance = served[-1] if served else None
    if entrance is not None and (len(served) == 1 or entrance.kind == "router"):
        fields["port"] = int(str(entrance.endpoint).rpartition(":")[2])
    return fields


def differences(recipe: ImportedRecipe, ours: Plan, catalog: Catalog) -> tuple[Difference, ...]:
    """What the compiled stack has otherwise, once per role."""
    flags = catalog.flags(recipe.facts.release.flags_catalogue)
    engine = ENGINES[recipe.facts.release.engine]

    def parsed(process: Process) -> dict[str, str]:
        reading = engine.read(process.argv, process.env, num_devices=64, flags=flags)
        found = {f"--{name}": _shown(value) for name, value in reading.flags.items()}
        return found | {f"env {name}": value for name, value in process.env.items()}

    found: dict[Difference, None] = {}
    for role in dict.fromkeys(
        p.role for p in recipe.assembled.plan.processes if p.kind == "engine"
    ):
        left = [p for p in recipe.assembled.plan.processes if p.role == role]
        right = [p for p in ours.processes if p.role == role]
        if len(left) != len(right):
            counts = Difference(
                role=role, what="processes", theirs=str(len(left)), ours=str(len(right))
            )
            found[counts] = None
        seen: set[str] = set()
        for theirs, own in zip(left, right, strict=False):
            for difference in _between(role, parsed(theirs), parsed(own)):
                if difference.what not in seen:
                    seen.add(difference.what)
                    found[difference] = None
    return tuple(found)


def _between(role: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[Difference]:
    for name in dict.fromkeys((*theirs, *ours)):
        left, right = theirs.get(name, _ABSENT), ours.get(name, _ABSENT)
        if left != right:
            yield Difference(role=role, what=name, theirs=left, ours=right)


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return compact_json(value)
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _role_fields(recipe: ImportedRecipe, role: str) -> dict[str, object]:
    plan = recipe.assembled.plan
    members = [process for process in plan.processes if process.role == role]
    seats = [recipe.assembled.seats[process.id] for process in members]
    first = seats[0]
    layout = first.reading.extra.get("parallel") or first.reading.extra.get("layout")
    fields: dict[str, object] = {
        "replicas": len({process.group for process in members}),
        "data_parallel": first.reading.group_size,
        "tensor_parallel": int(getattr(layout, "tensor", 1)),
        "pipeline_parallel": int(getattr(layout, "pipeline", 1)),
    }
    fields = {name: value for name, value in fields.items() if value != 1}
    mode = _MODES.get(str(getattr(layout, "mode", "")))
    if mode is not None:
        fields["load_balancing"] = mode
    if any(first.reading.flags.get(name) for name in _EXPERTS):
        fields["expert_parallel"] = True
    engine = ENGINES[recipe.facts.release.engine]
    for flag, field in engine.owned_flags.items():
        if field in _LIMITS and flag in first.reading.flags:
            fields[field] = first.reading.flags[flag]
    fields["features"] = []
    fields["flags"] = {
        name: _plain(value)
        for name, value in first.reading.flags.items()
        if name not in engine.owned_flags and name != "model" and name not in first.open_flags
    }
    fields["env"] = {
        name: value
        for name, value in _shared_env(seats).items()
        if name not in engine.owned_variables and name not in first.open_variables
    }
    return {name: value for name, value in fields.items() if value not in ({}, None)}


def _shared_env(seats: Sequence[Seat]) -> dict[str, str]:
    """Variables that every process of the role has alike, and that name no address or interface of a host."""
    first = seats[0].env
    return {
        name: value
        for name, value in first.items()
        if all(seat.env.get(name) == value for seat in seats)
        and name not in seats[0].launch.prepended
        and not is_address(value)
        and "IFNAME" not in name
        and name != "NIC_NAME"
    }


def _plain(value: object) -> object:
    """Tuples as lists, which YAML has."""
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _draft(recipe: ImportedRecipe, catalog: Catalog) -> dict[str, object] | None:
    """The draft model, where the catalogue has it."""
    for seat in recipe.assembled.seats.values():
        config = as_map(seat.reading.flags.get("speculative-config"))
        path = str(
            config.get("model") or seat.reading.flags.get("speculative-draft-model-path") or ""
        )
        steps = config.get("num_speculative_tokens") or seat.reading.flags.get(
            "speculative-num-steps"
        )
        for name in catalog.ids("checkpoints"):
            entry = catalog.checkpoint(name)
            if entry.kind == "draft" and path and _is_draft(path, entry) and isinstance(steps, int):
                return {"checkpoint": name, "num_speculative_tokens": steps}
    return None


def _is_draft(path: str, entry: Checkpoint) -> bool:
    return path == entry.repository or entry.id in path.split("/")[-2:]


def _kv_transfer(recipe: ImportedRecipe) -> str | None:
    for process in recipe.assembled.plan.processes:
        if process.role not in ("prefill", "decode"):
            continue
        flags = recipe.assembled.seats[process.id].reading.flags
        told = str(flags.get("disaggregation-transfer-backend") or "")
        name = str(as_map(flags.get("kv-transfer-config")).get("kv_connector") or told)
        return "nixl" if "nixl" in name.lower() else "mooncake"
    return None
