"""The closed set of kinds of items, by name."""

from .files import read_file, write_file
from .item import Kind
from .kernel_knobs import (
    read_choice,
    read_migration_cost,
    read_reserved_ports,
    read_sysctl,
    read_sysfs,
    write_knob,
)
from .payloads import pull_image, read_image, read_preload, read_weights, write_nothing
from .services import read_service, write_service

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
    "preload": Kind(read_preload, write_nothing, "blocked", recorded=False, survives_reboot=True),
    "file": Kind(read_file, write_file, "failed", recorded=True, survives_reboot=True),
    "image": Kind(read_image, pull_image, "failed", recorded=False, survives_reboot=True),
    "weights": Kind(read_weights, write_nothing, "failed", recorded=False, survives_reboot=True),
}
