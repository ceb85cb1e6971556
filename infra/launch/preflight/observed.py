"""A host as its agent told of it: outputs of commands, files, disks, holders, its clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.launch.fleet import Report, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a command ended. `exit_code` is None when it was not there or ran over its time."""

    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def is_missing(self) -> bool:
        """Whether the host has no such program."""
        return self.exit_code is None and "No such file" in self.stderr

    @property
    def hung(self) -> bool:
        """Whether it was killed because it did not answer."""
        return self.exit_code is None and "did not answer" in self.stderr

    @property
    def refusal(self) -> str:
        """Why the kernel would not start it, though it is there (`Permission denied`); "" where it has run."""
        has_run = self.exit_code is not None or self.is_missing or self.hung
        return "" if has_run else self.last_words.rpartition(": ")[2]

    @property
    def all_text(self) -> str:
        """What it wrote, however it ended."""
        return self.stdout + self.stderr

    @property
    def last_words(self) -> str:
        """The last line that it wrote, errors first."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit code {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system that holds a path, or would hold it."""

    mount: str
    kind: str
    exists: bool
    free_bytes: int
    free_inodes: int
    total_inodes: int
    is_read_only: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that has a device file open."""

    device: str
    pid: int
    command: str
    control_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An attempt to write where a path lies or would lie.

    Args:
        at: the nearest folder that is there.
        error: why it takes nothing, None when it does.
        code: the error's name in the kernel (`EROFS`), None without one.
    """

    at: str
    error: str | None
    code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A thread that waits in the kernel, its process with it; `where` is the kernel's function, "" when unknown."""

    pid: int
    task: int
    command: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """How far a host's clock is ahead of the operator's: it lies between the two, in seconds."""

    at_least_s: float
    at_most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHost:
    """All that one execution told of a host.

    Args:
        commands: by the id under which they were asked.
        files: text by path.
        paths: what is there of the paths that were asked for.
        disks: by the path that was asked for.
        written: likewise.
        sizes: bytes below the folders of each checkpoint, whole or on its way, by item id; without those not told.
        clock: None when the host could not tell.
        items: rows of the host state's check, by item id; empty when it was not asked.
        listening: rows of taken ports.
    """

    name: str
    commands: Mapping[str, Told]
    files: Mapping[str, str]
    paths: frozenset[str]
    disks: Mapping[str, Disk]
    sizes: Mapping[str, int]
    written: Mapping[str, Written]
    holders: tuple[Holder, ...]
    stuck: tuple[Stuck, ...]
    clock: ClockReading | None
    items: Mapping[str, Mapping[str, object]]
    listening: tuple[Mapping[str, object], ...]

    def text(self, command: str) -> str | None:
        """What a command printed; None when it was not asked or did not succeed."""
        told = self.commands.get(command)
        return told.stdout if told is not None and told.exit_code == 0 else None

    def word(self, path: str) -> str | None:
        """A file's text without the white space around it; None when it was not read."""
        text = self.files.get(path)
        return None if text is None else text.strip()


def read_observed(
    name: str, report: Report, *, sent_s: float, received_s: float, also: Mapping[str, Report]
) -> ObservedHost:
    """The host of a report of the agent's `facts`.

    Args:
        name: the plan's name of the host.
        report: what the agent told.
        sent_s: when the request left, seconds since 1970 by the operator's clock.
        received_s: when its answer was there, likewise.
        also: reports of the operations that were asked along, by operation.
    """
    state, listening = also.get("state", {}), also.get("listening", {})
    return ObservedHost(
        name=name,
        commands={key: _told(value) for key, value in _map(report, "commands").items()},
        files={key: str(value) for key, value in _map(report, "files").items()},
        paths=frozenset(str(path) for path in _list(report, "paths")),
        disks={key: _disk(value) for key, value in _map(report, "disks").items()},
        sizes={key: size for key, size in _map(report, "sizes").items() if isinstance(size, int)},
        written={key: _written(value) for key, value in _map(report, "writable").items()},
        holders=read_holders(report),
        stuck=tuple(_stuck(row) for row in rows_of(report, "stuck")),
        clock=_clock(_map(report, "clock"), sent_s, received_s),
        items={str(row["id"]): row for row in rows_of(state, "items")},
        listening=tuple(rows_of(listening, "listening")),
    )


def read_holders(report: Report) -> tuple[Holder, ...]:
    """Who has the device files open that the agent's `facts` was asked for."""
    return tuple(_holder(row) for row in rows_of(report, "holders"))


def _clock(told: Mapping[str, object], sent_s: float, received_s: float) -> ClockReading | None:
    """It was read at some moment between sending and receiving, as well as the host could."""
    now, error = told.get("now_s"), told.get("error_s")
    if not isinstance(now, int | float) or not isinstance(error, int | float):
        return None
    return ClockReading(at_least_s=now - error - received_s, at_most_s=now + error - sent_s)


def _told(value: object) -> Told:
    row = value if isinstance(value, Mapping) else {}
    code = row.get("exit_code")
    return Told(
        exit_code=code if isinstance(code, int) else None,
        stdout=str(row.get("stdout") or ""),
        stderr=str(row.get("stderr") or ""),
        seconds=_number(row.get("seconds")),
    )


def _disk(value: object) -> Disk:
    row = value if isinstance(value, Mapping) else {}
    return Disk(
        mount=str(row.get("mount") or ""),
        kind=str(row.get("kind") or ""),
        exists=bool(row.get("exists")),
        free_bytes=int(_number(row.get("free_bytes"))),
        free_inodes=int(_number(row.get("free_inodes"))),
        total_inodes=int(_number(row.get("total_inodes"))),
        is_read_only=bool(row.get("read_only")),
        error=None if row.get("error") is None else str(row["error"]),
    )


def _holder(row: Mapping[str, object]) -> Holder:
    return Holder(
        device=str(row.get("device")),
        pid=int(_number(row.get("pid"))),
        command=str(row.get("command") or ""),
        control_group=str(row.get("control_group") or ""),
    )


def _written(value: object) -> Written:
    row = value if isinstance(value, Mapping) else {}
    error, code = row.get("error"), row.get("code")
    return Written(
        at=str(row.get("at") or "/"),
        error=None if error is None else str(error),
        code=None if code is None else str(code),
    )


def _stuck(row: Mapping[str, object]) -> Stuck:
    return Stuck(
        pid=int(_number(row.get("pid"))),
        task=int(_number(row.get("task"))),
        command=str(row.get("command") or ""),
        where=str(row.get("where") or ""),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _map(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(report: Mapping[str, object], key: str) -> list[object]:
    value = report.get(key)
    return value if isinstance(value, list) else []
