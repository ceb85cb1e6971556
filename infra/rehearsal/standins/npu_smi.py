"""`npu-smi info`: the overview, `-l`, `-m`, and `-t health|memory|usages|spod-info|common|board`.

Written from Huawei's command reference and public outputs of npu-smi 25. An Atlas A3 card has two
dies, so device 5 is chip 1 of NPU 2; an A2 card has one.
"""

from __future__ import annotations

import os

from .ascend_network import is_super_pod
from .host_state import (
    STANDIN_NOTICE,
    fault_of,
    present_devices,
    read_device_uses,
    read_host,
)
from .standin_options import BadOption, read_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .host_state import DeviceUse

OPTIONS = {"-l": False, "-m": False, "-t": True, "-i": True, "-c": True}
TOPICS = ("health", "memory", "usages", "spod-info", "common", "board")
SERVER_INDEX_SHIFT = 22
CHIP_SHIFT = 18
DIE_SHIFT = 16
IDLE_MEMORY_MIB = 3119
SUPER_POD_SIZE = 384
EXIT_BAD_OPTION = 1
EDGE = "+" + "-" * 27 + "+" + "-" * 15 + "+" + "-" * 52 + "+"
DOUBLE_EDGE = EDGE.replace("-", "=")


def main(arguments: list[str]) -> int:
    """Do what `npu-smi` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    words = arguments[1:]
    if words[:1] in (["-v"], ["--version"]):
        print(f"npu-smi version: {read_host()['driver_version']}")
        os.write(2, f"{STANDIN_NOTICE}\n".encode())
        return 0
    if words[:1] != ["info"]:
        return _refuse(f"This is an invalid parameter: {' '.join(words[:1])}")
    try:
        options = read_options(words[1:], OPTIONS)
    except BadOption as error:
        return _refuse(f"The input parameter {error.word} is invalid.")
    host = read_host()
    if "-m" in options:
        _print_mapping(host)
    elif "-l" in options:
        _print_list(host)
    elif "-t" in options:
        return _print_topic(host, options)
    elif options:
        return _refuse("The -t option is missing.")
    else:
        _print_overview(host)
    return 0


def dies_per_card(host: dict[str, Any]) -> int:
    """Return how many devices share one card."""
    return 2 if is_super_pod(host) else 1


def super_pod_device(host: dict[str, Any], index: int) -> int:
    """Return the SDID of a device: server, chip, die and index in one number."""
    card, die = divmod(index, dies_per_card(host))
    server = host.get("server_index", 0)
    return int(server << SERVER_INDEX_SHIFT | card << CHIP_SHIFT | die << DIE_SHIFT | index)


def _refuse(text: str) -> int:
    """Print why a command line is refused."""
    print(f"{text}\nPlease use 'npu-smi info -h' for help.")
    return EXIT_BAD_OPTION


def _chip_name(host: dict[str, Any]) -> str:
    """Return the chip's name without the vendor's."""
    return str(host["product_name"]).replace("Ascend ", "")


def _bus_id(index: int) -> str:
    """Return a device's address on the PCI bus."""
    return f"0000:{0x9D + index:02X}:00.0"


def _print_overview(host: dict[str, Any]) -> None:
    """Print the table of `npu-smi info`."""
    version = f" npu-smi {host['driver_version']}"
    uses = read_device_uses(host)
    devices = present_devices(host)
    dies = dies_per_card(host)
    print("+" + "-" * 96 + "+")
    print("|" + f"{version:<33}Version: {host['driver_version']}".ljust(96) + "|")
    print(EDGE)
    print(_row("NPU   Name", "Health", "Power(W)    Temp(C)           Hugepages-Usage(page)"))
    third = "Phy-ID" if is_super_pod(host) else ""
    chip = f"Chip  {third}"
    print(_row(chip, "Bus-Id", "AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)"))
    print(DOUBLE_EDGE)
    for position, index in enumerate(devices):
        card, die = divmod(index, dies)
        health = fault_of(host, "device_health", index, "OK")
        use = uses.get(index)
        used = use.memory_mib if use else IDLE_MEMORY_MIB
        physical = f"     {index}" if is_super_pod(host) else ""
        print(
            _row(f"{card:<6}{_chip_name(host)}", health, "178.2       36                0    / 0")
        )
        memory = f"0           0    / 0          {used:<5}/ {host['memory_mib']}"
        print(_row(f"{die}{physical}", _bus_id(index), memory))
        ends_card = die == dies - 1 or position == len(devices) - 1
        print(DOUBLE_EDGE if ends_card else EDGE)
    _print_processes(host, uses)


