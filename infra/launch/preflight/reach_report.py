"""What became of the dials between hosts, and how far their clocks are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.launch.fleet import Report, rows_of
from infra.render.dialing import PlannedDial


@dataclass(frozen=True, slots=True, kw_only=True)
class DialResult:
    """One dial as it ended.

    Args:
        error: why it failed, None when it connected (and, where it spoke, was answered by its peer).
        answered_by: the name that the listener gave, None where nothing was said.
        path_mtu: of the connection as the caller's kernel knows it, in bytes.
        whole: whether a load of full-sized packets arrived; None where none was sent.
        ahead_s: how far the listener's clock is ahead of the caller's; None where nothing was said.
        error_s: how wrong that may be.
    """

    dial: PlannedDial
    error: str | None
    answered_by: str | None
    path_mtu: int | None
    whole: bool | None
    ahead_s: float | None
    error_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """All dials, and the listeners that could not be opened by (host, port).

    Args:
        undialled: planned, and one of the two hosts does not answer, or an engine that loads will open the port.
    """

    dials: tuple[DialResult, ...]
    unopened: Mapping[tuple[str, int], str]
    undialled: tuple[PlannedDial, ...] = ()


def read_reached(planned: Sequence[PlannedDial], reports: Mapping[str, Report]) -> Reached:
    """The results of every planned dial.

    Args:
        planned: the dials that were asked for.
        reports: of the agent's `reach`, by host.
    """
    told = {
        (caller, str(row.get("to")), _whole(row.get("port"))): row
        for caller, report in reports.items()
        for row in rows_of(report, "dials")
    }
    unopened = {
        (host, _whole(row.get("port"))): str(row["error"])
        for host, report in reports.items()
        for row in rows_of(report, "listen")
        if row.get("error") is not None
    }
    return Reached(
        dials=tuple(
            _result(dial, told.get((dial.caller, dial.host, dial.port), {})) for dial in planned
        ),
        unopened=unopened,
    )


def _result(dial: PlannedDial, row: Mapping[str, object]) -> DialResult:
    whole, name, mtu = row.get("whole"), row.get("name"), row.get("path_mtu")
    error = row.get("error")
    failed = str(error) if error is not None else "no answer came"
    return DialResult(
        dial=dial,
        error=None if row.get("ok") else failed,
        answered_by=None if name is None else str(name),
        path_mtu=mtu if isinstance(mtu, int) else None,
        whole=whole if isinstance(whole, bool) else None,
        ahead_s=_seconds(row.get("ahead_s")),
        error_s=_seconds(row.get("error_s")),
    )


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else -1
