"""What only the next boot brings: kernel arguments, and systemd's NUMA policy where GPU memory is a node."""

from typing import List, Set

from ..files import HEAD, state_of, text_state
from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading
from ..told import is_untold, write_and_tell
from .grubby import GRUBBY, LOADER_S, change_words, held_words, name_of, read_entries

COMMAND_LINE = "/proc/cmdline"
GRUB_FOLDER = "/etc/default/grub.d"
GRUB_FILE = GRUB_FOLDER + "/60-moe-infra.cfg"
GRUBBY_PART = "grubby"
NOT_FOUND = "No such file"

NODES = "/sys/devices/system/node"
FIRST_MAPS = "/proc/1/numa_maps"
NUMA_FILE = "/etc/systemd/system.conf.d/60-moe-infra-numa.conf"


def read_kernel_arguments(host: Host, item: Item) -> Reading:
    """Words of the running kernel's command line, and what the boot loader holds for the next one."""
    running = host.read_word(COMMAND_LINE).split()
    if item.want is None:
        return Reading(" ".join(running), {}, None, {})
    wanted = item.want.split()
    missing = [word for word in wanted if word not in running]
    names = {name_of(word) for word in wanted}
    related = [word for word in running if name_of(word) in names]
    shown = " ".join(related) or "none of them"
    reading = _loader_reading(host, item, shown, wanted)
    if not missing:
        untold = {part: reading.parts[part] for part in reading.untold}
        return reading._replace(wanted_parts=untold, locked=None)
    lacks = "{} lacks {}".format(COMMAND_LINE, " ".join(missing))
    if reading.locked is not None:
        return reading._replace(locked="{}; {}".format(lacks, reading.locked))
    if not reading.differing():
        return reading._replace(locked="{}; the boot loader has it: reboot this host".format(lacks))
    return reading._replace(todo="{}; {}, then reboot".format(lacks, _by_hand(reading, wanted)))


def write_kernel_arguments(host: Host, item: Item, part: str, value: object) -> None:
    """Write the one file that we own and have GRUB read it, or have grubby do it."""
    if part == GRUBBY_PART:
        names = {name_of(word) for word in (item.want or "").split()}
        change_words(host, names, str(value or "").split())
        return
    write_and_tell(host, item, part, value, lambda: _update_grub(host, is_gone=value is None))


def read_numa_policy(host: Host, item: Item) -> Reading:
    """Whether systemd keeps services off memory that has no CPU (the GPUs' own, on Grace without CDMM)."""
    if not host.exists(NODES + "/has_memory"):
        return absent_reading(item, "this kernel knows no NUMA nodes")
    with_memory = parse_list(host.read_word(NODES + "/has_memory"))
    cpu_nodes = host.read_word(NODES + "/has_cpu")
    current = state_of(host, NUMA_FILE)
    parts: Parts = {NUMA_FILE: current}
    lone = sorted(with_memory - parse_list(cpu_nodes))
    if item.want is None:
        return Reading("{} nodes without CPU".format(len(lone)), parts, None, {})
    wanted = "{}:{}".format(item.want, cpu_nodes)
    if not lone:
        note = "every node with memory has CPUs, so there is nothing to keep away from"
        return Reading("not needed", parts, wanted, {NUMA_FILE: current}, note=note)
    shown = _policy_of_first(host)
    text = HEAD + "[Manager]\nNUMAPolicy={}\nNUMAMask={}\n".format(item.want, cpu_nodes)
    reading = Reading(shown, parts, wanted, {NUMA_FILE: text_state(host, text)})
    if shown == wanted:
        return reading._replace(wanted_parts={NUMA_FILE: current})
    nodes = "memory of node {} has no CPU: it is a GPU's".format(", ".join(map(str, lone)))
    if not reading.differing():
        return reading._replace(locked="{}; {} says so: reboot this host".format(nodes, NUMA_FILE))
    return reading._replace(
        todo="{}; {} must hold the policy, then reboot".format(nodes, NUMA_FILE)
    )


def parse_list(text: str) -> Set[int]:
    """The numbers of a kernel list such as `0-1,4`.

    Raises:
        Refused: it is none.
    """
    numbers: Set[int] = set()
    for word in filter(None, text.split(",")):
        first, _, last = word.partition("-")
        try:
            numbers.update(range(int(first), int(last or first) + 1))
        except ValueError as error:
            raise Refused("{!r} is not a list of nodes".format(text)) from error
    return numbers


def _loader_reading(host: Host, item: Item, shown: str, wanted: List[str]) -> Reading:
    """What the boot loader holds of the arguments, in the form that brings it back."""
    if host.exists(GRUBBY):
        return _grubby_reading(host, item, shown, wanted)
    if host.exists(GRUB_FOLDER):
        text = 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {}"\n'.format(item.want)
        current = state_of(host, GRUB_FILE)
        wanted_parts: Parts = {GRUB_FILE: text_state(host, HEAD + text)}
        untold = (GRUB_FILE,) if is_untold(host, GRUB_FILE) else ()
        return Reading(shown, {GRUB_FILE: current}, item.want, wanted_parts, untold=untold)
    why = "neither {} nor {} is here: add it to the boot loader by hand, then reboot"
    return Reading(shown, {}, item.want, {}, locked=why.format(GRUB_FOLDER, GRUBBY))


def _grubby_reading(host: Host, item: Item, shown: str, wanted: List[str]) -> Reading:
    """The words of these names that every boot entry holds; entries that differ are left to people."""
    held = held_words(read_entries(host), {name_of(word) for word in wanted})
    if len(held) > 1:
        told = "; ".join("{} in {}".format(w or "none", ", ".join(held[w])) for w in sorted(held))
        why = "the boot entries differ ({}): bring them in line with grubby by hand".format(told)
        return Reading(shown, {}, item.want, {}, locked=why)
    parts: Parts = {GRUBBY_PART: next(iter(held))}
    return Reading(shown, parts, item.want, {GRUBBY_PART: " ".join(sorted(wanted))})


def _by_hand(reading: Reading, wanted: List[str]) -> str:
    if GRUBBY_PART in reading.parts:
        return "`grubby --update-kernel=ALL --args='{}'`".format(" ".join(wanted))
    return "{} must add it and `update-grub` run".format(GRUB_FILE)


def _update_grub(host: Host, *, is_gone: bool) -> None:
    done = host.run(["update-grub"], LOADER_S)
    if is_gone and done.exit_code is None and NOT_FOUND in done.last_words:
        return  # nothing here has ever read the file
    if done.exit_code != 0:
        raise Refused("update-grub: {}".format(done.last_words))


def _policy_of_first(host: Host) -> str:
    """The memory policy of PID 1, which its services inherit: `default` or `bind:0-1`."""
    try:
        lines = host.read_bytes(FIRST_MAPS).decode("utf-8", "replace").splitlines()
    except OSError:
        return "unknown"
    words = lines[0].split() if lines else []
    return words[1] if len(words) > 1 else "unknown"
