"""Pings between devices of Ascend hosts over the devices' own network: what asks for one, and what came of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from infra.launch.name_lists import numbered
from infra.launch.preflight import ascend
from infra.launch.preflight.ascend_checks import has_super_pod
from infra.launch.preflight.evidence import UNSEEN, WANTED, why_unseen
from infra.launch.preflight.scene import Scene, Trouble
from infra.launch.preflight.ssh_command import ssh_command


def ping_argv(scene: Scene, host: str, device: int, address: str) -> tuple[str, ...]:
    """What has a device of a host ping an address on the devices' own network."""
    topic = "-hccs_ping" if has_super_pod(scene, host) else "-ping"
    return (ascend.HCCN_TOOL, "-i", str(device), topic, "-g", "address", address)


def find_lost_pings(scene: Scene) -> Iterator[Trouble]:
    """Devices that another host's device cannot ping over their own network; peers with the same ones share a row."""
    lost: dict[str, dict[str, list[int]]] = {}
    for (name, device, where), told in scene.pings.items():
        if ascend.parse_loss(told.stdout):
            peer = where.partition(" ")[0]
            lost.setdefault(name, {}).setdefault(peer, []).append(device)
    for name, by_peer in lost.items():
        for devices, peers in _alike(by_peer).items():
            yield Trouble(
                host=name,
                severity="block",
                observed=f"device {numbered(devices)}: no answer from the same device of {', '.join(peers)}",
                fix=f"See VLAN, address and gateway of both: ssh {name} cat /etc/hccn.conf",
            )
    yield from _untold(scene)


def _untold(scene: Scene) -> Iterator[Trouble]:
    """Pings that say nothing of lost packets: the tool hangs, or writes otherwise. They are no lost ones."""
    untold: dict[tuple[str, str], dict[str, dict[int, str]]] = {}
    for (name, device, where), told in scene.pings.items():
        if ascend.parse_loss(told.stdout) is None:
            peer, _, address = where.partition(" ")
            cause = untold.setdefault((name, why_unseen(told, "hccn_tool")), {})
            cause.setdefault(peer, {})[device] = address
    for (name, why), by_peer in untold.items():
        for devices, peers in _alike(by_peer).items():
            argv = ping_argv(scene, name, devices[0], by_peer[peers[0]][devices[0]])
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"{UNSEEN} of device {numbered(devices)} to {', '.join(peers)}: {why}",
                wanted=WANTED,
                fix=ssh_command(name, f"sudo {shlex.join(argv)}"),
            )


def _alike(by_peer: Mapping[str, Iterable[int]]) -> dict[tuple[int, ...], list[str]]:
    """The peers of the same devices, by these."""
    found: dict[tuple[int, ...], list[str]] = {}
    for peer, devices in by_peer.items():
        found.setdefault(tuple(devices), []).append(peer)
    return found
