"""Checks of each Ascend device's own port: gateway, detection address, flow control, errors, and HCCL's ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping

from infra.engines import network_names
from infra.launch.name_lists import numbered
from infra.launch.preflight import ascend, roce
from infra.launch.preflight.ascend_checks import ascend_hosts, ascend_network_hosts, has_super_pod
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.scene import Scene, Trouble, odd_ones
from infra.plan.ports import EPHEMERAL_FIRST, EPHEMERAL_LAST
from infra.render.reserved_ports import RESERVED_PORTS_ID

MAX_NAMED = 4
FLAPS = 5
NO_FLOW_CONTROL = "no flow control"
# Of packets of 4 KiB, what a bit error rate of 1e-12 spoils; a handful says nothing of a rate.
MOST_SPOILT = 1e-7
LEAST_SPOILT = 10
COUNTED = ("mac_rx_fcs_err_pkt_num", "mac_rx_total_pkt_num")


def routed_hosts(scene: Scene) -> tuple[str, ...]:
    """Hosts whose devices reach other hosts' over their own Ethernet ports alone: no super-pod."""
    return tuple(h for h in ascend_network_hosts(scene) if not has_super_pod(scene, h))


def find_wrong_gateways(scene: Scene) -> Iterator[Trouble]:
    """Devices whose peers lie in another network, and that have no gateway there, or one that they cannot reach."""
    for name in routed_hosts(scene):
        wrong = {
            index: said
            for index in _devices(scene, name)
            if (said := _gateway_fault(scene, name, index)) is not None
        }
        for said, devices in _by_words(wrong).items():
            yield Trouble(
                host=name,
                severity="block",
                observed=f"device {numbered(devices)}: {said}",
                fix=f"ssh {name} sudo {ascend.HCCN_TOOL} -i {devices[0]} -gateway -s gateway ADDRESS",
            )


def find_undetected_networks(scene: Scene) -> Iterator[Trouble]:
    """Devices without a detection address: what they say of their network's health means nothing."""
    for name in routed_hosts(scene):
        host = scene.hosts[name]
        blind = [
            index
            for index in _devices(scene, name)
            if ascend.shows_detection(text := host.text(f"ascend.netdetect.{index}") or "")
            and ascend.parse_detection(text) is None
        ]
        if blind:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"device {numbered(blind)}: no detection address, so net health is not known",
                fix=f"ssh {name} sudo {ascend.HCCN_TOOL} -i {blind[0]} -netdetect -s address ADDRESS   "
                "# the gateway's, or a peer device's",
            )


def find_other_flow_control(scene: Scene) -> Iterator[Trouble]:
    """Devices with no lossless priority, or another one than the rest: packets get lost under load."""
    seen: dict[str, dict[int, str]] = {}
    for name in routed_hosts(scene):
        for index in _devices(scene, name):
            found = roce.parse_flow_control(scene.hosts[name].text(f"ascend.pfc.{index}") or "")
            if found is not None:
                seen.setdefault(name, {})[index] = _flow_control(found)
    usual, _, _ = odd_ones({f"{n} {i}": w for n, rows in seen.items() for i, w in rows.items()})
    for name, rows in seen.items():
        odd = {
            index: words
            for index, words in rows.items()
            if words != usual or words == NO_FLOW_CONTROL
        }
        for said, devices in _by_words(odd).items():
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"device {numbered(devices)}: {said}",
                wanted="one lossless priority on every device, the switch's"
                if usual == NO_FLOW_CONTROL
                else f"{usual}, as on the other devices",
                fix=f"ssh {name} sudo {ascend.HCCN_TOOL} -i {devices[0]} -pfc -s bitmap 0,0,0,0,1,0,0,0   "
                "# as the switch has it",
            )


def find_port_errors(scene: Scene) -> Iterator[Trouble]:
    """Devices whose own link goes up and down, or spoils packets."""
    for name in ascend_network_hosts(scene):
        host = scene.hosts[name]
        wrong = {
            index: said
            for index in _devices(scene, name)
            if (said := _port_error(host, index)) is not None
        }
        for said, devices in _by_words(wrong).items():
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"device {numbered(devices)}: {said}",
                fix=f"ssh {name} sudo {ascend.HCCN_TOOL} -i {devices[0]} -optical -g; see cable and transceiver.",
            )


