"""Checks of RDMA cards as carriers: lanes of their slots, priorities and flow control, errors on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from infra.engines.network_names import traffic_classes_named
from infra.launch.name_lists import listed
from infra.launch.preflight import roce
from infra.launch.preflight.observed import ObservedHost
from infra.launch.preflight.rail_checks import card_hosts, interfaces_of
from infra.launch.preflight.rdma import FOLDER, rails, read_ports
from infra.launch.preflight.roce import Priorities
from infra.launch.preflight.scene import Scene, Trouble, unequal

# DeepOps' node health check wants the exponent at nine at least (facts: hosts 1.4).
LEAST_EXPONENT = 9
# What InfiniBand and Ethernet allow behind error correction; a handful of errors says nothing of a rate.
MOST_ERROR_RATE = 1e-12
LEAST_ERRORS = 10
BITS_PER_WORD = 32
NVIDIA_VENDOR = "0x15b3"  # Mellanox's PCI vendor id
SYMBOL_ERRORS = "/counters/symbol_error"
# A traffic class holds the DSCP in its six upper bits.
DSCP_SHIFT = 2


def qos_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with RoCE rails."""
    return tuple(h for h in card_hosts(scene) if qos_interfaces(scene.hosts[h]))


def error_hosts(scene: Scene) -> tuple[str, ...]:
    """Engine hosts with cards that count errors in a way that is known: NVIDIA's, and InfiniBand's own counters."""
    return tuple(
        name
        for name in card_hosts(scene)
        if counted_cards(scene.hosts[name])[0]
        or any(path.endswith(SYMBOL_ERRORS) for path in scene.hosts[name].files)
    )


def qos_interfaces(host: ObservedHost) -> tuple[str, ...]:
    """The interfaces of a host's active RoCE rails."""
    return _interfaces(host, _active_cards(host, "Ethernet"))


def counted_cards(host: ObservedHost) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The active NVIDIA cards of a host that mlxlink can be asked of, and the interfaces of those with RoCE."""
    nvidia = tuple(card for card in _active_cards(host) if _is_nvidia(host, card))
    ethernet = [card for card in _active_cards(host, "Ethernet") if card in nvidia]
    return nvidia, _interfaces(host, ethernet)


def find_narrow_cards(scene: Scene) -> Iterator[Trouble]:
    """RDMA cards with fewer or slower PCIe lanes than they have: the slot, or a board that sits badly."""
    for name in card_hosts(scene):
        small = []
        for slot in roce.read_slots(scene.hosts[name].files):
            if None not in (slot.width, slot.most_width) and slot.width != slot.most_width:
                small.append(f"{slot.name} has {slot.width} of {slot.most_width} lanes")
            elif None not in (slot.speed_gts, slot.most_speed_gts) and (
                slot.speed_gts != slot.most_speed_gts
            ):
                small.append(
                    f"{slot.name} runs at {slot.speed_gts:g} of {slot.most_speed_gts:g} GT/s"
                )
        if small:
            yield Trouble(
                host=name,
                severity="warn",
                observed=listed(small),
                fix=f"ssh {name} 'sudo dmesg | grep -i \"limited by\"'; another slot, or reseat the card.",
            )


def find_wrong_priorities(scene: Scene) -> Iterator[Trouble]:
    """RoCE rails on which engines' packets may be dropped: they have no lossless priority, or not theirs."""
    shown: dict[str, str] = {}
    for name in qos_hosts(scene):
        found = _priorities(scene.hosts[name])
        wrong = [
            f"{interface} {said}"
            for interface, one in found.items()
            for said in _priority_faults(one, _traffic_classes(scene, name))
        ]
        if wrong:
            yield Trouble(
                host=name,
                severity="warn",
                observed=listed(wrong),
                wanted="priorities by DSCP, one with flow control, and that of the engines' traffic class",
                fix=f"ssh {name} sudo mlnx_qos -i {wrong[0].split()[0]} --trust dscp --pfc 0,0,0,1,0,0,0,0   "
                "# as the switch has it",
            )
        elif found:
            words = {f"flow control on priority {_numbers(one.lossless)}" for one in found.values()}
            shown[name] = " and ".join(sorted(words))
    yield from unequal(
        shown, "Give all hosts and the switch one lossless priority: mlnx_qos.", "warn"
    )