def _print_processes(host: dict[str, Any], uses: dict[int, DeviceUse]) -> None:
    """Print the table of processes below the overview."""
    dies = dies_per_card(host)
    print(EDGE)
    titles = "Process name             | Process memory(MB)"
    print(_row("NPU     Chip", "Process id", titles))
    print(DOUBLE_EDGE)
    idle: list[int] = []
    for index in present_devices(host):
        card, die = divmod(index, dies)
        use = uses.get(index)
        if use is not None:
            text = f"{use.name[:24]:<25}| {use.memory_mib}"
            print(_row(f"{card:<8}{die}", str(use.pid), text))
            print(DOUBLE_EDGE)
        elif card not in idle and not any(card * dies + other in uses for other in range(dies)):
            idle.append(card)
            print("|" + f" No running processes found in NPU {card}".ljust(96) + "|")
            print(DOUBLE_EDGE)


def _row(first: str, second: str, third: str) -> str:
    """Return one row of the three columns."""
    return f"| {first:<26}| {second:<14}| {third:<51}|"


def _print_mapping(host: dict[str, Any]) -> None:
    """Print `info -m`: which chip is which logical device."""
    dies = dies_per_card(host)
    columns = ["NPU ID", "Chip ID", "Chip Logic ID"]
    columns += ["Chip Phy-ID"] if is_super_pod(host) else []
    print("\t" + "".join(f"{title:<31}" for title in [*columns, "Chip Name"]).rstrip())
    devices = present_devices(host)
    for logical, index in enumerate(devices):
        card, die = divmod(index, dies)
        values = [str(card), str(die), str(logical)]
        values += [str(index)] if is_super_pod(host) else []
        print("\t" + "".join(f"{value:<31}" for value in values) + str(host["product_name"]))
        if die == dies - 1:
            values = [str(card), str(dies), "-"] + (["-"] if is_super_pod(host) else [])
            print("\t" + "".join(f"{value:<31}" for value in values) + "Mcu")


def _print_list(host: dict[str, Any]) -> None:
    """Print `info -l`: the cards."""
    dies = dies_per_card(host)
    cards = sorted({index // dies for index in present_devices(host)})
    print(f"\t{'Total Count':<31}: {len(cards)}")
    for card in cards:
        print(f"\n\t{'NPU ID':<31}: {card}\n\t{'Chip Count':<31}: {dies}")


def _print_topic(host: dict[str, Any], options: dict[str, str]) -> int:
    """Print one topic of one card or chip as `key : value` lines."""
    topic = options["-t"]
    if topic not in TOPICS:
        return _refuse(f"The input parameter {topic} is invalid.")
    if topic == "spod-info" and not is_super_pod(host):
        print("This device does not support querying spod-info.")
        return EXIT_BAD_OPTION
    dies = dies_per_card(host)
    card, die = options.get("-i", ""), options.get("-c")
    if not card.isdigit() or (die is not None and not die.isdigit()):
        return _refuse("The -i or -c option is missing or not a number.")
    wanted = [int(card) * dies + int(die)] if die is not None else [
        int(card) * dies + other for other in range(dies)
    ]  # fmt: skip
    devices = present_devices(host)
    if any(index not in devices for index in wanted) or (die is not None and int(die) >= dies):
        return _refuse(f"The NPU ID {card} or the chip ID {die} is invalid.")
    for index in wanted:
        rows = _topic_rows(host, topic, index)
        if die is None and dies > 1:
            rows = {"NPU ID": card, "Chip ID": str(index % dies), **rows}
        for name, value in rows.items():
            print(f"\t{name:<31}: {value}")
    return 0


def _topic_rows(host: dict[str, Any], topic: str, index: int) -> dict[str, str]:
    """Return the lines of one topic of one device."""
    health = fault_of(host, "device_health", index, "OK")
    use = read_device_uses(host).get(index)
    used = use.memory_mib if use else IDLE_MEMORY_MIB
    total = host["memory_mib"]
    if topic == "health":
        code = "NA" if health == "OK" else "0x80E01801"
        return {"Health Status": health, "Error Code": code, "Error Information": "NA"}
    if topic == "memory":
        return {"DDR Capacity(MB)": "0", "HBM Capacity(MB)": str(total), "HBM Temperature(C)": "36"}
    if topic == "usages":
        return {
            "HBM Capacity(MB)": str(total),
            "HBM Usage Rate(%)": str(100 * used // total),
            "Aicore Usage Rate(%)": "0",
        }
    if topic == "spod-info":
        return {
            "SDID": str(super_pod_device(host, index)),
            "Super Pod Size": str(host.get("super_pod_size", SUPER_POD_SIZE)),
            "Super Pod ID": str(host.get("super_pod_id") or 0),
            "Server Index": str(host.get("server_index", 0)),
        }
    if topic == "board":
        return {
            "Product Name": str(host["product_name"]),
            "Software Version": str(host["driver_version"]),
            "Firmware Version": "7.7.0.1.231",
        }
    return {
        "Chip Count": str(dies_per_card(host)),
        "Aicore Usage Rate(%)": "0",
        "Temperature(C)": "36",
    }
