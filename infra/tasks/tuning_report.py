"""What became of hosts' tuning, for people: hosts that agree together, then the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from infra.catalog.host_profile import ProfileChoice
from infra.launch.host_tuning import Rows, TuningOrder, count_of
from infra.tasks.output import Output, Tone

STATES = ("ok", "changed", "not_applicable", "blocked", "failed")
NOTABLE = ("failed", "blocked", "changed")
ORDER = (*NOTABLE, "ok")
_TONES: Mapping[str, Tone] = {"changed": "warn", "blocked": "warn", "failed": "bad"}

_T = TypeVar("_T")
Line = tuple[str, str, str, str]  # state, item, values, why


def show_tuning(
    rows: Rows, profiles: Mapping[str, ProfileChoice], order: TuningOrder, output: Output
) -> None:
    """Every item that is not simply as declared, under the hosts that share it."""
    for hosts, choice in _alike({host: (choice,) for host, choice in profiles.items()}):
        output.data(f"{choice[0].profile}: {', '.join(hosts)} ({choice[0].why})")
    lines = {host: tuple(_lines(items, order)) for host, items in rows.items()}
    for hosts, shared in _alike(lines):
        output.data(f"\n{_title(hosts, len(rows))}")
        for state, item, values, why in sorted(shared, key=lambda line: ORDER.index(line[0])):
            words = f"  {_word(state, order):<12}  {item:<34}  {values}".rstrip()
            output.data(output.toned(words, _TONES.get(state, "dim")))
            if why:
                output.data(f"      {why}")
    if order.with_diff:
        diffs = {
            host: tuple(str(row["diff"]) for row in items if row.get("diff"))
            for host, items in rows.items()
        }
        for hosts, texts in _alike(diffs):
            output.data("\n".join([f"\n--- {', '.join(hosts)}", *texts]))
    sums = [f"{count_of(rows, state)} {_word(state, order)}" for state in STATES]
    output.data(f"\n{len(rows)} hosts: {', '.join(sums)}.")


def _lines(items: list[Mapping[str, object]], order: TuningOrder) -> list[Line]:
    lines: list[Line] = []
    kept = [row for row in items if row["state"] == "changed" and _keeps(row)]
    for row in items:
        state = str(row["state"])
        if state not in NOTABLE or row in kept:
            continue
        after = row["wanted"] if order.mode == "check" or state != "changed" else row["after"]
        values = f"{_shown(row['before'])} → {_shown(after)}"
        why = str(row["why"]) if state != "changed" or order.with_diff else ""
        lines.append((state, str(row["id"]), values, why))
    for why, num in Counter(_staying(items, order)).items():
        lines.append(("ok", f"{num} items stay", why, ""))
    if not items and order.mode == "rollback":
        lines.append(("ok", "nothing to take back", "", ""))
    if kept:
        lines.append(("changed", "over a reboot", f"{len(kept)} files (--diff names them)", ""))
    return lines


def _staying(items: list[Mapping[str, object]], order: TuningOrder) -> list[str]:
    """Why items that somebody else has declared are not taken back."""
    reasons = [str(row["why"]) for row in items if row["state"] == "ok"]
    return [why for why in reasons if order.mode == "rollback" and "still wants it" in why]


def _keeps(row: Mapping[str, object]) -> bool:
    """Whether it is one of the files that bring tuning about at the next boot."""
    return str(row["id"]).startswith("file:")


def _alike(of_hosts: Mapping[str, tuple[_T, ...]]) -> list[tuple[tuple[str, ...], list[_T]]]:
    """The things by the hosts that share them, the largest set of hosts first; each thing once."""
    hosts_of: dict[_T, list[str]] = {}
    for host, things in of_hosts.items():
        for thing in things:
            hosts_of.setdefault(thing, []).append(host)
    groups: dict[tuple[str, ...], list[_T]] = {}
    for thing, hosts in hosts_of.items():
        groups.setdefault(tuple(hosts), []).append(thing)
    return sorted(groups.items(), key=lambda group: -len(group[0]))


def _title(hosts: tuple[str, ...], num_hosts: int) -> str:
    if len(hosts) == num_hosts > 1:
        return f"all {num_hosts} hosts"
    return ", ".join(hosts)


def _word(state: str, order: TuningOrder) -> str:
    if state == "changed" and order.mode == "check":
        return "would change"
    return state.replace("_", " ")


def _shown(value: object) -> str:
    return "absent" if value is None else str(value) or "(empty)"
