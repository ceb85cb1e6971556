"""What the agent is asked for, by what the plan needs of a host; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from infra.launch.preflight import amd, ascend, nvidia, rdma, roce, rule_checks
from infra.launch.preflight.ascend_checks import has_super_pod
from infra.launch.preflight.ascend_port_checks import hccl_ports
from infra.launch.preflight.collectives import (
    COLLECTIVE_S,
    HCCL_PROGRAMS,
    NCCL_PROGRAMS,
    collective_argv,
)
from infra.launch.preflight.commands import Command
from infra.launch.preflight.device_checks import DEVICE_FILES
from infra.launch.preflight.docker_limits import OPEN_FILES_MOST, QUESTION
from infra.launch.preflight.firmware_checks import ASCEND_FIRMWARE
from infra.launch.preflight.gpu_checks import FABRIC_MANAGER
from infra.launch.preflight.host_checks import CLOCK_SOURCE
from infra.launch.preflight.nvlink_checks import IMEX_CHANNEL, IMEX_NODES
from infra.launch.preflight.ping_checks import ping_argv
from infra.launch.preflight.place_checks import SHARED_MEMORY, given_sources, written_places
from infra.launch.preflight.port_checks import bound_ports
from infra.launch.preflight.rail_checks import PRODUCT_NAME
from infra.launch.preflight.recording import AMD_DRIVER, NVIDIA_DRIVER
from infra.launch.preflight.scene import Scene
from infra.render import boot_mark
from infra.render.items import Item
from infra.render.supervision import plan_watch_port
from infra.render.units import LIMITS

# A driver that answers takes seconds after boot; one that does not in this time is wedged (facts: hosts 2).
TOOL_S = 30.0
SMALL_S = 5.0
# One question to one device's firmware (facts: hosts 1.6); a device that is gone leaves it hanging.
HCCN_S = 10.0
# The first level takes seconds, the next one minutes (docs.nvidia.com, dcgmi-diag, 2026; facts: hosts 2).
DIAGNOSIS_S = 60.0
# journalctl's own -g needs a build with PCRE; how many lines it had tells that it could be read at all.
KERNEL_QUESTION = (
    "journalctl -q -k -b -o short-iso --no-pager | "
    'awk \'/NVRM: Xid|SXid|blocked for more than/ {print} END {if (NR) print "## " NR " lines"}\' | tail -n 501'
)

FILES = (
    "/etc/machine-id",
    "/proc/sys/kernel/random/boot_id",
    "/proc/meminfo",
    "/proc/swaps",
    NVIDIA_DRIVER,
    AMD_DRIVER,
    ascend.DRIVER_FILE,
    ASCEND_FIRMWARE,
    *amd.FILES,
    IMEX_NODES,
    OPEN_FILES_MOST,
    PRODUCT_NAME,
    CLOCK_SOURCE,
    boot_mark.FILE,
    *rdma.FILES,
)
GLOBS = (
    IMEX_CHANNEL,
    "/etc/moe-infra/*/release.json",
    f"{rdma.FOLDER}/*/device/net/*",
    *NCCL_PROGRAMS,
    *HCCL_PROGRAMS,
)


def facts_request(
    scene: Scene, host: str, also: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """The request to one host.

    Args:
        scene: the plan and what is judged; hosts need not be observed yet.
        host: the plan's name.
        also: requests of other operations, answered in the same execution.
    """
    commands = asked_commands(scene, host).values()
    return {
        "operation": "facts",
        "commands": [command.as_document() for command in commands],
        "files": list(FILES),
        "globs": [*GLOBS, *given_sources(scene, host)],
        "disks": [scene.plan.weights_path, SHARED_MEMORY],
        "writable": [*written_places(scene), scene.plan.weights_path],
        "stuck": scene.depth == "full",
        "devices": _device_files(scene, host),
        "also": [dict(one) for one in also],
    }


def asked_commands(scene: Scene, host: str) -> dict[str, Command]:
    """The programs that a host is asked to run, by id."""
    commands = [*_system_commands(scene, host), *_accelerator_commands(scene, host)]
    return {command.id: command for command in commands}


def listening_request(scene: Scene, host: str) -> dict[str, object]:
    """Who listens on the ports that the host's processes and watcher will bind."""
    ports = {port for process in scene.plan.on_host(host) for port in bound_ports(process)}
    ports.add(plan_watch_port(scene.plan))
    ports.update(hccl_ports(scene, host))
    return {"operation": "listening", "ports": sorted(ports)}


