"""Which failure came first, over all ranks and kernels: the one that the others follow from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from infra.launch.unit_states import is_own_error, plain, with_details

MAX_WORDS = 400
# An error and what it says of itself.
MOST_LINES = 6
# What failed longer before the latest failure than this is another story.
INCIDENT_S = 900.0
# systemd's own word for a start: what was logged before it belongs to an earlier run.
_STARTED = re.compile(r"^Started moe-\S+\.service\b")
_ENDED = re.compile(
    r"^moe-\S+\.service: (?:Main process exited, code=\w+, status=[^0]|Failed with)"
)
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{6})(?:Z|[+-]\d\d:?\d\d)? (.*)$")
# NVRM: Xid (PCI:…): 79, …; Out of memory: Killed process …; devices that left the bus.
_KERNEL = re.compile(
    r"NVRM: Xid|SXid|Out of memory: Killed|oom-kill:|amdgpu.*(?:GPU reset|ring .* timeout|RAS)"
    r"|pcieport .*: (?:Uncorrected|Fatal)|davinci.*(?:fault|error)|link down|lost carrier|I/O error"
)
# It has ended a process and nothing else: a start mends that, as it mends no device.
_KILL = re.compile(r"Out of memory: Killed|oom-kill:")


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """One line that tells of a failure.

    Args:
        at: ISO time in UTC, microseconds; in the order of the text.
        place: the process, or `kernel of HOST`.
        line: what it says.
        host: where.
        began: when the run that failed began; of a process.
        again: when the process's next run began, "" for none and for kernels.
    """

    at: str
    place: str
    line: str
    host: str = field(compare=False)
    began: str = field(default="", compare=False)
    again: str = field(default="", compare=False)


def journal_failure(process: str, host: str, lines: Sequence[str]) -> Failure | None:
    """The first line of the last run that failed: an error of its own, else of its end; None without one.

    A group that fails starts again by itself: its last run may well be a good one.

    Args:
        process: whose journal it is.
        host: where it runs; a router's name does not tell.
        lines: stamp and text, oldest first.
    """
    stamped = _stamped(lines)
    starts = [0, *(i for i, (_, text) in enumerate(stamped) if _STARTED.match(text))]
    ends = [*starts[1:], len(stamped)]
    for begin, end in reversed(list(zip(starts, ends, strict=True))):
        for tells in (is_own_error, _tells_end):
            for place in range(begin, end):
                at, text = stamped[place]
                if tells(text):
                    again = stamped[end][0] if end < len(stamped) else ""
                    told = [
                        plain(each) for _, each in stamped[place : min(end, place + MOST_LINES)]
                    ]
                    line, began = with_details(told, 0)[:MAX_WORDS], stamped[begin][0]
                    return Failure(at, process, line, host, began=began, again=again)
    return None


def kernel_failures(host: str, lines: Iterable[str]) -> list[Failure]:
    """The kernel's lines that tell of broken hardware or killed processes, oldest first."""
    return [
        Failure(at.replace(",", "."), f"kernel of {host}", text[:MAX_WORDS], host)
        for at, text in _stamped(lines)
        if _KERNEL.search(text)
    ]


def first_failure(
    ranks: Sequence[Failure], kernels: Sequence[Failure], begun: str
) -> Failure | None:
    """The first failure of the latest incident.

    Of an incident before is what had been started again before the run began that failed last, and what the kernel
    of its host had said by then; that of a device only where no process of that host fails by now.

    Args:
        ranks: at most one of each process.
        kernels: of every host.
        begun: when the first process of the last run began, "" when that is not known; where no rank tells of
            a failure, kernels may since then.
    """
    if not ranks:
        return min((each for each in kernels if each.at >= begun), default=None)
    latest = max(ranks)
    over = {each for each in ranks if each.again and each.again < latest.began}
    fail = {each.host for each in ranks if each not in over}
    again: dict[str, str] = {}
    for each in over:
        again[each.host] = max(each.again, again.get(each.host, ""))
    over |= {
        each
        for each in kernels
        if each.at < again.get(each.host, "")
        and (each.host not in fail or _KILL.search(each.line) is not None)
    }
    return min(
        each
        for each in (*ranks, *kernels)
        if each not in over and _moment(latest) - _moment(each) <= timedelta(seconds=INCIDENT_S)
    )


def run_begun(lines: Sequence[str]) -> str:
    """When the last run of a journal began; "" without a line."""
    stamped = _stamped(lines)
    begun = [at for at, text in stamped if _STARTED.match(text)]
    return begun[-1] if begun else (stamped[0][0] if stamped else "")


def _stamped(lines: Iterable[str]) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for line in lines if (match := _STAMP.match(line))]


def _tells_end(text: str) -> bool:
    return _ENDED.match(text) is not None


def _moment(failure: Failure) -> datetime:
    return datetime.fromisoformat(failure.at)
