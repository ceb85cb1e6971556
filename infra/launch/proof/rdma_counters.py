"""What RDMA cards have carried: their counters before and after the proof, and what the difference tells of KV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.catalog.load import Catalog
from infra.engines.network_names import rdma_devices_named
from infra.engines.transports import Told, read_transports
from infra.launch.deployment import Deployment
from infra.launch.fleet import Report, Request, ask_all
from infra.launch.name_lists import listed
from infra.launch.preflight.ascend import HCCN_TOOL, parse_statistics
from infra.launch.proof.host_drift import Check
from infra.launch.transport_verdicts import is_rack, kv_library, kv_processes

FOLDER = "/sys/class/infiniband"
# The IB architecture's port counters count four-byte words (linux: Documentation/ABI/stable/sysfs-class-infiniband);
# mlx5 counts RoCE there too. EFA has its own, in bytes (linux: drivers/infiniband/hw/efa/efa_verbs.c).
WORD_COUNTERS = ("counters/port_xmit_data", "counters/port_rcv_data")
BYTE_COUNTERS = (
    "hw_counters/rdma_read_bytes",
    "hw_counters/rdma_read_resp_bytes",
    "hw_counters/rdma_write_bytes",
    "hw_counters/rdma_write_recv_bytes",
    "hw_counters/send_bytes",
    "hw_counters/recv_bytes",
)
WORD_BYTES = 4
PLACE = re.compile(rf"^{FOLDER}/([^/]+)/ports/\d+/(.+)$")
# hccn_tool counts packets: of reliable connections, which is what HCCL and Mooncake use.
PACKET_COUNTERS = ("roce_tx_rc_pkt_num", "roce_rx_rc_pkt_num")
# Below the KV of one block of tokens of any model of the catalogue, above a fabric's own management traffic.
LEAST_BYTES = 65536
PACKET_BYTES = 4096
TOOL_S = 30.0
UNPROVEN = "not known: not every rank has answered, so no KV need have moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What the cards of one host carried between two looks.

    Args:
        num_bytes: about how many, both directions; packets of an Ascend device count as full.
        devices: names of the cards that were read, () where none could be.
    """

    num_bytes: int
    devices: tuple[str, ...]


def card_bytes(files: Mapping[str, str]) -> dict[str, int]:
    """Bytes that each card has carried since it came up, from its counter files; cards without one are left out."""
    found: dict[str, int] = {}
    for path, text in files.items():
        match = PLACE.match(path)
        if match is None or not text.strip().isdecimal():
            continue
        factor = WORD_BYTES if match[2] in WORD_COUNTERS else 1
        found[match[1]] = found.get(match[1], 0) + int(text) * factor
    return found


def device_bytes(statistics: Mapping[str, str]) -> dict[str, int]:
    """About how many bytes each Ascend device's own network has carried, from `hccn_tool -stat -g` by device."""
    found = {}
    for device, text in statistics.items():
        counted = parse_statistics(text)
        numbers = [counted[name] for name in PACKET_COUNTERS if name in counted]
        if numbers:
            found[device] = sum(numbers) * PACKET_BYTES
    return found


def read_counters(deployment: Deployment, catalog: Catalog) -> dict[str, dict[str, int]]:
    """Bytes by card of every host that hands KV to another or takes it; {} without such hosts.

    Raises:
        HostsFailed: a host cannot be asked.
    """
    hosts = dict.fromkeys(process.host for process in kv_processes(deployment.plan).values())
    requests = {host: _request(deployment, catalog, host) for host in hosts}
    if not requests:
        return {}
    reports = ask_all(deployment.fleet, requests, timeout_s=deployment.limits.ask_s)
    return {host: _counted(report) for host, report in reports.items()}


def moved_between(before: Mapping[str, int], after: Mapping[str, int]) -> Moved:
    """What was carried between two looks at one host; a counter that was reset in between counts from zero."""
    devices = tuple(name for name in after if name in before)
    total = 0
    for name in devices:
        grown = after[name] - before[name]
        total += grown if grown >= 0 else after[name]
    return Moved(num_bytes=total, devices=devices)


