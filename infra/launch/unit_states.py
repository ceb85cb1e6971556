"""What systemd says of the processes, and what their logs say of why they ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infra.launch.fleet import Report, rows_of

# `(EngineCore_DP3 pid=411) INFO 11-20 14:00:00 [loader.py:12] Loading …` → `Loading …`; so with torch's
# `[rank0]:[E1127 05:57:18.052110937 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught …`
_PREFIX = re.compile(
    r"^(\([^)]*\)\s*)?((DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+)?(\d\d-\d\d \d\d:\d\d:\d\d\s+)?(\[[^\]]*\]:?\s*)*"
)
_PYTHON_ERROR = re.compile(r"\b[A-Za-z_.]*(Error|Exception|Failed|Timeout|Exit)\b: \S")
_PLAIN_ERROR = re.compile(
    r"\b(error|fatal|failed|cannot|refused|denied|not installed|is not in|missing|timing out)\b",
    re.IGNORECASE,
)
# pydantic: `1 validation error for ModelConfig`, and the error itself in the next line.
_COUNTED_ERRORS = re.compile(r"\d+ validation errors? for \w+$")
# torch of an error in NCCL: the library's own word for its kind, this line, and below it what NCCL says
# (recorded with torch 2.11 and NCCL 2.28.9).
_NCCL_ERROR, _NCCL_SAYS, _NCCL_LINES = "NCCL error", "Last error:", 4
# They point at another line, or accompany every end.
_POINTERS = (
    "See root cause above",
    "See stack trace (above) for the root cause",
    "Engine core initialization failed",
    "Failed core proc",
    "from LD_PRELOAD",
    "resource_tracker",
)
_ERROR_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL)\b|^fatal|^error|\[[EF]\d{4} ", re.IGNORECASE)
# What only warns may name an error that it has got over: vLLM's limit of open files, an answer of 500.
_MILD_LEVEL = re.compile(r"^(?:\([^)]*\)\s*)?(?:DEBUG|INFO|WARNING):?\s")
SERVING = ("Application startup complete", "Uvicorn running on", "The server is fired up")
# systemd's own words: `moe-s-router@0.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED`.
_EXITED = re.compile(r"^\S+: Main process exited, code=(exited|killed|dumped), status=(\d+)")
_FAILED = re.compile(r"^\S+: Failed with result '([a-z-]+)'")
MAX_WORDS = 300
# A state of ours: systemd calls such a unit by how it was before.
WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    """One process as its host's systemd has it.

    Args:
        restarts: how often systemd has started it again by itself.
        job: what systemd is still to do with it, by number; 0 for nothing.
        since: ISO time of the last change, None when there was none.
        log_tail: the last lines of its log, oldest first; () when not asked for.
    """

    process: str
    host: str
    unit: str
    load_state: str
    active_state: str
    sub_state: str
    result: str
    exit_status: int
    restarts: int
    job: int
    since: str | None
    log_tail: tuple[str, ...]

    @property
    def is_waiting(self) -> bool:
        """Whether systemd has taken its start, and starts something else first: docker after a boot."""
        return self.job != 0 and self.active_state in {"failed", "inactive"}

    @property
    def is_masked(self) -> bool:
        """Whether somebody forbade systemd to start it; it may run still."""
        return self.load_state == "masked"

    @property
    def has_ended(self) -> bool:
        """Whether it does not run and will not by itself."""
        is_down = self.active_state in {"failed", "inactive"} and not self.is_waiting
        return self.load_state == "not-found" or is_down

    @property
    def has_begun_again(self) -> bool:
        """Whether systemd has started it again by itself: how it had ended only its log tells."""
        return self.restarts > 0 and self.is_running and self.result == "success"

    @property
    def is_running(self) -> bool:
        """Whether it runs or is being started."""
        return self.is_waiting or self.active_state in {"active", "activating", "reloading"}

    @property
    def state(self) -> str:
        """The state in one word, for people and documents."""
        if self.load_state == "not-found":
            return "not-installed"
        return WAITING if self.is_waiting else self.active_state


def read_units(host: str, report: Report, processes: Mapping[str, str]) -> dict[str, UnitState]:
    """States by process id.

    Args:
        host: who reports.
        report: the answer to `units`.
        processes: process id by unit.
    """
    found: dict[str, UnitState] = {}
    for row in rows_of(report, "units"):
        unit = str(row.get("unit"))
        if unit not in processes:  # none that was asked about
            continue
        tail = row.get("log_tail")
        found[processes[unit]] = UnitState(
            process=processes[unit],
            host=host,
            unit=unit,
            load_state=str(row.get("load_state")),
            active_state=str(row.get("active_state")),
            sub_state=str(row.get("sub_state")),
            result=str(row.get("result") or ""),
            exit_status=_number(row.get("exec_main_status")),
            restarts=_number(row.get("n_restarts")),
            job=_number(row.get("job")),
            since=None if row.get("since") is None else str(row["since"]),
            log_tail=tuple(str(line) for line in tail) if isinstance(tail, list) else (),
        )
    return found


def units_request(
    action: str, units: Sequence[str], *, log_lines: int = 0, groups_of: str | None = None
) -> dict[str, object]:
    """A request to start, stop or look at units; with a stack's name, at its groups too."""
    request: dict[str, object] = {"operation": "units", "action": action, "units": list(units)}
    if groups_of is not None:
        request["stack"] = groups_of
    return {**request, "log_lines": log_lines}