def find_link_errors(scene: Scene) -> Iterator[Trouble]:
    """Cards whose links lose bits that error correction does not bring back, or drop what must not be dropped."""
    for name in error_hosts(scene):
        host = scene.hosts[name]
        wrong = [*_bit_errors(host), *_counted_errors(host), *_port_errors(host.files)]
        if wrong:
            yield Trouble(
                host=name,
                severity="warn",
                observed=listed(wrong),
                fix="Clean or replace cable and transceiver (mlxlink -d CARD -m shows both); for packets that are "
                "dropped, see the switch's buffers.",
            )


def _priorities(host: ObservedHost) -> dict[str, Priorities]:
    """Of the interfaces of a host's active RoCE rails."""
    meant = qos_interfaces(host)
    told = roce.parse_sections(host.text("roce.qos") or "")
    return {
        interface: found
        for interface, text in told.items()
        if interface in meant and (found := roce.parse_priorities(text)) is not None
    }


def _active_cards(host: ObservedHost, link_layer: str = "") -> tuple[str, ...]:
    """The cards of the rails, of one link layer or of all."""
    ports = rails(read_ports(host.files))
    meant = (one for one in ports if link_layer in ("", one.link_layer))
    return tuple(dict.fromkeys(port.name.partition(":")[0] for port in meant))


def _interfaces(host: ObservedHost, cards: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for card in cards for name in interfaces_of(host, card)}))


def _is_nvidia(host: ObservedHost, card: str) -> bool:
    return host.word(f"{FOLDER}/{card}/device/vendor") == NVIDIA_VENDOR


def _traffic_classes(scene: Scene, host: str) -> dict[str, int]:
    """What the processes of a host mark their packets with, by variable."""
    found: dict[str, int] = {}
    for process in scene.plan.on_host(host):
        found.update(traffic_classes_named(process.env))
    return found


def _priority_faults(found: Priorities, classes: Mapping[str, int]) -> Iterator[str]:
    if found.trust != "dscp":
        yield f"goes by {found.trust}, which routed packets do not carry"
    if len(found.lossless) != 1:
        yield (
            f"has flow control on {_numbers(found.lossless)}"
            if found.lossless
            else "has no flow control"
        )
    for variable, traffic_class in classes.items():
        priority = found.by_dscp.get(traffic_class >> DSCP_SHIFT)
        if priority is not None and found.lossless and priority not in found.lossless:
            yield f"gives {variable}={traffic_class} priority {priority}, which may lose packets"


def _bit_errors(host: ObservedHost) -> Iterator[str]:
    for card, text in roce.parse_sections(host.text("roce.ber") or "").items():
        exponent = roce.parse_bit_error_exponent(text)
        if exponent is not None and exponent < LEAST_EXPONENT:
            yield f"{card} loses one bit of 1E{exponent}"


def _counted_errors(host: ObservedHost) -> Iterator[str]:
    """What `ethtool -S` of mlx5 counts (linux: Documentation/networking/device_drivers/…/mlx5/counters.rst)."""
    for interface, text in roce.parse_sections(host.text("roce.counters") or "").items():
        counted = roce.parse_counters(text)
        errors, bits = counted.get("rx_pcs_symbol_err_phy", 0), counted.get("rx_bits_phy", 0)
        if _is_high(errors, bits):
            yield f"{interface} has {errors} symbol errors in {bits:.2g} bits"
        dropped = sum(
            n for name, n in counted.items() if name.endswith(("_buf_discard", "_cong_discard"))
        )
        if dropped:
            yield f"{interface} dropped {dropped} packets of its priorities"
        if storms := counted.get("tx_pause_storm_error_events", 0):
            yield f"{interface} stopped its peers for too long {storms} times"


def _port_errors(files: Mapping[str, str]) -> Iterator[str]:
    """What the port counters of InfiniBand tell (linux: Documentation/ABI/stable/sysfs-class-infiniband)."""
    for path, text in files.items():
        if not path.startswith(FOLDER) or not path.endswith(SYMBOL_ERRORS):
            continue
        folder = path.rpartition("/")[0]
        words = files.get(f"{folder}/port_rcv_data", "").strip()
        errors = int(text) if text.strip().isdecimal() else 0
        if words.isdecimal() and _is_high(errors, int(words) * BITS_PER_WORD):
            yield f"{path.split('/')[4]} has {errors} symbol errors"


def _is_high(errors: int, bits: int) -> bool:
    return errors >= LEAST_ERRORS and errors > bits * MOST_ERROR_RATE


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers) or "none"
