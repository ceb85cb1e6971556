"""The closed set of kinds of items, by name; the modules behind them are loaded by the items that are there."""

from typing import Iterable, List

from ..item import Kind, NotCarried, bring_module

KNOBS = "kinds.kernel_knobs"
KNOB_WRITER = KNOBS + ":write_knob"
FILE_WRITER = "files:write_file"
NO_WRITER = "kinds.no_writer:write_nothing"


def _knob(reader: str) -> Kind:
    """A value of the kernel's."""
    return _live(KNOBS, reader, "write_knob")


def _live(module: str, reader: str, writer: str) -> Kind:
    """What a reboot undoes."""
    names = (module + ":" + reader, module + ":" + writer)
    return Kind(*names, refusal="blocked", recorded=True, survives_reboot=False)


def _lasting(reader: str, writer: str) -> Kind:
    """What a reboot leaves as it is."""
    return Kind(reader, writer, refusal="blocked", recorded=True, survives_reboot=True)


def _payload(reader: str, writer: str = NO_WRITER, refusal: str = "failed") -> Kind:
    """What is not taken back: only looked at, or shared with others."""
    return Kind(reader, writer, refusal, recorded=False, survives_reboot=True)


KINDS = {
    "sysctl": _knob("read_sysctl"),
    "sysfs": _knob("read_sysfs"),
    "choice": _knob("read_choice"),
    "migration-cost": _knob("read_migration_cost"),
    "reserved-ports": _knob("read_reserved_ports"),
    "nfs-read-ahead": _knob("read_nfs_read_ahead"),
    "service": _live("services", "read_service", "write_service"),
    "mtu": _live("kinds.links", "read_mtu", "write_mtu"),
    "clock": _live("kinds.clock_service", "read_clock", "write_clock"),
    "gpu-persistence": _live("kinds.nvidia", "read_persistence", "write_persistence"),
    "gpu-setting": _live("kinds.gpu_settings", "read_gpu_setting", "write_gpu_setting"),
    "pcie-acs": _live("kinds.pcie_acs", "read_acs", "write_acs"),
    "kernel-module": _lasting(
        "kinds.kernel_modules:read_module", "kinds.kernel_modules:write_module"
    ),
    "module-options": _lasting(
        "kinds.kernel_modules:read_module_options", "kinds.kernel_modules:write_module_options"
    ),
    "package-hold": _lasting("kinds.package_holds:read_holds", "kinds.package_holds:write_hold"),
    "imex-nodes": _lasting("kinds.nvidia:read_imex_nodes", "kinds.nvidia:write_imex_nodes"),
    "kernel-arguments": _lasting(
        "kinds.boot_settings:read_kernel_arguments", "kinds.boot_settings:write_kernel_arguments"
    ),
    "numa-policy": _lasting("kinds.boot_settings:read_numa_policy", FILE_WRITER),
    "login-limits": _lasting("kinds.engine_limits:read_login_limits", FILE_WRITER),
    "file": Kind(
        "files:read_file", FILE_WRITER, refusal="failed", recorded=True, survives_reboot=True
    ),
    "firewall": _lasting("kinds.firewall:read_firewall", "kinds.firewall:write_firewall"),
    "metadata": _payload("kinds.metadata:read_table", "kinds.metadata:load_table", "blocked"),
    "unit-limits": _payload("kinds.engine_limits:read_unit_limits", refusal="blocked"),
    "preload": _payload("kinds.programs:read_preload", refusal="blocked"),
    "image": _payload("kinds.images:read_image", "kinds.images:bring_image"),
    "environment": _payload("kinds.images:read_environment"),
    "program": _payload("kinds.programs:read_program"),
    "weights": _payload("kinds.weights:read_weights"),
}


def modules_of(kinds: Iterable[str]) -> List[str]:
    """The modules of some kinds, by their names in the agent; kinds that do not exist have none."""
    return sorted({module for name in kinds if name in KINDS for module in KINDS[name].modules})


def bring(kinds: Iterable[str], further: Iterable[str] = ()) -> None:
    """Load the modules of some kinds, and further ones, before anything is changed.

    Raises:
        NotCarried: some are not here.
        Refused: this Python lacks a module of its library.
    """
    missing = []  # type: List[str]
    for module in [*modules_of(kinds), *further]:
        try:
            bring_module(module)
        except NotCarried as error:
            missing += error.modules
    if missing:
        raise NotCarried(missing)
