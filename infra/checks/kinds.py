"""Kinds of processes: those that are one command but for what is each one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from infra.engines.command_line import as_map, compact_json
from infra.engines.per_process_settings import (
    PER_PROCESS_FLAGS,
    PER_PROCESS_KEYS,
    PER_PROCESS_VARIABLES,
)
from infra.engines.reading import Reading
from infra.plan.process import Process

Pick = Callable[[Mapping[str, Any]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds among a plan's engine processes.

    Args:
        of: by process id the first process of its kind.
        first: one process of each kind, the first, in plan order.
        spelt: one process of each set whose JSON flags are equal to the last key, too.
    """

    of: Mapping[str, Process]
    first: tuple[Process, ...]
    spelt: tuple[Process, ...]


def find_kinds(processes: Iterable[Process], readings: Mapping[str, Reading]) -> Kinds:
    """Processes of a role to which the same settings are given, with equal values but for `per_process_settings`.

    Headless processes are a kind of their own.
    """
    pickers: dict[object, _Pickers] = {}
    first: dict[object, Process] = {}
    kind_of: dict[object, Process] = {}
    spelt: list[Process] = []
    kinds: dict[str, Process] = {}
    for process in processes:
        flags, env = readings[process.id].flags, process.env
        names = tuple(flags), tuple(env)
        pick = pickers.get(names) or pickers.setdefault(names, _Pickers.of(*names))
        # equal words are read once, so their values are one object
        key = (
            process.role,
            pick,
            (*map(id, pick.flags(flags)), *pick.variables(env)),
            flags.get("headless"),
        )
        kind = kind_of.get(key)
        if kind is None:
            shared = (*(_without_own_keys(*flag) for flag in flags.items()), *pick.variables(env))
            kind = kind_of[key] = first.setdefault((*key[:2], shared, key[3]), process)
            spelt.append(process)
        kinds[process.id] = kind
    return Kinds(kinds, tuple(first.values()), tuple(spelt))


def find_variants(spelt: Iterable[Process], readings: Mapping[str, Reading]) -> tuple[Process, ...]:
    """The first of each set that differs in the values of own flags and variables alone, given or not."""
    first: dict[object, Process] = {}
    for process in spelt:
        flags = readings[process.id].flags
        told = tuple(
            (name, id(value)) for name, value in flags.items() if name not in PER_PROCESS_FLAGS
        )
        env = tuple(pair for pair in process.env.items() if pair[0] not in PER_PROCESS_VARIABLES)
        first.setdefault((process.role, told, env), process)
    return tuple(first.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Pickers:
    """What reads the values of the flags and variables of some processes that are no process's own."""

    flags: Pick
    variables: Pick

    @staticmethod
    def of(flags: Iterable[str], env: Iterable[str]) -> _Pickers:
        """For processes that are given these names."""
        return _Pickers(_picker(flags, PER_PROCESS_FLAGS), _picker(env, PER_PROCESS_VARIABLES))


def _picker(names: Iterable[str], own: frozenset[str]) -> Pick:
    shared = [name for name in names if name not in own]
    if len(shared) < 2:  # noqa: PLR2004 - itemgetter gives a tuple for two and more
        return lambda values: tuple(values[name] for name in shared)
    return itemgetter(*shared)


def _without_own_keys(name: str, value: object) -> object:
    """What two processes of a kind have alike in a flag: its identity, or its words without the own ones."""
    if name in PER_PROCESS_FLAGS:
        return None
    own = PER_PROCESS_KEYS.get(name)
    if own is None or not own & as_map(value).keys():
        return id(value)
    return compact_json({key: each for key, each in as_map(value).items() if key not in own})
