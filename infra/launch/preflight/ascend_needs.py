"""The answers of Ascend's tools that checks of devices and of their own network rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from infra.launch.preflight import ascend, roce
from infra.launch.preflight.ascend_checks import has_health, network_health
from infra.launch.preflight.ascend_port_checks import COUNTED
from infra.launch.preflight.evidence import Answer, is_there, printed
from infra.launch.preflight.observed import Told
from infra.launch.preflight.scene import Scene


def health(_scene: Scene, _host: str) -> Iterator[Answer]:
    """The health of each device."""
    yield Answer(command="ascend.info", is_told=printed(ascend.parse_devices))


def network(scene: Scene, host: str) -> Iterator[Answer]:
    """Link and address of each device, its network's health, and whether that is asked for where it says it is not."""
    yield from _of_devices(scene, host, "link", printed(ascend.parse_link))
    if has_health(scene, host):
        yield from _of_devices(scene, host, "net_health", printed(ascend.parse_health))
        for answer in detection(scene, host):
            if network_health(scene.hosts[host], answer.device or 0) == ascend.NOT_ASKED:
                yield answer
    yield from _of_devices(scene, host, "address", lambda told: ascend.shows_address(told.all_text))


def tls(scene: Scene, host: str) -> Iterator[Answer]:
    """The TLS switch of each device."""
    yield from _of_devices(scene, host, "tls", printed(ascend.parse_tls, is_there))


def super_pod(_scene: Scene, _host: str) -> Iterator[Answer]:
    """The super-pod that a host belongs to."""
    yield Answer(command="ascend.spod", is_told=printed(ascend.parse_super_pod, is_there))


def gateways(scene: Scene, host: str) -> Iterator[Answer]:
    """Address, mask and gateway of each device; without a gateway the tool may fail, and says so."""
    yield from _of_devices(scene, host, "address", printed(_address_and_mask))
    yield from _of_devices(scene, host, "gateway", lambda told: ascend.shows_gateway(told.all_text))


def addresses(scene: Scene, host: str) -> Iterator[Answer]:
    """The address of each device: without it no peer's can ping it."""
    yield from _of_devices(scene, host, "address", printed(ascend.parse_address, is_there))


def detection(scene: Scene, host: str) -> Iterator[Answer]:
    """The address that each device asks to know of its network's health."""
    yield from _of_devices(scene, host, "netdetect", printed(ascend.shows_detection))


def flow_control(scene: Scene, host: str) -> Iterator[Answer]:
    """The lossless priorities of each device."""
    yield from _of_devices(scene, host, "pfc", printed(roce.parse_flow_control, is_there))


def port_errors(scene: Scene, host: str) -> Iterator[Answer]:
    """How often each device's link went down, and the packets that arrived spoilt."""
    yield from _of_devices(scene, host, "link_stat", printed(ascend.parse_link_downs, is_there))
    counted = printed(ascend.parse_statistics, lambda counted: set(COUNTED) <= set(counted))
    yield from _of_devices(scene, host, "stat", counted)


def _of_devices(
    scene: Scene, host: str, topic: str, is_told: Callable[[Told], bool]
) -> Iterator[Answer]:
    for index in range(scene.plan.host(host).num_devices):
        yield Answer(command=f"ascend.{topic}.{index}", is_told=is_told, device=index)


def _address_and_mask(text: str) -> bool:
    return None not in (ascend.parse_address(text), ascend.parse_mask(text))
