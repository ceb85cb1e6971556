"""The closed set of kinds of items, by name."""

from ..files import read_file, write_file
from ..item import Kind
from ..services import read_service, write_service
from .boot_settings import (
    read_kernel_arguments,
    read_numa_policy,
    write_kernel_arguments,
)
from .clock_service import read_clock, write_clock
from .engine_limits import read_login_limits, read_unit_limits
from .gpu_settings import read_gpu_setting, write_gpu_setting
from .images import bring_image, read_environment, read_image
from .kernel_knobs import (
    read_choice,
    read_migration_cost,
    read_nfs_read_ahead,
    read_reserved_ports,
    read_sysctl,
    read_sysfs,
    write_knob,
)
from .kernel_modules import (
    read_module,
    read_module_options,
    write_module,
    write_module_options,
)
from .links import read_mtu, write_mtu
from .nvidia import read_imex_nodes, read_persistence, write_imex_nodes, write_persistence
from .package_holds import read_holds, write_hold
from .payloads import read_preload, read_weights, write_nothing
from .pcie_acs import read_acs, write_acs

KINDS = {
    "sysctl": Kind(read_sysctl, write_knob, "blocked", recorded=True, survives_reboot=False),
    "sysfs": Kind(read_sysfs, write_knob, "blocked", recorded=True, survives_reboot=False),
    "choice": Kind(read_choice, write_knob, "blocked", recorded=True, survives_reboot=False),
    "migration-cost": Kind(
        read_migration_cost, write_knob, "blocked", recorded=True, survives_reboot=False
    ),
    "reserved-ports": Kind(
        read_reserved_ports, write_knob, "blocked", recorded=True, survives_reboot=False
    ),
    "service": Kind(read_service, write_service, "blocked", recorded=True, survives_reboot=False),
    "nfs-read-ahead": Kind(
        read_nfs_read_ahead, write_knob, "blocked", recorded=True, survives_reboot=False
    ),
    "mtu": Kind(read_mtu, write_mtu, "blocked", recorded=True, survives_reboot=False),
    "clock": Kind(read_clock, write_clock, "blocked", recorded=True, survives_reboot=False),
    "gpu-persistence": Kind(
        read_persistence, write_persistence, "blocked", recorded=True, survives_reboot=False
    ),
    "gpu-setting": Kind(
        read_gpu_setting, write_gpu_setting, "blocked", recorded=True, survives_reboot=False
    ),
    "pcie-acs": Kind(read_acs, write_acs, "blocked", recorded=True, survives_reboot=False),
    "kernel-module": Kind(
        read_module, write_module, "blocked", recorded=True, survives_reboot=True
    ),
    "module-options": Kind(
        read_module_options, write_module_options, "blocked", recorded=True, survives_reboot=True
    ),
    "package-hold": Kind(read_holds, write_hold, "blocked", recorded=True, survives_reboot=True),
    "imex-nodes": Kind(
        read_imex_nodes, write_imex_nodes, "blocked", recorded=True, survives_reboot=True
    ),
    "kernel-arguments": Kind(
        read_kernel_arguments,
        write_kernel_arguments,
        "blocked",
        recorded=True,
        survives_reboot=True,
    ),
    "numa-policy": Kind(
        read_numa_policy, write_file, "blocked", recorded=True, survives_reboot=True
    ),
    "login-limits": Kind(
        read_login_limits, write_file, "blocked", recorded=True, survives_reboot=True
    ),
    "unit-limits": Kind(
        read_unit_limits, write_nothing, "blocked", recorded=False, survives_reboot=True
    ),
    "preload": Kind(read_preload, write_nothing, "blocked", recorded=False, survives_reboot=True),
    "file": Kind(read_file, write_file, "failed", recorded=True, survives_reboot=True),
    "image": Kind(read_image, bring_image, "failed", recorded=False, survives_reboot=True),
    "environment": Kind(
        read_environment, write_nothing, "failed", recorded=False, survives_reboot=True
    ),
    "weights": Kind(read_weights, write_nothing, "failed", recorded=False, survives_reboot=True),
}
