"""Every check of the preflight by its id, and the judgement: facts of all hosts → findings."""

from __future__ import annotations

from collections.abc import Mapping

from infra.launch.preflight import accelerator_checks as accelerators
from infra.launch.preflight import (
    device_checks,
    docker_limits,
    gpu_checks,
    gpu_needs,
    host_checks,
    host_needs,
    network_checks,
    place_checks,
    port_checks,
    rail_checks,
    roce_checks,
    rule_checks,
)
from infra.launch.preflight.accelerator_table import ACCELERATOR_CHECKS
from infra.launch.preflight.finding import Finding, worst_first
from infra.launch.preflight.scene import Check, Scene, everywhere, in_plan, on_engines, on_peers
from infra.launch.preflight.unseen import find_unseen

AS_WANTED = "as wanted"  # what is observed of a host that passes without a word


def _with_secrets(scene: Scene) -> tuple[str, ...]:
    return everywhere(scene) if scene.plan.secrets else ()


def _with_docker_gpus(scene: Scene) -> tuple[str, ...]:
    return gpu_checks.nvidia_hosts(scene) if scene.plan.runtime == "docker" else ()


def _without_daemon(scene: Scene) -> tuple[str, ...]:
    """Docker's daemon sets the limits of its containers itself; others inherit the unit's."""
    return () if scene.plan.runtime == "docker" else everywhere(scene)


def _with_daemon(scene: Scene) -> tuple[str, ...]:
    return everywhere(scene) if scene.plan.runtime == "docker" else ()


def _with_interfaces(scene: Scene) -> tuple[str, ...]:
    return tuple(name for name in everywhere(scene) if scene.interfaces(name))


def _with_rdma(scene: Scene) -> tuple[str, ...]:
    return tuple(name for name in everywhere(scene) if scene.rdma_devices(name))


def _recorded(scene: Scene) -> tuple[str, ...]:
    return tuple(name for name in everywhere(scene) if name in scene.recorded)


