"""Kernel arguments by grubby(8), which the boot entries of RHEL, Amazon Linux and openEuler are kept with.

`--update-kernel=ALL` reaches every entry and what the entries of kernels installed later are made from; `--args`
puts a new value in the place of an old one of the same name, else appends; `--remove-args` takes words away.
Releases of its script for boot loader entries look for a name without its left edge: `iommu=pt` then lands in
`intel_iommu=on`. So all that is not ours is compared afterwards and put back. Source: grubby(8); rhboot/grubby
grubby-bls@526e39e (update_args, display_info_values; read 2026-11-21).
"""

from typing import Dict, List, NamedTuple

from ..host import Host, Refused

GRUBBY = "/usr/sbin/grubby"
LOADER_S = 120.0


class Entry(NamedTuple):
    """One boot entry: the kernel that it starts, and the words of its command line."""

    kernel: str
    words: List[str]


def name_of(word: str) -> str:
    """The name of an argument: what stands before its first `=`."""
    return word.partition("=")[0]


def read_entries(host: Host) -> List[Entry]:
    """Every boot entry."""
    answer = host.run(["grubby", "--info=ALL"], LOADER_S)
    if answer.exit_code != 0:
        raise Refused("grubby --info=ALL: {}".format(answer.last_words))
    entries = parse_entries(answer.stdout)
    if not entries:
        raise Refused("grubby --info=ALL names no boot entry")
    return entries


def parse_entries(text: str) -> List[Entry]:
    """The entries that `grubby --info=ALL` describes, each by `kernel=` and `args=`."""
    entries: List[Entry] = []
    kernel = ""
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == "kernel":
            kernel = value.strip().strip('"')
        elif equals and key.strip() == "args":
            entries.append(Entry(kernel, value.strip().strip('"').split()))
    return entries


def held_words(entries: List[Entry], names: "set[str]") -> Dict[str, List[str]]:
    """Kernels by the words of these names that their entries hold, one key for all that hold the same."""
    found: Dict[str, List[str]] = {}
    for entry in entries:
        own = " ".join(sorted(word for word in entry.words if name_of(word) in names))
        found.setdefault(own, []).append(entry.kernel)
    return found


def change_words(host: Host, names: "set[str]", hold: List[str]) -> None:
    """Have every entry hold these words, and of these names no others.

    Raises:
        Refused: grubby fails, or has changed something else; then that is put back.
    """
    before = read_entries(host)
    kept = {name_of(word) for word in hold}
    gone = [w for entry in before for w in entry.words if name_of(w) in names - kept]
    _update(host, hold, list(dict.fromkeys(gone)))
    lost = _lost(before, read_entries(host), names)
    if lost:
        _update(host, lost, [])
        left = _lost(before, read_entries(host), names)
        fate = "look at `grubby --info=ALL`" if left else "it is as it was"
        words = "grubby has changed {}, too; {}. Add `{}` to the boot loader by hand"
        raise Refused(words.format(" ".join(lost), fate, " ".join(hold)))


def _lost(before: List[Entry], after: List[Entry], names: "set[str]") -> List[str]:
    """Words of other names that an entry had and has no more."""
    lost: List[str] = []
    for one, other in zip(before, after):
        lost += [w for w in one.words if name_of(w) not in names and w not in other.words]
    return list(dict.fromkeys(lost))


def _update(host: Host, hold: List[str], drop: List[str]) -> None:
    argv = ["grubby", "--update-kernel=ALL"]
    argv += ["--args=" + " ".join(hold)] if hold else []
    argv += ["--remove-args=" + " ".join(drop)] if drop else []
    if not hold and not drop:
        return
    done = host.run(argv, LOADER_S)
    if done.exit_code != 0:
        raise Refused("grubby: {}".format(done.last_words))
