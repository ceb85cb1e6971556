"""Scenes of healthy hosts, and what to change in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.catalog.load import Catalog
from infra.launch.preflight.asking import facts_request
from infra.launch.preflight.finding import Finding
from infra.launch.preflight.observed import Told, read_observed
from infra.launch.preflight.scene import Scene
from infra.launch.preflight.table import judge
from infra.plan.compile import compile_file
from infra.plan.process import Plan
from tests.launch.scripted_facts import facts_report

_SCENES: dict[
    tuple[str, ...], Scene
] = {}  # nothing in them can change, and compiling takes a while


def healthy(stack: str, catalog: Catalog, sets: tuple[str, ...] = ()) -> Scene:
    """Every host of a stack, `sets` applied, as it was looked at in full, with nothing wrong."""
    key = (stack, *sets)
    if key not in _SCENES:
        _SCENES[key] = _healthy(stack, catalog, sets)
    return _SCENES[key]


def _healthy(stack: str, catalog: Catalog, sets: tuple[str, ...]) -> Scene:
    plan = compile_file(stack, catalog=catalog, sets=sets).plan
    scene = Scene(
        plan=plan, catalog=catalog, depth="full", hosts={}, running=frozenset(), recorded={}
    )
    hosts = {}
    for host in plan.hosts:
        report = facts_report(plan, host.name, facts_request(scene, host.name, []))
        report["clock"] = {"now_s": 1000.0, "error_s": 0.001}
        commands = {**_dict(report["commands"]), **_accelerators(plan, host.name, catalog)}
        report["commands"] = commands
        report["files"] = {**_dict(report["files"]), **_files(plan, host.name, catalog)}
        report["paths"] = [*_list(report["paths"]), "/dev/nvidia-caps-imex-channels/channel0"]
        state = {"items": _items(plan)}
        hosts[host.name] = read_observed(
            host.name, report, sent_s=999.9, received_s=1000.1, also={"state": state}
        )
    return replace(scene, hosts=hosts)


def tell(scene: Scene, host: str, command: str, stdout: str, exit_code: int | None = 0) -> Scene:
    """The scene with another answer to one command of one host."""
    told = Told(
        exit_code=exit_code, stdout=stdout, stderr="" if exit_code == 0 else stdout, seconds=0.1
    )
    commands = {**scene.hosts[host].commands, command: told}
    return change(scene, host, commands=commands)


def change(scene: Scene, host: str, **changes: Any) -> Scene:
    """The scene with other facts of one host."""
    return replace(scene, hosts={**scene.hosts, host: replace(scene.hosts[host], **changes)})


def row(scene: Scene, host: str, item: str, **values: object) -> Scene:
    """The scene with another row of the host state's check."""
    items = {**scene.hosts[host].items}
    items[item] = {**items.get(item, {"id": item}), **values}
    return change(scene, host, items=items)


def troubles(scene: Scene) -> list[tuple[str, str, str]]:
    """(severity, host, check) of all that does not pass."""
    return [(f.severity, f.host, f.check) for f in judge(scene) if f.severity != "pass"]


def only(scene: Scene) -> Finding:
    """The one finding that does not pass."""
    (found,) = (finding for finding in judge(scene) if finding.severity != "pass")
    return found


def gpus(
    num: int, *, driver: str = "580.95.05", mig: str = "Disabled", name: str = "NVIDIA GB200"
) -> str:
    """`nvidia-smi --query-gpu` of equal devices."""
    return "".join(
        f"{i}, GPU-{i}, {name}, 0000000{i}:01:00.0, 189471, {driver}, 16, {mig}, 0, Enabled\n"
        for i in range(num)
    )


def fabric(num: int, *, state: str = "Completed", clique: int = 1, cluster: str = "c0ffee") -> str:
    """The fabric sections of `nvidia-smi -q`."""
    return "".join(
        f"GPU 0000000{i}:01:00.0\n    VBIOS Version : 97.00\n    Clocks Event Reasons\n"
        f"        Idle : Active\n        HW Slowdown : Not Active\n    Fabric\n        State : {state}\n"
        "        Status : Success\n"
        f"        CliqueId : {clique}\n        ClusterUUID : {cluster}\n"
        for i in range(num)
    )


def imex(nodes: Mapping[str, str]) -> str:
    """`nvidia-imex-ctl -N -j` with every node connected to every other."""
    described = ", ".join(
        f'"{i}": {{"status": "{status}", "host": "{address}", "version": "580.95.05", "connections": {{}}}}'
        for i, (address, status) in enumerate(nodes.items())
    )
    return f'{{"nodes": {{{described}}}, "status": "UP"}}'


def missing(program: str = "") -> Told:
    """How a command ends on a host that has no such program."""
    return Told(exit_code=None, stdout="", stderr=f"{program}: No such file", seconds=0.0)


def npus(num: int, *, health: str = "OK", dies: int = 1, name: str = "Ascend910B") -> str:
    """`npu-smi info` of equal devices."""
    return (
        "".join(
            f"| {i // dies}  {name} | {health} | 93.6 36 0 / 0 |\n"
            f"| {i % dies} | 0000:0{i}:00.0 | 0 0 / 0 3119 / 65536 |\n"
            for i in range(num)
        )
        + "| NPU     Chip | Process id | Process name | Process memory(MB) |\n"
    )