def weight_folders(items: Iterable[Item]) -> dict[str, list[str]]:
    """Where each checkpoint of a host lies, and until it is whole (agent/staging/place.py), by item id."""
    return {
        item.id: [item.target, "{0}/.partial-{2}".format(*item.target.rpartition("/"))]
        for item in items
        if item.group == "weights"
    }


def imex_request() -> dict[str, object]:
    """One more look at the IMEX domain."""
    return commands_request([_imex()])


def collective_request(scene: Scene, host: str, program: str) -> dict[str, object]:
    """A collective over all devices of one host."""
    argv = collective_argv(scene, host, program)
    return commands_request([Command(id="collective", argv=argv, timeout_s=COLLECTIVE_S)])


def commands_request(commands: Iterable[Command]) -> dict[str, object]:
    """Some programs of one host, and nothing else."""
    return {"operation": "facts", "commands": [command.as_document() for command in commands]}


def ping_commands(
    scene: Scene, host: str, addresses: Mapping[str, Mapping[int, str]]
) -> list[Command]:
    """Pings from each device of a host to the same device of its peers.

    Args:
        scene: the plan.
        host: who pings.
        addresses: by peer, of its devices on their own network, by index.
    """
    return [
        Command(
            id=f"{index} {peer} {address}",
            argv=ping_argv(scene, host, index, address),
            timeout_s=TOOL_S,
            queue=_device(index),
        )
        for peer, devices in addresses.items()
        for index, address in devices.items()
    ]


def _system_commands(scene: Scene, host: str) -> list[Command]:
    """Small programs of every Linux; the full preflight asks more of them."""
    found = [
        _small("addresses", "ip", "-j", "addr"),
        _small("own-name", "sh", "-c", 'getent ahosts "$(uname -n)"'),
    ]
    if scene.plan.secrets:
        found.append(_small("systemd", "systemctl", "--version"))
    if scene.plan.firewall is not None:
        found.append(_small(rule_checks.CHAINS, *rule_checks.QUESTION))
    if scene.depth == "light":
        return found
    found += [
        _tool("kernel-log", "sh", "-c", KERNEL_QUESTION),
        _small("page-size", "getconf", "PAGESIZE"),
        _small("timedatectl", "timedatectl", "show", "-p", "NTPSynchronized"),
        _small("chrony", "chronyc", "-c", "tracking"),
        *(
            _small(f"name:{peer.name}", "getent", "ahosts", peer.name)
            for peer in scene.plan.hosts
            if peer.name != host
        ),
        *(
            _small(f"route:{peer.name}", "ip", "-j", "route", "get", peer.address)
            for peer in scene.plan.hosts
            if peer.name != host
        ),
    ]
    if scene.plan.runtime != "docker":
        found.append(Command(id="service-limits", argv=_limits_trial(), timeout_s=TOOL_S))
    else:
        form = "{{.CgroupDriver}} {{.CgroupVersion}}"
        argv = ("docker", "info", "--format", form)
        found.append(Command(id="docker-info", argv=argv, timeout_s=TOOL_S))
        found.append(_small("docker-limits", "sh", "-c", QUESTION))
    return found


def _limits_trial() -> tuple[str, ...]:
    """A service that prints the limits it got; it is gone when it ends."""
    wanted = [f"--property={limit}" for limit in LIMITS]
    return (
        "systemd-run",
        "--quiet",
        "--collect",
        "--wait",
        "--pipe",
        *wanted,
        "cat",
        "/proc/self/limits",
    )


def _accelerator_commands(scene: Scene, host: str) -> list[Command]:
    if scene.depth == "light" or host not in scene.engine_hosts:
        return []
    vendor = scene.accelerator(host).vendor
    if vendor == "ascend":
        return _ascend_commands(scene, host)
    own = {"nvidia": lambda: _nvidia_commands(scene, host), "amd": _amd_commands}
    return [*_card_commands(), *own[vendor]()] if vendor in own else []


