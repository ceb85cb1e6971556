"""Two plans of one stack, process by process and argument by argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.plan.process import Plan, Process

What = Literal[
    "release", "unfinished", "host", "process", "state", "flag", "environment", "devices",
    "mounts", "file", "unit", "secret", "image", "tuning", "firewall",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that the next `up` would change.

    Args:
        host: None for the deployment as a whole.
        process: None for what concerns a whole host.
        name: the flag, variable, path or item.
        before: None when it is not there; for a secret always.
        after: None when it will not be there; for a secret always.
        diff: lines of a file that somebody has edited, else None.
    """

    host: str | None
    process: str | None
    what: What
    name: str
    before: str | None
    after: str | None
    diff: str | None = None

    def as_document(self) -> dict[str, object]:
        """The row of `diff --json`."""
        return {
            "host": self.host,
            "process": self.process,
            "what": self.what,
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "diff": self.diff,
        }


def plan_differences(old: Plan, new: Plan) -> Iterator[Change]:
    """All that differs between two plans: hosts, then processes that come, go or differ, in the old plan's order."""
    yield from host_differences(old, new)
    before = {process.id: process for process in old.processes}
    after = {process.id: process for process in new.processes}
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one is not None and other is not None:
            yield from process_differences(one, other)
        elif (only := one or other) is not None:
            states = ("there", None) if other is None else (None, "there")
            yield process_change(only.host, name, "process", states)


def process_change(
    host: str, process: str, what: What, states: tuple[str | None, str | None]
) -> Change:
    """A process that comes, goes or ends.

    Args:
        host: where.
        process: its id.
        what: `process` or `state`.
        states: before and after, None for not there.
    """
    before, after = states
    return Change(host=host, process=process, what=what, name=process, before=before, after=after)


def host_differences(old: Plan, new: Plan) -> Iterator[Change]:
    """Hosts that come, go or get another address."""
    before = {host.name: host.address for host in old.hosts}
    after = {host.name: host.address for host in new.hosts}
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one != other:
            yield Change(host=name, process=None, what="host", name=name, before=one, after=other)


def process_differences(old: Process, new: Process) -> Iterator[Change]:
    """What differs between a process as it is and as it would be."""
    pairs: tuple[tuple[What, Mapping[str, str], Mapping[str, str]], ...] = (
        ("flag", flags_of(old.argv), flags_of(new.argv)),
        ("environment", old.env, new.env),
        ("environment", old.env_prepend, new.env_prepend),
        ("devices", {"devices": _numbers(old.devices)}, {"devices": _numbers(new.devices)}),
        ("mounts", _mounts(old), _mounts(new)),
    )
    for what, before, after in pairs:
        for name in dict.fromkeys([*before, *after]):
            one, other = before.get(name), after.get(name)
            if one != other:
                yield Change(
                    host=new.host, process=new.id, what=what, name=name, before=one, after=other
                )


def flags_of(argv: Sequence[str]) -> dict[str, str]:
    """The words of each flag as one text, in order; `command` are the words before the first one.

    No engine's grammar is needed to see that words differ: `--a=b` and `--a b` count as the same flag.
    """
    found: dict[str, list[str]] = {}
    words = found.setdefault("command", [])
    for word in argv:
        if word.startswith("-") and not _is_number(word):
            name, has_value, value = word.partition("=")
            words = found.setdefault(name, [])
            words += [value] if has_value else []
        else:
            words.append(word)
    return {name: " ".join(values) for name, values in found.items()}


def _is_number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdecimal()


def _numbers(devices: Sequence[int]) -> str:
    return ",".join(str(device) for device in devices) or "none"


def _mounts(process: Process) -> dict[str, str]:
    return {
        mount.target: mount.source + (" (read-only)" if mount.read_only else "")
        for mount in process.mounts
    }
