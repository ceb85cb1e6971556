"""Proves that the devices of a stopped release are free: a process may outlive its unit, and hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.errors import HostsFailed
from infra.launch.answering import read_each
from infra.launch.deployment import Pace
from infra.launch.fleet import Fleet, Report, Request, ask_all
from infra.launch.name_lists import clauses
from infra.launch.preflight.device_checks import DEVICE_FILES, holder_words, is_device_daemon
from infra.launch.preflight.observed import Holder, read_holders
from infra.render.host_paths import stack_slice
from infra.render.release_record import Release

# systemd and the runtimes wait for the end of what they stop themselves; this covers what closes behind them.
CLOSING_S = 3.0
PAUSE_S = 0.5


def prove_free(fleet: Fleet, releases: Mapping[str, Release], pace: Pace) -> int:
    """See that nobody holds a device of a release of which every process has been stopped.

    Args:
        fleet: the hosts; one on which a device is held is left out, if it leaves out anybody.
        releases: by host.
        pace: how long one answer may take, and how to wait.

    Returns:
        How many devices are free.

    Raises:
        HostsFailed: a device is held, and the fleet leaves out nobody.
    """
    requests: dict[str, Request] = {
        host: {"operation": "facts", "devices": files}
        for host, release in releases.items()
        if (files := _device_files(release))
    }
    begun = pace.clock.now()
    reports = ask_all(fleet, requests, timeout_s=pace.limits.ask_s)
    while pace.clock.now() - begun < CLOSING_S:
        held = [host for host, report in reports.items() if _holders(releases[host], report)]
        if not held:
            break
        pace.clock.sleep(PAUSE_S)
        again = {host: requests[host] for host in held}
        reports.update(ask_all(fleet, again, timeout_s=pace.limits.ask_s))

    def count(host: str, report: Report) -> int:
        holders = _holders(releases[host], report)
        if holders:
            raise _held(host, releases[host].stack, holders)
        return len({index for process in releases[host].processes for index in process.devices})

    return sum(read_each(fleet, reports, count).values())


def _device_files(release: Release) -> list[str]:
    """The files that its processes may have had open; a host has those of one vendor alone."""
    found = [
        pattern.format(index=index)
        for process in release.processes
        for index in process.devices
        for pattern in DEVICE_FILES.values()
    ]
    return list(dict.fromkeys(found))


def _holders(release: Release, report: Report) -> Sequence[Holder]:
    """Who must not hold a device: of a file for all devices nobody knows whose others use, so only its own."""
    shared = [pattern for pattern in DEVICE_FILES.values() if "{index}" not in pattern]
    own = stack_slice(release.stack)
    return [
        holder
        for holder in read_holders(report)
        if not is_device_daemon(holder)
        and (holder.device not in shared or own in holder.control_group.split("/"))
    ]


def _held(host: str, stack: str, holders: Sequence[Holder]) -> HostsFailed:
    words = [f"{one.device} is held by process {one.pid} ({holder_words(one)})" for one in holders]
    pids = " ".join(dict.fromkeys(str(one.pid) for one in holders))
    fix = (
        f"Stop it: `ssh {host} sudo kill {pids}`, with -9 where it does not listen; one that waits in the kernel goes "
        f"with a reboot. Then run `fab down --stack {stack}` again: its files are there still."
    )
    return HostsFailed(host, f"Everything is stopped there, but {clauses(words)}.", fix)
