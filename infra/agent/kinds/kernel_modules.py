"""Kernel modules: loaded now and at every boot, and the options that one is loaded with.

Sources: modules-load.d(5), modprobe.d(5), modprobe(8), rmmod(8); `NVreg_` parameters as /proc/driver/nvidia/params
tells them: open-gpu-kernel-modules kernel-open/nvidia/nv-procfs.c (read 2026-11-21).
"""

from typing import Dict, Optional

from ..files import state_of, text_state, write_file
from ..host import Host, Refused
from ..item import Item, Parts, Reading, absent_reading
from ..told import is_untold, write_and_tell

HEAD = "# Written by moe-infra; `fab tune-hosts --rollback` takes it back.\n"
LOAD_FILE = "/etc/modules-load.d/60-moe-infra-{}.conf"
OPTIONS_FILE = "/etc/modprobe.d/60-moe-infra-{}.conf"
LOADED_TABLE = "/proc/modules"
LIVE_MODULE = "/sys/module/{}"
PARAMETER = LIVE_MODULE + "/parameters/{}"
NVIDIA_PARAMETERS = "/proc/driver/nvidia/params"
NVIDIA_PREFIX = "NVreg_"
LOADED, NOT_LOADED = "loaded", "not loaded"
# The first that is there; both rebuild what the boot loader starts with.
REBUILDERS = (("update-initramfs", "-u", "-k", "all"), ("dracut", "--force", "--regenerate-all"))
LOAD_S = 60.0
REBUILD_S = 900.0
NOT_FOUND = "No such file"


def read_module(host: Host, item: Item) -> Reading:
    """Whether a module is loaded, and whether the next boot loads it.

    One that somebody else loads already is left to them: then no file of ours is wanted.
    """
    name = item.target
    path = LOAD_FILE.format(name)
    is_listed = name.replace("-", "_") in _listed(host)
    is_live = is_listed or host.exists(LIVE_MODULE.format(name.replace("-", "_")))
    current = state_of(host, path)
    if not is_live and not _is_known(host, name):
        return absent_reading(item, "this kernel has no module {}".format(name))
    parts: Parts = {path: current, LOADED: LOADED if is_live else NOT_LOADED}
    if item.want is None:
        return Reading(str(parts[LOADED]), parts, None, {})
    wanted: Parts = {path: text_state(host, HEAD + name + "\n"), LOADED: LOADED}
    note = ""
    if is_live and current is None:
        wanted = {LOADED: LOADED}
        note = "built in, or loaded by somebody else"
    return Reading(str(parts[LOADED]), parts, item.want, wanted, note=note)


def write_module(host: Host, item: Item, part: str, value: object) -> None:
    """Write the file of modules-load.d, load the module, or unload it and nothing that it brought along."""
    if part != LOADED:
        write_file(host, item, part, value)
        return
    argv = ["modprobe", "--", item.target] if value == LOADED else ["rmmod", "--", item.target]
    _do(host, argv, LOAD_S)


def read_module_options(host: Host, item: Item) -> Reading:
    """The options that the running module tells, and the file of ours that the next boot reads."""
    module, path = item.target, OPTIONS_FILE.format(item.id.replace(".", "-"))
    if not host.exists(LIVE_MODULE.format(module)) and not _is_known(host, module):
        return absent_reading(item, "this kernel has no module {}".format(module))
    current = state_of(host, path)
    parts: Parts = {path: current}
    if item.want is None:
        return Reading("left alone", parts, None, {})
    running: Dict[str, Optional[str]] = {}
    lacking = []
    for word in item.want.split():
        name, _, value = word.partition("=")
        running[name] = _parameter(host, module, name)
        if running[name] not in (None, value):
            lacking.append(word)
    told = ["{}={}".format(name, value) for name, value in running.items() if value is not None]
    shown = " ".join(told) or None
    text = "{}options {} {}\n".format(HEAD, module, item.want)
    untold = (path,) if is_untold(host, path) else ()
    reading = Reading(shown, parts, item.want, {path: text_state(host, text)}, untold=untold)
    silent = [name for name, value in running.items() if value is None]
    if not lacking and not silent:
        return reading._replace(wanted_parts={path: current})
    if not reading.differing():
        if not lacking:
            note = "the module does not tell {}; the next boot reads it from {}"
            return reading._replace(note=note.format(", ".join(silent), path))
        why = "{} runs with {}; {} says otherwise: reboot this host"
        return reading._replace(locked=why.format(module, shown, path))
    words = "{} must hold `options {} {}` and the initramfs be rebuilt, then reboot"
    return reading._replace(todo=words.format(path, module, item.want))


def write_module_options(host: Host, item: Item, part: str, value: object) -> None:
    """Write the one file that we own, and rebuild the initramfs, which has a copy of it."""
    write_and_tell(host, item, part, value, lambda: _rebuild(host, is_gone=value is None))


def _rebuild(host: Host, *, is_gone: bool) -> None:
    for argv in REBUILDERS:
        done = host.run(list(argv), REBUILD_S)
        if done.exit_code is None and NOT_FOUND in done.last_words:
            continue
        if done.exit_code != 0:
            raise Refused("{}: {}".format(argv[0], done.last_words))
        return
    if not is_gone:  # else nothing here has ever read the file
        what = "neither update-initramfs nor dracut is here: rebuild the initramfs by hand"
        raise Refused(what)


def _listed(host: Host) -> "set[str]":
    try:
        lines = host.read_bytes(LOADED_TABLE).decode("utf-8", "replace").splitlines()
    except OSError:  # a kernel without modules
        return set()
    return {line.split(" ", 1)[0] for line in lines}


def _is_known(host: Host, name: str) -> bool:
    """Whether there is such a module to load; nothing is loaded by asking."""
    return host.run(["modprobe", "--dry-run", "--quiet", "--", name], LOAD_S).exit_code == 0


def _parameter(host: Host, module: str, name: str) -> Optional[str]:
    """What a parameter of the running module is; None when it does not tell."""
    path = PARAMETER.format(module, name)
    if host.exists(path):
        return host.read_word(path)
    if not name.startswith(NVIDIA_PREFIX) or not host.exists(NVIDIA_PARAMETERS):
        return None
    text = host.read_bytes(NVIDIA_PARAMETERS).decode("utf-8", "replace")
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name[len(NVIDIA_PREFIX) :]:
            return value.strip().strip('"')
    return None


def _do(host: Host, argv: "list[str]", timeout_s: float) -> None:
    done = host.run(argv, timeout_s)
    if done.exit_code != 0:
        raise Refused("{}: {}".format(" ".join(argv), done.last_words))