def check_counters(
    deployment: Deployment,
    catalog: Catalog,
    moved: Mapping[str, Moved | None],
    lines: Mapping[str, Sequence[str]],
) -> list[Check]:
    """A check per host that hands KV on or takes it, after requests that needed KV of every pair.

    Args:
        deployment: the plan and its hosts.
        catalog: what accelerators are.
        moved: by host; None where not every rank has answered, so that no KV need have moved.
        lines: what each running engine has logged that tells a transport, by process id.
    """
    plan, checks = deployment.plan, []
    for host, seen in moved.items():
        if seen is None:
            checks.append(_check(host, None, UNPROVEN))
            continue
        own = [process for process in kv_processes(plan).values() if process.host == host]
        told = [
            one
            for process in own
            for one in read_transports(lines.get(process.id, ()))
            if one.library == kv_library(process)
        ]
        named = tuple(dict.fromkeys(n for process in own for n in rdma_devices_named(process.env)))
        accelerator = catalog.accelerator(plan.host(host).accelerator)
        is_fabric = is_rack(plan, catalog, host) or (
            accelerator.fabric.kind == "hccs" and accelerator.fabric_spans_hosts
        )
        ok, detail = judge_moved(seen, told, named, is_fabric=is_fabric)
        checks.append(_check(host, ok, detail))
    return checks


def judge_moved(
    moved: Moved, told: Sequence[Told], named: Sequence[str], *, is_fabric: bool
) -> tuple[bool | None, str]:
    """Whether KV that is said to go by RDMA can have done so, and why.

    Args:
        moved: what the host's cards carried while KV had to go over them.
        told: what its processes have logged of KV's way.
        named: HCAs that the plan gives its processes.
        is_fabric: whether a fabric of accelerators (NVLink, HCCS) may carry KV between hosts past these counters.

    Returns:
        True, False, or None where it cannot be known; and the words.
    """
    if not moved.devices:
        return None, "not known: no card of this host tells what it has carried"
    carried = f"{moved.num_bytes / (1 << 20):.1f} MiB over {listed(moved.devices)}"
    if moved.num_bytes >= LEAST_BYTES:
        return True, f"{carried} while requests were answered (also what else they carry)"
    transports = {one.transport for one in told}
    if transports & {"nvlink", "socket"}:
        return None, f"not known: {carried}, and the log says that KV goes elsewhere"
    said = next((one.line for one in told if one.transport == "rdma"), None)
    if said is None and not is_fabric:
        said = next((one.line for one in told if one.transport == "ascend"), None)
        if said is None and named:
            said = f"the plan names {listed(named)}"
    if said is None:
        return None, f"not known: {carried}, and nothing says by what KV goes"
    return False, f"KV is said to go by RDMA, and the cards carried {carried}: {said}"


def _request(deployment: Deployment, catalog: Catalog, host: str) -> Request:
    described = deployment.plan.host(host)
    devices = range(described.num_devices)
    is_ascend = catalog.accelerator(described.accelerator).vendor == "ascend"
    return {
        "operation": "facts",
        "files": [f"{FOLDER}/*/ports/*/{name}" for name in (*WORD_COUNTERS, *BYTE_COUNTERS)],
        "commands": [
            {
                "id": f"device {index}",
                "argv": [HCCN_TOOL, "-i", str(index), "-stat", "-g"],
                "timeout_s": TOOL_S,
            }
            for index in (devices if is_ascend else ())
        ],
    }


def _counted(report: Report) -> dict[str, int]:
    files, commands = report.get("files"), report.get("commands")
    texts = {
        str(name): str(told.get("stdout") or "")
        for name, told in (commands.items() if isinstance(commands, Mapping) else ())
        if isinstance(told, Mapping) and told.get("exit_code") == 0
    }
    read = files.items() if isinstance(files, Mapping) else ()
    return {
        **card_bytes({str(path): str(text) for path, text in read}),
        **device_bytes(texts),
    }


def _check(host: str, ok: bool | None, detail: str) -> Check:  # noqa: FBT001 - None too
    return Check(process=host, check="rdma-counters", ok=ok, detail=detail, is_drift=True)
