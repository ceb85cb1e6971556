"""Checks of what the inventory and the catalogue say of a host's network: packet size, rails, EFA devices, errors."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.instance_types import instance_type_names, read_instance_type
from infra.launch.name_lists import listed
from infra.launch.preflight import linux
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.rdma import FOLDER, Port, rails, read_ports
from infra.launch.preflight.scene import (
    Scene,
    Trouble,
    drained_tuning,
    everywhere,
    unequal,
)
from infra.launch.preflight.ssh_command import ssh_command

LINKS_DOWN = "sudo journalctl -k -b -g 'link down|lost carrier'"
# What Nitro's firmware tells of an instance, as DMI knows it.
PRODUCT_NAME = "/sys/devices/virtual/dmi/id/product_name"
EFA_VENDOR = "0x1d0f"
# A link that went down this often since its driver was loaded flaps (Azure's health check: five times a day).
FLAPS = 5


def mtu_hosts(scene: Scene) -> tuple[str, ...]:
    """The hosts of which the inventory declares the size of packets."""
    return tuple(name for name in everywhere(scene) if scene.declared_mtu(name) is not None)


def rail_groups(scene: Scene) -> tuple[str, ...]:
    """The hosts of groups over several hosts that have RDMA cards."""
    return tuple(
        dict.fromkeys(
            host
            for hosts in scene.groups().values()
            for host in hosts
            if len(hosts) > 1 and (scene.rails(host) or read_ports(scene.hosts[host].files))
        )
    )


def card_hosts(scene: Scene) -> tuple[str, ...]:
    """The engine hosts with RDMA cards."""
    return tuple(host for host in scene.engine_hosts if read_ports(scene.hosts[host].files))


def efa_hosts(scene: Scene) -> tuple[str, ...]:
    """The engine hosts whose instance type the catalogue knows."""
    return tuple(host for host in scene.engine_hosts if instance_type_of(scene, host) is not None)


def instance_type_of(scene: Scene, host: str) -> str | None:
    """The instance type that a host runs on, as its firmware says; None for any other machine."""
    told = scene.hosts[host].word(PRODUCT_NAME)
    return told if told in instance_type_names() else None


def find_small_mtu(scene: Scene) -> Iterator[Trouble]:
    """Interfaces, of rails too, that carry smaller packets than the inventory declares."""
    for name in mtu_hosts(scene):
        host, least = scene.hosts[name], scene.declared_mtu(name) or 0
        address = scene.plan.host(name).address
        known = linux.parse_interfaces(host.text("addresses") or "")
        meant = [
            one
            for one in known
            if address in one.addresses or one.name in _rail_interfaces(scene, name)
        ]
        small = [f"{one.name} carries {one.mtu} bytes" for one in meant if one.mtu < least]
        if small:
            yield Trouble(
                host=name,
                severity="block",
                observed=listed(small),
                wanted=f"{least} bytes (moe.mtu)",
                fix=f"{drained_tuning(scene)}.",
            )


def find_small_paths(scene: Scene) -> Iterator[Trouble]:
    """Peers to which packets of the declared size do not go: a hop between carries less, and says so."""
    small: dict[str, dict[str, int]] = {}
    for result in scene.reached.dials if scene.reached is not None else ():
        caller, least = result.dial.caller, scene.declared_mtu(result.dial.caller)
        if least is not None and result.path_mtu is not None and result.path_mtu < least:
            small.setdefault(caller, {})[result.dial.host] = result.path_mtu
    for name, peers in sorted(small.items()):
        least = scene.declared_mtu(name) or 0
        paths = [f"{size} bytes go to {peer}" for peer, size in peers.items()]
        yield Trouble(
            host=name,
            severity="block",
            observed=f"no more than {listed(paths)}",
            wanted=f"{least} bytes to every peer (moe.mtu)",
            fix=f"Raise the MTU of every port between; try: ping -M do -s {least - 28} {next(iter(peers))}",
        )


def find_unequal_rails(scene: Scene) -> Iterator[Trouble]:
    """Hosts of a group whose rails are not the others': rails are numbered, and each meets its own number."""
    seen: set[str] = set()
    for hosts in scene.groups().values():
        members = [host for host in hosts if host in rail_groups(scene)]
        shown = {host: words for host in members if (words := _rail_words(scene, host))}
        for trouble in unequal(
            shown,
            "Write the same moe.rdma_devices of every host, and see why one differs: rdma link.",
        ):
            if trouble.host not in seen:
                seen.add(trouble.host)
                yield trouble


def find_missing_efa(scene: Scene) -> Iterator[Trouble]:
    """Instances with fewer EFA devices than any layout of their type; some enumerate them late after a boot."""
    for name in efa_hosts(scene):
        kind = str(instance_type_of(scene, name))
        instance_type = read_instance_type(kind)
        least, most = instance_type.least_efa_devices, len(instance_type.cards.efa.indices)
        found = sum(
            text.strip() == EFA_VENDOR
            for path, text in scene.hosts[name].files.items()
            if path.startswith(FOLDER) and path.endswith("/device/vendor")
        )
        if not least <= found <= most:
            yield Trouble(
                host=name,
                severity="block" if found < least else "warn",
                observed=f"{found} EFA devices",
                wanted=f"{least}, as {kind} has"
                if least == most
                else f"{least} to {most}, as {kind} has",
                fix=f"ssh {name} 'sudo modprobe -r efa; sudo modprobe efa'; start the instance anew if they stay away.",
            )


def find_flapping_links(scene: Scene) -> Iterator[Trouble]:
    """RDMA cards whose link went down again and again since the driver was loaded."""
    for name in card_hosts(scene):
        flaps = {
            path.split("/")[4]: int(text)
            for path, text in scene.hosts[name].files.items()
            if path.endswith("/counters/link_downed") and text.strip().isdecimal()
        }
        often = [f"{card} {count} times" for card, count in flaps.items() if count >= FLAPS]
        if often:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"links went down since boot: {listed(often)}",
                fix=f"{ssh_command(name, LINKS_DOWN)}; see cable and transceiver.",
            )


def interfaces_of(host: ObservedHost, card: str) -> set[str]:
    """The network interfaces of an RDMA card."""
    below = f"{FOLDER}/{card}/device/net/"
    return {path[len(below) :] for path in host.paths if path.startswith(below)}


def _rail_interfaces(scene: Scene, name: str) -> set[str]:
    """Network interfaces of the declared RoCE rails; IPoIB's packets have sizes of their own."""
    ports = {port.name: port for port in read_ports(scene.hosts[name].files)}
    found = set()
    for rail in scene.rails(name):
        port = ports.get(_port_name(rail))
        if port is None or port.link_layer == "Ethernet":
            found |= interfaces_of(scene.hosts[name], rail.partition(":")[0])
    return found


def _rail_words(scene: Scene, host: str) -> str:
    """A host's rails as the inventory declares them, else how many serve; "" where one that is named does not."""
    if declared := scene.rails(host):
        return f"rails {', '.join(declared)}"
    ports = read_ports(scene.hosts[host].files)
    found = rails(ports)
    if named := {_port_name(name) for name in scene.rdma_devices(host)}:
        found = tuple(port for port in ports if port.name in named and port.is_active)
        # `rdma-devices` says which of them is not there, and how fast they are
        return f"{len(found)} rails" if len(found) == len(named) else ""
    return f"{len(found)} rails of {_rate(found)}" if found else "no active rail"


def _rate(ports: tuple[Port, ...]) -> str:
    return f"{ports[0].rate_gbps:g} Gbit/s"


def _port_name(rail: str) -> str:
    return rail if ":" in rail else f"{rail}:1"
