"""A collective over all devices of one host: which test is there, how it is asked, what it says, and what is wrong."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from infra.launch.preflight.accelerator_checks import with_accelerators
from infra.launch.preflight.device_checks import awaited_devices, is_device_daemon
from infra.launch.preflight.gpu_checks import is_computing
from infra.launch.preflight.observed import Told
from infra.launch.preflight.scene import Scene, Trouble
from infra.launch.preflight.ssh_command import ssh_command

# Where packages, vendors' images and people who build them put nccl-tests, rccl-tests and hccl_test.
NCCL_PROGRAMS = (
    "/usr/local/bin/all_reduce_perf",
    "/usr/bin/all_reduce_perf",
    "/opt/nccl-tests/build/all_reduce_perf",
    "/opt/rccl-tests/build/all_reduce_perf",
    "/usr/local/cuda*/efa/test-cuda*/all_reduce_perf",
)
HCCL_PROGRAMS = (
    "/usr/local/Ascend/ascend-toolkit/latest/tools/hccl_test/bin/all_reduce_test",
    "/usr/local/Ascend/cann/tools/hccl_test/bin/all_reduce_test",
)
PROGRAMS = {"nvidia": NCCL_PROGRAMS, "amd": NCCL_PROGRAMS, "ascend": HCCL_PROGRAMS}
SOURCES = {
    "nvidia": "github.com/NVIDIA/nccl-tests",
    "amd": "github.com/ROCm/rccl-tests",
    "ascend": "the CANN toolkit's tools/hccl_test",
}
# ROCm's figures are of 8 GiB, Azure's of 16, which reach a little more; HCCL's guide goes to 1 GiB.
NCCL_BYTES, HCCL_BYTES = "8G", "1G"
COLLECTIVE_S = 120.0
# Hosts of one kind differ by a few percent, and so do sizes and releases from those of a published figure; one that is
# a tenth behind has a link, a switch or a clock that is wrong.
LEAST_SHARE = 0.9
BANDWIDTH = re.compile(r"^# Avg bus bandwidth\s*:\s*([\d.]+)", re.MULTILINE)
WRONG = re.compile(r"^# Out of bounds values\s*:\s*(\d+)", re.MULTILINE)
# What keeps a test from its beginning, and says nothing of the devices: a library or the toolkit that is not there
# (glibc's loader, the shell's `.`), Open MPI's refusals to run as root and with fewer slots than processes.
UNBEGUN = re.compile(
    r"error while loading shared libraries|symbol lookup error|set_env\.sh.*No such file|cannot open .*set_env\.sh"
    r"|attempt to run as root|not enough slots available"
)
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # the exit codes of a shell that could not start a program
HCCL_ROW = re.compile(r"^\s*(\d+)\s*\|\s*([\d.]+)\s*\|\s*([\d.]+)\s*\|\s*(\w+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """What a test measured.

    Args:
        gb_s: bandwidth in GB/s: of the bus with NCCL and RCCL, of the algorithm with HCCL.
        num_wrong: results that were not right; None when the test did not look.
    """

    gb_s: float
    num_wrong: int | None


def parse_nccl(text: str) -> Collective | None:
    """What `all_reduce_perf` of nccl-tests or rccl-tests sums up; None when it did not get so far."""
    bandwidth, wrong = BANDWIDTH.search(text), WRONG.search(text)
    if bandwidth is None:
        return None
    return Collective(gb_s=float(bandwidth[1]), num_wrong=int(wrong[1]) if wrong else None)


def parse_hccl(text: str) -> Collective | None:
    """What `all_reduce_test` of hccl_test shows, the largest size last; None when it did not get so far."""
    rows = HCCL_ROW.findall(text)
    if not rows:
        return None
    checked = [row[3] for row in rows if row[3] != "NULL"]
    wrong = sum(word != "success" for word in checked) if checked else None
    return Collective(gb_s=float(rows[-1][2]), num_wrong=wrong)


def collective_program(scene: Scene, host: str) -> str | None:
    """The test that lies on a host, None without one."""
    patterns = PROGRAMS.get(scene.accelerator(host).vendor, ())
    paths = sorted(scene.hosts[host].paths)
    return next((path for pattern in patterns for path in paths if fnmatch(path, pattern)), None)


def collective_argv(scene: Scene, host: str, program: str) -> tuple[str, ...]:
    """The test over all devices of a host; HCCL's wants MPI even on one."""
    count = str(scene.plan.host(host).num_devices)
    if scene.accelerator(host).vendor == "ascend":
        sizes = f"-b {HCCL_BYTES} -e {HCCL_BYTES} -d fp32 -o sum -c 1 -p {count}"
        toolkit = program.rpartition("/tools/")[0]
        script = f". {toolkit}/set_env.sh; exec mpirun -n {count} {program} {sizes}"
        return ("sh", "-c", script)
    return (
        program,
        "-b",
        NCCL_BYTES,
        "-e",
        NCCL_BYTES,
        "-g",
        count,
        "-c",
        "1",
        "-n",
        "10",
        "-w",
        "3",
    )


