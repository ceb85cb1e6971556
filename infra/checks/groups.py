"""Rules about what the processes of one group are told: one thing, but for what is each one's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import compact_json
from infra.engines.group_settings import GroupSettings
from infra.engines.registry import ENGINES
from infra.plan.process import Process

# Equal on all ranks: vLLM hashes every ParallelConfig field but ranks, addresses, ports, nodes, executors and back ends
# of launching, and refuses a rank whose hash differs (vllm config/parallel.py compute_hash, v1/engine/utils.py@0.22.1).
HASHED_FLAGS = (
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "decode-context-parallel-size",
    "prefill-context-parallel-size",
    "enable-expert-parallel",
    "all2all-backend",
    "enable-eplb",
    "eplb-config",
    "expert-placement-strategy",
    "disable-nccl-for-dp-synchronization",
    "enable-dbo",
    "ubatch-size",
    "dbo-decode-token-threshold",
    "dbo-prefill-token-threshold",
    "cp-kv-cache-interleave-size",
    "dcp-kv-cache-interleave-size",
)
# Of these, what says whether batches overlap; the plugin puts it back to off since 0.22 (platform.py@0.22.1rc1).
OVERLAP_FLAGS = ("enable-dbo", "ubatch-size")
# Before 0.5.12 each node of prefill registers with rank 0's host at its own port (disaggregation/common/conn.py@
# 0.5.9 to 0.5.11); since then all take rank 0's (0.5.12, 0.5.16, 0.5.23; sgl-project/sglang#24378).
BOOTSTRAP_FLAG = "disaggregation-bootstrap-port"
BOOTSTRAPS_APART = releases_of("sglang", before="0.5.12")
OVERLAPS = (*releases_of("vllm"), *releases_of("vllm-ascend", before="0.22.0"))


def flags_equal(view: PlanView) -> Iterator[Finding]:
    """Processes of a group are given equal flags, but for a process's own: place, HTTP server, logs, host.

    vLLM refuses a rank whose parallel flags differ; with other flags unequal, ranks wait for each other in a step.
    """
    settings = ENGINES[view.release.engine].group_settings
    free = settings.own_flags | settings.loose_flags
    if not view.is_among(OVERLAPS):
        free = free.union(OVERLAP_FLAGS)
    bound = {BOOTSTRAP_FLAG} if view.is_among(BOOTSTRAPS_APART) else set()
    for group, first, process in _pairs(view):
        is_prefill = view.flags(first).get("disaggregation-mode") == "prefill"
        for name in _given(view, first, process):
            is_bound = name not in free or (is_prefill and name in bound)
            if is_bound and _differ(view, settings, name, first, process):
                yield _flag_finding(view, group, name, (first, process))


def loose_flags_equal(view: PlanView) -> Iterator[Finding]:
    """Flags that no step of a group depends on are meant to be equal on all of its processes."""
    settings = ENGINES[view.release.engine].group_settings
    for group, first, process in _pairs(view):
        for name in _given(view, first, process):
            if name in settings.loose_flags and _differ(view, settings, name, first, process):
                yield _flag_finding(view, group, name, (first, process))


def step_variables_equal(view: PlanView) -> Iterator[Finding]:
    """Variables that decide what ranks exchange in a step are equal on all processes of a group."""
    settings = ENGINES[view.release.engine].group_settings
    for group, first, process in _pairs(view):
        for name in _variables(first, process):
            if settings.step_variables.fullmatch(name):
                fix = "Give all processes of a group the same: they meet in collectives that it decides."
                yield _variable_finding(group, name, (first, process), fix)


def loose_variables_equal(view: PlanView) -> Iterator[Finding]:
    """Variables that the engine and its libraries read are meant to be equal on all processes of a group."""
    settings = ENGINES[view.release.engine].group_settings
    for group, first, process in _pairs(view):
        for name in _variables(first, process):
            if settings.step_variables.fullmatch(name) or settings.own_variables.fullmatch(name):
                continue
            if name in view.environment.names or settings.loose_variables.fullmatch(name):
                fix = "Give all processes of a group the same, or say why one host needs another."
                yield _variable_finding(group, name, (first, process), fix)


def _pairs(view: PlanView) -> Iterator[tuple[str, Process, Process]]:
    """(group, its first process, another of another kind): processes of one kind are told the same."""
    for group, members in view.groups.items():
        seen = {view.kinds.of[members[0].id].id}
        for process in members[1:]:
            kind = view.kinds.of[process.id].id
            if kind not in seen:
                seen.add(kind)
                yield group, members[0], process


def _given(view: PlanView, first: Process, process: Process) -> Sequence[str]:
    """Flags that either is given; only those of both, where a file leaves words of one open."""
    ours, theirs = view.flags(first), view.flags(process)
    if {first.id, process.id} & view.surroundings.partly_open:
        return [name for name in ours if name in theirs]
    return list({**ours, **theirs})


def _differ(
    view: PlanView, settings: GroupSettings, name: str, first: Process, process: Process
) -> bool:
    own = settings.own_keys.get(name, frozenset[str]())
    ours, theirs = (
        _without(view.in_effect(each, name), own)
        if view.flags(first).get(name) != view.flags(process).get(name)
        else None
        for each in (first, process)
    )
    return ours != theirs and not (_is_open(ours) or _is_open(theirs))


def _without(value: object, own: frozenset[str]) -> object:
    """A flag's value without keys that are each process's own, at any depth; numbers as text, as JSON may have them."""
    if isinstance(value, Mapping):
        return {key: _without(each, own) for key, each in value.items() if key not in own}
    return value


def _is_open(value: object) -> bool:
    """Whether a shell or a pod fills a value in."""
    return "$" in str(value)


def _variables(first: Process, process: Process) -> Iterator[str]:
    """Variables whose values are known and differ."""
    for name in {**first.env, **process.env}:
        ours, theirs = first.env.get(name), process.env.get(name)
        if ours != theirs and not (_is_open(ours) or _is_open(theirs)):
            yield name


def _flag_finding(view: PlanView, group: str, name: str, pair: tuple[Process, Process]) -> Finding:
    first, process = pair
    ours, theirs = _told_apart(*(view.flags(each).get(name) for each in pair))
    what = f"{group}: --{name} is {ours} on {first.id} and {theirs} on {process.id}."
    fix = "Give all processes of a group the same: they run every step together."
    if name in HASHED_FLAGS and view.family == "vllm":
        fix = (
            "Give all ranks of a group the same parallel flags: the handshake compares their hash."
        )
    return Finding(
        field=f"roles.{process.role}.flags.{name}", what=what, fix=fix, process=process.id
    )


def _variable_finding(group: str, name: str, pair: tuple[Process, Process], fix: str) -> Finding:
    first, process = pair
    ours, theirs = (_told(each.env.get(name)) for each in pair)
    what = f"{group}: {name} is {ours} on {first.id} and {theirs} on {process.id}."
    field = f"roles.{process.role}.env.{name}"
    return Finding(field=field, what=what, fix=fix, process=process.id)


def _told_apart(ours: object, theirs: object) -> tuple[str, str]:
    """Two values in words; of two maps the keys that differ."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        ours, theirs = ({k: each[k] for k in keys if k in each} for each in (ours, theirs))
        return compact_json(ours), compact_json(theirs)
    return _told(ours), _told(theirs)


def _told(value: object) -> str:
    return "left out" if value is None else str(value)
