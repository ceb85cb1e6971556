"""Checks of the ports that a plan's processes and watchers bind: nobody else has them, nor is given them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.launch.name_lists import listed
from infra.launch.preflight.scene import Scene, Trouble
from infra.plan.process import Process
from infra.render.host_paths import watch_program
from infra.render.reserved_ports import RESERVED_PORTS_ID, ports_at_risk
from infra.render.supervision import groups_of, plan_watch_port


def find_taken_ports(scene: Scene) -> Iterator[Trouble]:
    """Ports that somebody else listens on; our own running processes may, and so may our own watcher."""
    for name, host in scene.hosts.items():
        needs = {
            port: process.id for process in scene.waiting(name) for port in bound_ports(process)
        }
        ours = {port for process in scene.ours.get(name, ()) for port in process.ports}
        free = {port: whose for port, whose in needs.items() if port not in ours}
        for row in host.listening:
            port = int(str(row["port"]))
            whose = free.get(port) or _watching(scene, name, port, row)
            if whose is None:
                continue
            pid = row.get("pid")
            holder = f"process {pid} ({row['command']})" if pid else "somebody"
            stop = f"ssh {name} sudo " + (f"kill {pid}" if pid else f"ss -Hltnp 'sport = :{port}'")
            yield Trouble(
                host=name,
                severity="block",
                observed=f"port {port}, which {whose} needs, is taken by {holder}",
                fix=f"Stop it on {name}: {stop}; or change the stack's ports.",
            )


def find_unreserved_ports(scene: Scene) -> Iterator[Trouble]:
    """Ports that the kernel may give to outgoing connections before the engines bind them."""
    for name, host in scene.hosts.items():
        ports = sorted(ports_at_risk(scene.plan.on_host(name)))
        row = host.items.get(RESERVED_PORTS_ID)
        if ports and (row is None or row["state"] != "ok"):
            yield Trouble(
                host=name,
                severity="block",
                observed=f"ports {listed([str(p) for p in ports])} lie where the kernel takes ports for outgoing "
                "connections, and are not reserved",
                fix=f"fab tune-hosts --stack {scene.plan.stack}",
            )


def bound_ports(process: Process) -> list[int]:
    """Every port that a process binds."""
    return [bind.port + i for bind in process.binds for i in range(bind.count)]


def _watching(scene: Scene, host: str, port: int, row: Mapping[str, object]) -> str | None:
    """The watcher that cannot listen where somebody else does; None where none has to, or it is the one that does."""
    leads = any(
        group[0].host == host and any(process.host != host for process in group)
        for group in groups_of(scene.plan).values()
    )
    if not leads or port != plan_watch_port(scene.plan):
        return None
    is_ours = watch_program(scene.plan.stack) in str(row.get("command")).split(" ")
    return None if is_ours else f"the watcher of {host}'s groups"