def unmask_command(host: str, units: Sequence[str]) -> str:
    """What has systemd start units again that somebody masked: until the next boot, or for good; either or both."""
    names = " ".join(units)
    return f"ssh {host} 'sudo systemctl unmask {names}; sudo systemctl unmask --runtime {names}'"


def why_ended(state: UnitState) -> str:
    """One sentence: how a process ended, and the line of its log that says why."""
    if state.load_state == "not-found":
        return f"the unit {state.unit} is not installed"
    if state.is_masked and state.active_state == "inactive":
        return f"the unit {state.unit} is masked"
    if state.has_begun_again:
        ended = _as_it_ended(state)
        if ended is None:
            return f"systemd has started it again, {state.restarts} times by now"
        state = ended
    how = f"it ended with exit code {state.exit_status}"
    if state.result in {"signal", "core-dump"}:
        how = f"it was ended by signal {state.exit_status}"
    elif state.result in {"oom-kill", "timeout", "resources"}:
        how = f"systemd ended it ({state.result})"
    line = error_line(state.log_tail)
    return f"{how}: {line}" if line else how


def _as_it_ended(state: UnitState) -> UnitState | None:
    """A process that has begun again as its log has its latest end; None where that lies further back."""
    tail = state.log_tail
    ends = [(i, found) for i, line in enumerate(tail) if (found := _EXITED.match(line))]
    if not ends:
        return None
    end, exited = ends[-1]
    begin = ends[-2][0] + 1 if len(ends) > 1 else 0
    told = [found[1] for line in tail[end:] if (found := _FAILED.match(line))]
    result = told[0] if told else "exit-code" if exited[1] == "exited" else "signal"
    said = tail[begin:end]
    return replace(state, result=result, exit_status=int(exited[2]), log_tail=said)


def error_line(log_tail: Sequence[str]) -> str:
    """The line that says why: the last error of its own, else the last line."""
    own = _own_lines(log_tail)
    return own_reason(log_tail) or (own[-1][:MAX_WORDS] if own else "")


def own_reason(log_tail: Sequence[str]) -> str:
    """The last error that a process found by itself; empty when it only says that others ended."""
    own = _own_lines(log_tail)
    for pattern in (_PYTHON_ERROR, _PLAIN_ERROR):
        hits = [
            i
            for i, line in enumerate(own)
            if pattern.search(line) and not line.startswith(("File ", "moe-"))
        ]
        if hits:
            return with_details(own, hits[-1])[:MAX_WORDS]
    return ""


def is_own_error(line: str) -> bool:
    """Whether a line tells of an error that its process found by itself."""
    text = plain(line)
    if _MILD_LEVEL.match(line.strip()):
        return False
    if text.startswith(("File ", "moe-")) or any(pointer in text for pointer in _POINTERS):
        return False
    return bool(_PYTHON_ERROR.search(text)) or bool(
        _ERROR_LEVEL.search(line) and _PLAIN_ERROR.search(text)
    )


def _own_lines(log_tail: Sequence[str]) -> list[str]:
    lines = [plain(line) for line in log_tail if line.strip()]
    return [line for line in lines if not any(pointer in line for pointer in _POINTERS)]


def with_details(lines: Sequence[str], index: int) -> str:
    """A line, and a later one that says what it leaves open.

    pydantic's first line only counts errors, and torch's names the kind of an error in NCCL.

    Args:
        lines: as `plain` makes them.
        index: of the line.
    """
    line, after = lines[index], lines[index + 1 : index + 1 + _NCCL_LINES]
    if _COUNTED_ERRORS.search(line):
        return ": ".join([line, *after[:1]])
    if _NCCL_ERROR in line and _NCCL_SAYS in after[:-1]:
        return f"{line}: {after[after.index(_NCCL_SAYS) + 1]}"
    return line


def plain(line: str) -> str:
    """A log line without process, level, time and source."""
    return _PREFIX.sub("", line.strip()).strip()


def says_serving(log_tail: Sequence[str]) -> bool:
    """Whether the log says that the HTTP server is up."""
    return any(sign in line for line in log_tail for sign in SERVING)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int) else 0
