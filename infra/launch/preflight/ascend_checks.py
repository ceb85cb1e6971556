"""Checks of Ascend hardware: health, each device's own network, the TLS switch, the super-pod."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.schema import Accelerator
from infra.launch.preflight import ascend
from infra.launch.preflight.accelerators import tool_problem
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.scene import Scene, Trouble, odd_ones, unequal


def ascend_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with Ascend devices."""
    return scene.hosts_of_vendor("ascend")


def ascend_network_hosts(scene: Scene) -> tuple[str, ...]:
    """Those whose devices talk to other hosts'."""
    return ascend_hosts(scene) if scene.spans_hosts else ()


def super_pod_hosts(scene: Scene) -> tuple[str, ...]:
    """Those that belong to a super-pod."""
    return tuple(h for h in ascend_network_hosts(scene) if has_super_pod(scene, h))


def has_super_pod(scene: Scene, host: str) -> bool:
    """Whether a host's fabric reaches beyond it over HCCS."""
    accelerator = scene.accelerator(host)
    return accelerator.fabric.kind == "hccs" and accelerator.fabric_spans_hosts


def find_sick_npus(scene: Scene) -> Iterator[Trouble]:
    """Ascend devices whose health is not OK."""
    for name in ascend_hosts(scene):
        for npu in ascend.parse_devices(scene.hosts[name].text("ascend.info") or ""):
            if npu.health != "OK":
                yield Trouble(
                    host=name,
                    severity="warn" if npu.health == "Warning" else "block",
                    observed=f"NPU {npu.card} chip {npu.chip}: health {npu.health}",
                    wanted="OK",
                    fix=f"ssh {name} sudo npu-smi info -t health -i {npu.card} -c {npu.chip}",
                )


def find_device_network_faults(scene: Scene) -> Iterator[Trouble]:
    """Ascend devices whose own network is down, unhealthy, or without an address."""
    for name in ascend_network_hosts(scene):
        host = scene.hosts[name]
        for index in range(scene.plan.host(name).num_devices):
            said = _device_network_fault(host, index, scene.accelerator(name))
            if said is not None:
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"device {index}: {said}",
                    wanted="link UP, net health Success, an address",
                    fix=f"ssh {name} sudo {ascend.HCCN_TOOL} -i {index} -link -g; see the cable and the switch.",
                )


def find_tls_differences(scene: Scene) -> Iterator[Trouble]:
    """Devices whose TLS switch is not as the others': HCCL fails two minutes after the start (EI0006)."""
    switches: dict[str, dict[int, str]] = {}
    for name in ascend_network_hosts(scene):
        for index in range(scene.plan.host(name).num_devices):
            value = ascend.parse_tls(scene.hosts[name].text(f"ascend.tls.{index}") or "")
            if value is not None:
                switches.setdefault(name, {})[index] = value
    values = {f"{n} {i}": v for n, devices in switches.items() for i, v in devices.items()}
    usual, _, _ = odd_ones(values)
    for name, devices in switches.items():
        odd = sorted(index for index, value in devices.items() if value != usual)
        if odd:
            numbers = ", ".join(str(index) for index in odd)
            each = f"for i in {numbers.replace(',', '')}"
            yield Trouble(
                host=name,
                severity="block",
                observed=f"TLS switch {devices[odd[0]]} on device {numbers}, {usual} on the others",
                wanted="the same on every device of every host",
                fix=f"ssh {name} '{each}; do sudo {ascend.HCCN_TOOL} -i $i -tls -s enable {usual}; done'",
            )


def find_other_super_pods(scene: Scene) -> Iterator[Trouble]:
    """Hosts of another super-pod: HCCS does not reach from one to the other."""
    pods = {}
    for name in super_pod_hosts(scene):
        pod = ascend.parse_super_pod(scene.hosts[name].text("ascend.spod") or "")
        if pod is not None:
            pods[name] = f"super-pod {pod}"
    yield from unequal(pods, "Use hosts of one super-pod.")


def find_lost_pings(scene: Scene) -> Iterator[Trouble]:
    """Devices that another host's device cannot ping over their own network; peers with the same ones share a row."""
    lost: dict[tuple[str, str], list[int]] = {}
    for (name, device, address), percent in scene.pings.items():
        if percent is None or percent > 0:
            peer = address.partition(" ")[0]
            lost.setdefault((name, peer), []).append(device)
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (name, peer), devices in lost.items():
        alike.setdefault((name, tuple(devices)), []).append(peer)
    for (name, numbers), peers in alike.items():
        yield Trouble(
            host=name,
            severity="block",
            observed=f"device {', '.join(map(str, numbers))}: no answer from the same device of {', '.join(peers)}",
            fix=f"See VLAN, address and gateway of both: ssh {name} cat /etc/hccn.conf",
        )


def _device_network_fault(host: ObservedHost, index: int, accelerator: Accelerator) -> str | None:
    told = host.commands.get(f"ascend.link.{index}")
    if told is None:
        return None
    if (problem := tool_problem(told, "hccn_tool")) is not None:
        return problem
    link = ascend.parse_link(told.stdout)
    if link != "UP":
        return f"link {link or 'unknown'}"
    # a die of a super-pod may have no port of its own on the RoCE network
    if accelerator.devices_per_card == 1:
        health = ascend.parse_health(host.text(f"ascend.net_health.{index}") or "")
        if health != "Success" and not _is_blind(host, index):
            return f"net health {health or 'unknown'}"
    address = ascend.parse_address(host.text(f"ascend.address.{index}") or "")
    return None if address else "no address"


def _is_blind(host: ObservedHost, index: int) -> bool:
    """Whether a device has no address to ask: its health is Init then."""
    detection = host.text(f"ascend.netdetect.{index}") or ""
    return ascend.shows_detection(detection) and ascend.parse_detection(detection) is None