def idle_hosts(scene: Scene) -> tuple[str, ...]:
    """The hosts whose devices are all free, so that a test disturbs nobody and nobody the test."""
    found = []
    for name in with_accelerators(scene):
        host = scene.hosts[name]
        is_awaited = len(awaited_devices(scene, name)) == scene.plan.host(name).num_devices
        is_held = any(not is_device_daemon(holder) for holder in host.holders)
        if is_awaited and not is_held and not is_computing(host, scene.accelerator(name)):
            found.append(name)
    return tuple(found)


def find_slow_collectives(scene: Scene) -> Iterator[Trouble]:
    """Hosts whose devices add up wrongly, not at all, or slower than their peers' or than published."""
    measured: dict[str, dict[str, float]] = {}
    for name in with_accelerators(scene):
        vendor, program = scene.accelerator(name).vendor, collective_program(scene, name)
        told = scene.collectives.get(name)
        if told is None:
            yield _not_run(scene, name, program)
            continue
        found = (parse_hccl if vendor == "ascend" else parse_nccl)(told.stdout)
        again = _again(scene, name, program or "all_reduce_perf")
        if found is not None and found.num_wrong:
            said = f"an all-reduce over its devices gives {found.num_wrong} wrong results"
            yield Trouble(host=name, severity="block", observed=said, fix=again)
        elif found is None and (why := _unbegun(told)) is not None:
            yield Trouble(host=name, severity="pass", observed=f"not run: {why}", fix=again)
        elif told.exit_code != 0 or found is None:
            said = f"an all-reduce over its devices fails: {told.last_words}"
            yield Trouble(host=name, severity="block", observed=said, fix=again)
        else:
            measured.setdefault(scene.plan.host(name).accelerator, {})[name] = found.gb_s
    for accelerator, hosts in measured.items():
        yield from _slow_ones(scene, accelerator, hosts)


def _again(scene: Scene, name: str, program: str) -> str:
    """The test, as an operator types it."""
    return ssh_command(name, shlex.join(("sudo", *collective_argv(scene, name, program))))


def _unbegun(told: Told) -> str | None:
    """Why a test did not so much as begin; None when it did."""
    lines = f"{told.stderr}\n{told.stdout}".splitlines()
    line = next((line.strip() for line in lines if UNBEGUN.search(line)), None)
    if line is not None:
        return line
    is_absent = told.is_missing or told.exit_code in (NOT_EXECUTABLE, NOT_FOUND)
    return told.last_words if is_absent else None


def _not_run(scene: Scene, name: str, program: str | None) -> Trouble:
    """A note, and nothing against the host."""
    vendor = scene.accelerator(name).vendor
    if program is None:
        why, example = "there is no test of collectives", PROGRAMS[vendor][0]
        way = f"Build {SOURCES[vendor]} to {example} on {name}, and `fab preflight` runs it."
    else:
        why = "its devices are in use"
        way = _again(scene, name, program)
    return Trouble(host=name, severity="pass", observed=f"not run: {why}", fix=way)


def _slow_ones(scene: Scene, accelerator: str, hosts: dict[str, float]) -> Iterator[Trouble]:
    ordered = sorted(hosts.values())
    middle = ordered[len(ordered) // 2]
    published = scene.catalog.accelerator(accelerator).all_reduce_gb_s
    for name, gb_s in hosts.items():
        if gb_s < middle * LEAST_SHARE:
            wanted = f"about {middle:.0f} GB/s, as its peers reach"
        elif published is not None and gb_s < published * LEAST_SHARE:
            wanted = f"{published:g} GB/s, as published for {scene.catalog.accelerator(accelerator).product_name}"
        else:
            continue
        yield Trouble(
            host=name,
            severity="warn",
            observed=f"an all-reduce over its devices reaches {gb_s:.0f} GB/s",
            wanted=wanted,
            fix=f"See links, switches and clocks of {name}: `fab preflight`'s other findings, and the vendor's tool.",
        )