CHECKS: Mapping[str, Check] = {
    # wave 1: each host alone
    "host-answers": Check(
        wanted="answers what it is asked, in every wave",
        find=network_checks.find_silent_hosts,
        applies=in_plan,
        depth="full",  # a start refuses at once
    ),
    "host-boot": Check(
        wanted="the boot script over, the weights' place made",
        find=host_checks.find_unfinished_boots,
        applies=everywhere,
    ),
    "weights-staged": Check(
        wanted="whole, as its manifest says",
        find=host_checks.find_missing_weights,
        applies=on_engines,
    ),
    "weights-room": Check(
        wanted="room for what is not staged yet",
        find=host_checks.find_no_room,
        applies=on_engines,
        depth="full",
    ),
    "writable": Check(
        wanted="every place that a start writes to takes writes",
        find=place_checks.find_places_that_take_nothing,
        applies=everywhere,
    ),
    "shared-memory": Check(
        wanted="room in the host's shared memory",
        find=place_checks.find_full_shared_memory,
        applies=place_checks.shared_memory_hosts,
    ),
    "container-sources": Check(
        wanted="everything that containers are given is there",
        find=place_checks.find_missing_sources,
        applies=place_checks.container_hosts,
    ),
    "stuck-processes": Check(
        wanted="no process that waits in the kernel for good",
        find=place_checks.find_stuck_processes,
        applies=everywhere,
        depth="full",
    ),
    "image-present": Check(
        wanted="there before the start",
        find=host_checks.find_missing_image,
        applies=everywhere,
    ),
    "image-digest": Check(
        wanted="one digest on every host",
        find=host_checks.find_other_digests,
        applies=on_engines,
    ),
    "ports-free": Check(
        wanted="every planned port free",
        find=port_checks.find_taken_ports,
        applies=everywhere,
    ),
    "ports-reserved": Check(
        wanted="planned ports among the reserved ones",
        find=port_checks.find_unreserved_ports,
        applies=everywhere,
    ),
    "devices-free": Check(
        wanted="nobody holds the devices",
        find=device_checks.find_held_devices,
        applies=accelerators.with_accelerators,
    ),
    "driver-version": Check(
        wanted="one driver version",
        find=accelerators.find_other_drivers,
        applies=accelerators.with_accelerators,
        needs=gpu_needs.driver,
    ),
    "own-name": Check(
        wanted="an address that peers can reach",
        find=host_checks.find_loopback_name,
        applies=everywhere,
    ),
    "interface": Check(
        wanted="up, with the host's address",
        find=network_checks.find_wrong_interface,
        applies=_with_interfaces,
    ),
    "rdma-devices": Check(
        wanted="active, one rate",
        find=network_checks.find_wrong_rdma,
        applies=_with_rdma,
    ),
    "declared-mtu": Check(
        wanted="the MTU that the inventory declares",
        find=rail_checks.find_small_mtu,
        applies=rail_checks.mtu_hosts,
        needs=host_needs.interfaces,
    ),
    "rdma-rails": Check(
        wanted="the same rails on all hosts of a group",
        find=rail_checks.find_unequal_rails,
        applies=rail_checks.rail_groups,
    ),
    "efa-devices": Check(
        wanted="as many EFA devices as the instance type has",
        find=rail_checks.find_missing_efa,
        applies=rail_checks.efa_hosts,
    ),
    "rdma-flaps": Check(
        wanted="links that stay up",
        find=rail_checks.find_flapping_links,
        applies=rail_checks.card_hosts,
        depth="full",
    ),
    "card-slots": Check(
        wanted="as many and as fast PCIe lanes as the card has",
        find=roce_checks.find_narrow_cards,
        applies=rail_checks.card_hosts,
        depth="full",
    ),
    "roce-priorities": Check(
        wanted="one lossless priority, the engines'",
        find=roce_checks.find_wrong_priorities,
        applies=roce_checks.qos_hosts,
        needs=host_needs.priorities,
        depth="full",
    ),
    "link-errors": Check(
        wanted="no bit errors behind correction, nothing dropped",
        find=roce_checks.find_link_errors,
        applies=roce_checks.error_hosts,
        needs=host_needs.wire_errors,
        depth="full",
    ),
    "facts-fresh": Check(
        wanted="as `fab facts` recorded it",
        find=network_checks.find_stale_facts,
        applies=_recorded,
        needs=host_needs.recorded,
    ),
    "systemd-credentials": Check(
        wanted="systemd 247 or newer",
        find=host_checks.find_old_systemd,
        applies=_with_secrets,
        needs=host_needs.systemd,
    ),
    "firewall": Check(
        wanted="nft, and no other table that drops",
        find=rule_checks.find_other_rules,
        applies=rule_checks.closed_hosts,
        needs=rule_checks.rules_told,
    ),
    "other-stacks": Check(
        wanted="no other stack here",
        find=host_checks.find_other_stacks,
        applies=everywhere,
        depth="full",
    ),
    "memory": Check(
        wanted="room for the weights in the page cache",
        find=host_checks.find_little_memory,
        applies=on_engines,
        needs=host_needs.memory,
        depth="full",
    ),
    "swap": Check(wanted="no swap", find=host_checks.find_swap, applies=on_engines, depth="full"),
    "service-limits": Check(
        wanted="locked memory unlimited, 1048576 files",
        find=host_checks.find_low_limits,
        applies=_without_daemon,
        depth="full",
    ),
    "docker-limits": Check(
        wanted="docker can give containers the limits that ours need",
        find=docker_limits.find_refused_limits,
        applies=_with_daemon,
        depth="full",
    ),
    "cgroup-driver": Check(
        wanted="docker answers; its cgroup driver is cgroupfs",
        find=host_checks.find_cgroup_driver,
        applies=_with_docker_gpus,
        depth="full",
    ),
    "access-control": Check(
        wanted="no PCIe bridge that sends transfers between devices through the root complex",
        find=device_checks.find_access_control,
        applies=device_checks.switched_hosts,
        depth="full",
    ),
    "clock-service": Check(
        wanted="synchronised",
        find=network_checks.find_unsynchronised,
        applies=everywhere,
        depth="full",
    ),
    "clock-source": Check(
        wanted="a fast one: tsc, kvm-clock, arch_sys_counter",
        find=host_checks.find_slow_clocks,
        applies=on_engines,
        needs=host_needs.clock_source,
        depth="full",
    ),
    # wave 2: host to host
    "clock-spread": Check(
        wanted="clocks together",
        find=network_checks.find_clocks_apart,
        applies=on_peers,
    ),
    "route": Check(
        wanted="peers are reached by the declared interface",
        find=network_checks.find_wrong_route,
        applies=_with_interfaces,
        needs=host_needs.routes,
        depth="full",
    ),
    "mtu": Check(
        wanted="one MTU on all hosts",
        find=network_checks.find_unequal_mtu,
        applies=on_peers,
        needs=host_needs.interfaces,
        depth="full",
    ),
    "peer-ports": Check(
        wanted="every port that a peer dials can be reached from it",
        find=network_checks.find_unreachable,
        applies=on_peers,
        depth="full",
    ),
    "path-mtu": Check(
        wanted="full-sized packets arrive",
        find=network_checks.find_small_packets,
        applies=on_peers,
        depth="full",
    ),
    "declared-path-mtu": Check(
        wanted="packets of the declared size go to every peer",
        find=rail_checks.find_small_paths,
        applies=lambda scene: tuple(
            host for host in rail_checks.mtu_hosts(scene) if host in on_peers(scene)
        ),
        depth="full",
    ),
    "peer-names": Check(
        wanted="a peer's name, where it is known, means the peer",
        find=host_checks.find_mistaken_names,
        applies=on_peers,
        needs=host_needs.peer_names,
        depth="full",
    ),
    "peer-identity": Check(
        wanted="each address is its own host's",
        find=network_checks.find_mistaken_hosts,
        applies=on_peers,
        depth="full",
    ),
    # wave 3: accelerators
    **ACCELERATOR_CHECKS,
}


def judge(scene: Scene) -> tuple[Finding, ...]:
    """Every finding, worst first; a host that a check has nothing against, and could look at, passes it."""
    found: list[Finding] = []
    for name, check in CHECKS.items():
        if check.depth == "light" or scene.depth == "full":
            found += _findings(name, check, scene)
    return worst_first(found)


def _findings(name: str, check: Check, scene: Scene) -> list[Finding]:
    hosts = check.applies(scene)
    found = [
        Finding(
            host=trouble.host,
            check=name,
            severity=trouble.severity,
            observed=trouble.observed,
            wanted=trouble.wanted or check.wanted,
            fix=trouble.fix,
        )
        for trouble in (*check.find(scene), *find_unseen(scene, check))
        if trouble.host in hosts
    ]
    troubled = {finding.host for finding in found}
    return found + [
        Finding(
            host=host,
            check=name,
            severity="pass",
            observed=AS_WANTED,
            wanted=check.wanted,
            fix="",
        )
        for host in hosts
        if host not in troubled
    ]
