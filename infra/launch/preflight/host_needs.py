"""The answers of Linux's and of cards' tools that checks of hosts and of their networks rest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from infra.launch.preflight import gpu_needs, linux, nvidia, roce
from infra.launch.preflight.evidence import Answer, FileText, is_there, printed
from infra.launch.preflight.host_checks import CLOCK_SOURCE
from infra.launch.preflight.nvlink_checks import rack_hosts
from infra.launch.preflight.observed import Told
from infra.launch.preflight.roce_checks import counted_cards, qos_interfaces
from infra.launch.preflight.scene import Scene

NO_SUCH_NAME = 2  # getent(1): "one or more supplied key could not be found"
OTHER_MAKERS = "   # of cards of other makers their own tool tells it"


def interfaces(_scene: Scene, _host: str) -> Iterator[Answer]:
    """Interfaces, their addresses and sizes of packets."""
    yield Answer(command="addresses", is_told=printed(linux.parse_interfaces))


def recorded(scene: Scene, host: str) -> Iterator[Answer]:
    """What is held against the facts file, its files apart."""
    yield from interfaces(scene, host)
    has_domain = scene.recorded[host].nvlink_domain and host in rack_hosts(scene)
    if scene.depth == "full" and has_domain:
        yield Answer(command=gpu_needs.QUERY, is_told=printed(nvidia.shows_fabric))


def systemd(_scene: Scene, _host: str) -> Iterator[Answer]:
    """The release of systemd."""
    yield Answer(command="systemd", is_told=printed(linux.parse_systemd_version, is_there))


def memory(_scene: Scene, _host: str) -> Iterator[FileText]:
    """What is free of the host's memory."""
    yield FileText(
        path="/proc/meminfo", reads=lambda text: "MemAvailable" in linux.parse_memory(text)
    )


def clock_source(_scene: Scene, _host: str) -> Iterator[FileText]:
    """By what the kernel tells the time."""
    yield FileText(path=CLOCK_SOURCE, reads=str.strip)


def routes(scene: Scene, host: str) -> Iterator[Answer]:
    """The way to every peer."""
    for peer in (one.name for one in scene.plan.hosts if one.name != host):
        yield Answer(command=f"route:{peer}", is_told=printed(linux.parse_route))


def peer_names(scene: Scene, host: str) -> Iterator[Answer]:
    """Whom a host takes for each peer; not to know a name is an answer."""
    found = printed(linux.parse_own_addresses)
    for peer in (one.name for one in scene.plan.hosts if one.name != host):
        yield Answer(
            command=f"name:{peer}",
            is_told=lambda told: told.exit_code == NO_SUCH_NAME or found(told),
        )


def priorities(scene: Scene, host: str) -> Iterator[Answer]:
    """Priorities of the interfaces of RoCE rails."""
    names = qos_interfaces(scene.hosts[host])
    yield Answer(
        command="roce.qos",
        is_told=_sections(names, lambda text: roce.parse_priorities(text) is not None),
        by_hand=f"mlnx_qos -i {names[0]}{OTHER_MAKERS}",
    )


def wire_errors(scene: Scene, host: str) -> Iterator[Answer]:
    """Bit errors of NVIDIA's cards; of those with RoCE also what Ethernet counts."""
    cards, names = counted_cards(scene.hosts[host])
    if cards:
        rate = _sections(cards, lambda text: roce.parse_bit_error_exponent(text) is not None)
        yield Answer(command="roce.ber", is_told=rate, by_hand=f"mlxlink -d {cards[0]} -c")
    if names:
        counted = _sections(names, lambda text: bool(roce.parse_counters(text)))
        yield Answer(command="roce.counters", is_told=counted, by_hand=f"ethtool -S {names[0]}")


def _sections(names: tuple[str, ...], reads: Callable[[str], bool]) -> Callable[[Told], bool]:
    """Whether the section of every card or interface can be read."""
    return printed(
        roce.parse_sections,
        lambda found: all(name in found and reads(found[name]) for name in names),
    )