def _files(plan: Plan, host: str, catalog: Catalog) -> dict[str, object]:
    """What the kernel and drivers say of themselves."""
    texts: dict[str, object] = {
        "/proc/meminfo": f"MemAvailable: {2 << 30} kB\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    }
    vendor, num = (
        catalog.accelerator(plan.host(host).accelerator).vendor,
        plan.host(host).num_devices,
    )
    if vendor == "ascend":
        texts["/usr/local/Ascend/driver/version.info"] = "Version=25.2.0\n"
        texts["/usr/local/Ascend/firmware/version.info"] = "Version=7.7.0\n"
    elif vendor == "amd":
        for i in range(num):
            device = f"/sys/module/amdgpu/drivers/pci:amdgpu/0000:0{i}:00.0"
            texts |= {f"{device}/vbios_version": "113-A\n", f"{device}/current_link_width": "16\n"}
    return texts


def _accelerators(plan: Plan, host: str, catalog: Catalog) -> dict[str, object]:
    accelerator = catalog.accelerator(plan.host(host).accelerator)
    num = plan.host(host).num_devices
    texts: dict[str, str] = {}
    if accelerator.vendor == "nvidia":
        links = "".join(f"GPU {i}: x\n\t Link 0: 53.125 GB/s\n" for i in range(num))
        texts = {
            "nvidia.gpus": gpus(num, name=accelerator.product_name),
            "nvidia.query": fabric(num),
            "nvidia.nvlink": links,
            "nvidia.rows": "".join(f"GPU-{i}, No, No, 0\n" for i in range(num)),
            "nvidia.services": _fabric_manager(is_there=not accelerator.fabric_spans_hosts),
            "nvidia.fabric-manager": "Fabric Manager version is : 580.95.05\n",
            "nvidia.dcgm": '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "CUDA Toolkit Libraries", '
            '"results": [{"status": "Pass"}]}]}]}}',
            "nvidia.imex": imex({h.address: "READY" for h in plan.hosts}),
        }
    elif accelerator.vendor == "ascend":
        dies = 2 if accelerator.devices_per_host == 16 else 1
        texts = {
            "ascend.info": npus(num, dies=dies, name=accelerator.product_name),
            "ascend.spod": "Super Pod ID : 3\n",
        }
        for i in range(num):
            texts[f"ascend.link.{i}"] = "link status: UP\n"
            texts[f"ascend.net_health.{i}"] = "net health status: Success\n"
            texts[f"ascend.tls.{i}"] = f"dev_id:{i}, tls switch[0](0:disable, 1:enable)\n"
            texts[f"ascend.address.{i}"] = f"ipaddr:29.0.0.{i}\nnetmask:255.255.255.0\n"
            texts[f"ascend.gateway.{i}"] = f"default gateway:29.0.0.254, Iface:eth{i}\n"
            texts[f"ascend.netdetect.{i}"] = "netdetect address: 29.0.0.254\n"
            texts[f"ascend.stat.{i}"] = "mac_rx_total_pkt_num:90000\nmac_rx_fcs_err_pkt_num:0\n"
            texts[f"ascend.link_stat.{i}"] = "link up count : 1\nlink down count : 0\n"
            texts[f"ascend.pfc.{i}"] = "PFC configuration:\nenabled    0 0 0 0 1 0 0 0\n"
    elif accelerator.vendor == "amd":
        entries = ", ".join(
            f'{{"gpu": {i}, "asic": {{"market_name": "{accelerator.product_name}"}}, "driver": {{"version": "6.14"}},'
            f' "vram": {{"size": {{"value": {accelerator.memory_mib}}}}},'
            ' "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1"}}'
            for i in range(num)
        )
        texts = {
            "amd.static": f"[{entries}]",
            "amd.ecc": json.dumps(
                [{"gpu": i, "ecc": {"total_uncorrectable_count": 0}} for i in range(num)]
            ),
            "amd.processes": amd_processes(num),
            "amd.xgmi": json.dumps({f"card{i}": {"XGMI Error count": "0"} for i in range(num)}),
        }
    return {
        name: {"exit_code": 0, "stdout": text, "stderr": "", "seconds": 0.1}
        for name, text in texts.items()
    }


def amd_processes(num: int, **pids: int) -> str:
    """`amd-smi process` of so many devices, on which nobody computes but a process on `gpuN`."""
    entries: list[object] = []
    for i in range(num):
        pid = pids.get(f"gpu{i}")
        info: object = "No running processes detected" if pid is None else {"pid": pid}
        entries.append({"gpu": i, "process_list": [{"process_info": info}]})
    return json.dumps(entries)


def _fabric_manager(*, is_there: bool) -> str:
    states = ("loaded", "active") if is_there else ("not-found", "inactive")
    return "Id=nvidia-fabricmanager.service\nLoadState={}\nActiveState={}\n".format(*states)


def _items(plan: Plan) -> list[dict[str, object]]:
    return [
        {
            "id": f"image:{plan.engine.image}",
            "group": "images",
            "state": "ok",
            "before": "sha256:aa",
        },
        {
            "id": f"weights:{plan.checkpoint}",
            "group": "weights",
            "state": "ok",
            "why": "already so",
        },
        {"id": "net.ipv4.ip_local_reserved_ports", "group": "tuning", "state": "ok"},
    ]


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def _dict(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
