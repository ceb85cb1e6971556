"""Checks of Ascend hardware: health, each device's own network, the TLS switch, the super-pod."""

from __future__ import annotations

from collections.abc import Iterator

from infra.launch.preflight import ascend
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


def has_health(scene: Scene, host: str) -> bool:
    """Whether a host's devices know their network's health: a die of a super-pod may have no port of its own there."""
    return scene.accelerator(host).devices_per_card == 1


def network_health(host: ObservedHost, index: int) -> str | None:
    """What a device says of its network's health; None where it says nothing."""
    return ascend.parse_health(host.text(f"ascend.net_health.{index}") or "")


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
            said = _device_network_fault(host, index, has_health=has_health(scene, name))
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


def _device_network_fault(host: ObservedHost, index: int, *, has_health: bool) -> str | None:
    """What a device's tool says against it; what it does not say is no fault (`ascend_needs.network`)."""
    link = ascend.parse_link(host.text(f"ascend.link.{index}") or "")
    if link not in (None, "UP"):
        return f"link {link}"
    health = network_health(host, index) if has_health else None
    if health not in (None, "Success") and not _is_blind(host, index, health):
        return f"net health {health}"
    address = host.commands.get(f"ascend.address.{index}")
    return "no address" if address is not None and ascend.NO_ADDRESS in address.all_text else None


def _is_blind(host: ObservedHost, index: int, health: str | None) -> bool:
    """Whether a device has no address to ask, or may have none: its health is Init then."""
    detection = host.text(f"ascend.netdetect.{index}") or ""
    is_told = ascend.shows_detection(detection)
    return ascend.parse_detection(detection) is None and (is_told or health == ascend.NOT_ASKED)