def _card_commands() -> list[Command]:
    """What tells how RDMA cards carry."""
    return [
        _tool("roce.qos", "sh", "-c", roce.QOS_QUESTION),
        _tool("roce.counters", "sh", "-c", roce.COUNTERS_QUESTION),
        Command(id="roce.ber", argv=("sh", "-c", roce.BER_QUESTION), timeout_s=TOOL_S * 2),
    ]


def _nvidia_commands(scene: Scene, host: str) -> list[Command]:
    form = "--format=csv,noheader,nounits"
    accelerator = scene.accelerator(host)
    found = [
        _tool("nvidia.gpus", "nvidia-smi", f"--query-gpu={nvidia.GPU_QUERY}", form),
        _tool("nvidia.apps", "nvidia-smi", f"--query-compute-apps={nvidia.APP_QUERY}", form),
        _tool("nvidia.rows", "nvidia-smi", f"--query-remapped-rows={nvidia.ROW_QUERY}", form),
        _tool("nvidia.query", "nvidia-smi", "-q"),
        _tool("nvidia.nvlink", "nvidia-smi", "nvlink", "-s"),
        _small(
            "nvidia.services", "systemctl", "show", "-p", "Id,LoadState,ActiveState", FABRIC_MANAGER
        ),
        _small("nvidia.fabric-manager", "nv-fabricmanager", "--version"),
        # its first level looks at software and settings, and loads no GPU
        Command(id="nvidia.dcgm", argv=("dcgmi", "diag", "-r", "1", "-j"), timeout_s=DIAGNOSIS_S),
    ]
    if scene.spans_hosts and accelerator.fabric_spans_hosts:
        found.append(_imex())
    return found


def _amd_commands() -> list[Command]:
    return [
        _tool("amd.static", "amd-smi", "static", "-a", "-b", "-d", "-v", "-p", "--json"),
        _tool("amd.ecc", "amd-smi", "metric", "-e", "--json"),
        _tool("amd.processes", "amd-smi", "process", "--json"),
        _tool("amd.xgmi", "rocm-smi", "--showxgmierr", "--json"),
    ]


def _ascend_commands(scene: Scene, host: str) -> list[Command]:
    found = [_tool("ascend.info", "npu-smi", "info")]
    if not scene.spans_hosts:
        return found
    super_pod = has_super_pod(scene, host)
    if super_pod:
        words = ("npu-smi", "info", "-t", "spod-info", "-i", "0", "-c", "0")
        found.append(_tool("ascend.spod", *words))
    topics = {"link": "-link", "net_health": "-net_health", "tls": "-tls"}
    topics |= {"stat": "-stat", "link_stat": "-link_stat"}
    if super_pod:
        topics["address"] = "-vnic"
    else:
        topics |= {
            "address": "-ip",
            "gateway": "-gateway",
            "netdetect": "-netdetect",
            "pfc": "-pfc",
        }
    return found + [
        Command(
            id=f"ascend.{name}.{index}",
            argv=(ascend.HCCN_TOOL, "-i", str(index), topic, "-g"),
            timeout_s=HCCN_S,
            queue=_device(index),
        )
        for index in range(scene.plan.host(host).num_devices)
        for name, topic in topics.items()
    ]


def _device(index: int) -> str:
    """The queue of what hccn_tool is asked of one device.

    To several at a time it says "hccn_tool is busy", and a device from which somebody pings already is "occupied" (its
    source, hicann/driver@999c25d; HIXL's benchmarks say not to ask at the same time).
    """
    return f"device {index}"


def _device_files(scene: Scene, host: str) -> list[str]:
    pattern = DEVICE_FILES.get(scene.accelerator(host).vendor)
    if pattern is None or host not in scene.engine_hosts:
        return []
    return list(
        dict.fromkeys(pattern.format(index=i) for i in range(scene.plan.host(host).num_devices))
    )


def _imex() -> Command:
    return _tool("nvidia.imex", "nvidia-imex-ctl", "-N", "-j")


def _tool(name: str, *argv: str) -> Command:
    return Command(id=name, argv=argv, timeout_s=TOOL_S)


def _small(name: str, *argv: str) -> Command:
    return Command(id=name, argv=argv, timeout_s=SMALL_S)