def hccl_ports(scene: Scene, host: str) -> tuple[int, ...]:
    """The ports that HCCL takes by itself on a host, and on its devices; () where it does not run."""
    if host not in ascend_hosts(scene):
        return ()
    found = [
        port
        for process in scene.plan.on_host(host)
        if process.kind == "engine"
        for port in network_names.hccl_ports(process.env)
    ]
    return tuple(dict.fromkeys(found))


def find_taken_hccl_ports(scene: Scene) -> Iterator[Trouble]:
    """Hosts where somebody listens on a port of HCCL's, or the kernel may hand one to an outgoing connection."""
    for name in ascend_hosts(scene):
        host, ports = scene.hosts[name], set(hccl_ports(scene, name))
        is_running = len(scene.waiting(name)) < len(scene.plan.on_host(name)) or scene.ours.get(
            name
        )
        for row in host.listening if not is_running else ():
            port = int(str(row["port"]))
            if port in ports and not _is_planned(scene, name, port):
                holder = (
                    f"process {row['pid']} ({row['command']})" if row.get("pid") else "somebody"
                )
                yield Trouble(
                    host=name,
                    severity="block",
                    observed=f"port {port}, on which HCCL listens, is taken by {holder}",
                    wanted="HCCL's ports free",
                    fix=f"Stop it on {name}: a leftover of an engine most often (npu-smi info shows its processes).",
                )
        at_risk = [port for port in ports if EPHEMERAL_FIRST <= port <= EPHEMERAL_LAST]
        reserved = host.items.get(RESERVED_PORTS_ID)
        if at_risk and reserved is not None and reserved.get("state") != "ok":
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"HCCL's ports {min(at_risk)}-{max(at_risk)} are not reserved: the kernel may give one away",
                wanted="HCCL's ports among the reserved ones",
                fix=f"fab tune-hosts --stack {scene.plan.stack}",
            )


def _flow_control(priorities: tuple[int, ...]) -> str:
    if not priorities:
        return NO_FLOW_CONTROL
    return f"flow control on priority {', '.join(str(priority) for priority in priorities)}"


def _is_planned(scene: Scene, host: str, port: int) -> bool:
    return any(
        bind.port <= port < bind.port + bind.count
        for process in scene.plan.on_host(host)
        for bind in process.binds
    )


def _devices(scene: Scene, host: str) -> range:
    return range(scene.plan.host(host).num_devices)


def _gateway_fault(scene: Scene, name: str, index: int) -> str | None:
    own = _network(scene.hosts[name], index)
    if own is None:
        return None
    told = scene.hosts[name].commands.get(f"ascend.gateway.{index}")
    text = told.all_text if told is not None else ""
    if not ascend.shows_gateway(text):
        return None
    gateway = ascend.parse_gateway(text)
    if gateway is not None and not _lies_in(gateway, own):
        return f"its gateway {gateway} lies outside of its network"
    peers = {
        peer: address
        for peer in routed_hosts(scene)
        if peer != name
        and (
            address := ascend.parse_address(scene.hosts[peer].text(f"ascend.address.{index}") or "")
        )
    }
    far = [peer for peer, address in peers.items() if not _lies_in(address, own)]
    if far and gateway is None:
        return (
            f"no gateway, and the same device of {', '.join(far[:MAX_NAMED])} is in another network"
        )
    return None


def _network(host: ObservedHost, index: int) -> ipaddress.IPv4Network | None:
    text = host.text(f"ascend.address.{index}") or ""
    address, mask = ascend.parse_address(text), ascend.parse_mask(text)
    if address is None or mask is None:
        return None
    try:
        return ipaddress.IPv4Network(f"{address}/{mask}", strict=False)
    except ValueError:
        return None


def _lies_in(address: str, network: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.IPv4Address(address) in network
    except ValueError:
        return False


def _port_error(host: ObservedHost, index: int) -> str | None:
    downs = ascend.parse_link_downs(host.text(f"ascend.link_stat.{index}") or "")
    if downs is not None and downs >= FLAPS:
        return f"its link went down {downs} times since the device started"
    counted = ascend.parse_statistics(host.text(f"ascend.stat.{index}") or "")
    spoilt, total = (counted.get(name, 0) for name in COUNTED)
    if spoilt >= LEAST_SPOILT and spoilt > total * MOST_SPOILT:
        return f"{spoilt} of {total} packets arrived spoilt"
    return None


def _by_words(rows: Mapping[int, str]) -> dict[str, list[int]]:
    """Devices by what is said of them."""
    found: dict[str, list[int]] = {}
    for index, words in rows.items():
        found.setdefault(words, []).append(index)
    return found
