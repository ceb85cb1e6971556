"""What may not be changed now: items that wait for a drain or a reboot, and hosts whose engines run."""

import os
from typing import Dict, List, Optional

from ..facts.command_lines import command_lines
from ..host import Host, Refused
from ..item import Item, Reading

UNITS = tuple("moe-*-{}@*.service".format(kind) for kind in ("engine", "router", "edge"))
# How the first process of every pod with engines is started (render/pod_template.py).
POD_LAUNCHER = "/etc/moe-infra/launch.py run "
POD = "a pod"
RUNNING_STATES = "active,activating,deactivating,reloading"
MAX_NAMED = 3
ASK_S = 15.0
ADVICE = {
    "drain": "stop what runs here (`fab down`), then `fab tune-hosts` with --allow drain",
    "reboot": "`fab tune-hosts` with --allow reboot prepares it; the reboot is yours",
}


class Permission:
    """What the operator has allowed, and what runs on the host (asked once, when it matters).

    Args:
        host: where the engines would run.
        allowed: `drain`, `reboot`, `running`.
        is_boot: at boot nothing runs yet, so nothing has to wait.
    """

    def __init__(self, host: Host, allowed: List[str], *, is_boot: bool) -> None:
        """Take what was allowed."""
        self._host = host
        self._allowed = set(allowed)
        self._is_boot = is_boot
        self._running: Optional[List[str]] = None

    def is_withheld(self, item: Item) -> bool:
        """Whether the operator has not allowed what a change of this item needs."""
        return not self._is_boot and item.needs in ADVICE and item.needs not in self._allowed

    def refusal(self, item: Item, reading: Reading) -> Optional[str]:
        """Why this item is not changed now and what to do about it; None when it may be."""
        if self.is_withheld(item):
            lacks = (reading.todo or item.why).rstrip(".")
            return "waits for a {}: {}; {}".format(item.needs, lacks, ADVICE[str(item.needs)])
        return self.disturbs(item)

    def refusal_to_withdraw(self, item: Item) -> Optional[str]:
        """Why what nobody wants any more is not taken back now; None when it may be."""
        if self.is_withheld(item):
            return "waits for a {}; {}".format(item.needs, ADVICE[str(item.needs)])
        return self.disturbs(item)

    def disturbs(self, item: Item) -> Optional[str]:
        """Why a change would hurt what runs here; None when it would not."""
        if self._is_boot or item.needs != "drain" or "running" in self._allowed:
            return None
        if self._running is None:
            self._running = running_units(self._host) + running_pods(self._host)
        if not self._running:
            return None
        named = ", ".join(self._running[:MAX_NAMED])
        more = len(self._running) - MAX_NAMED
        others = " and {} more".format(more) if more > 0 else ""
        is_pod = self._running[-1].startswith(POD)  # they are named last
        advice = "scale its set to 0 first" if is_pod else "`fab down` first"
        what = "waits for a drain: {}{} runs here and would be hurt; {}"
        return what.format(named, others, advice)


def permission_of(request: Dict[str, object], host: Host) -> Permission:
    """What a request allows."""
    listed = request.get("allow")
    allowed = [str(word) for word in listed] if isinstance(listed, list) else []
    return Permission(host, allowed, is_boot=request.get("mode") == "boot")


def running_units(host: Host) -> List[str]:
    """The engines, routers and edges of ours that run on the host, of whatever stack."""
    if not host.has_systemd():
        return []
    argv = ["systemctl", "list-units", "--plain", "--no-legend", "--state=" + RUNNING_STATES]
    answer = host.run([*argv, "--", *UNITS], ASK_S)
    if answer.exit_code != 0:
        raise Refused("systemctl list-units: {}".format(answer.last_words))
    rows = [line.split() for line in answer.stdout.splitlines()]
    return [row[0] for row in rows if row]


def running_pods(host: Host) -> List[str]:
    """The pods of ours that run on the host, of whatever stack, by the process of their launcher."""
    names = os.listdir(host.path("/proc")) if host.exists("/proc") else []
    commands = command_lines(host, sorted(map(int, filter(str.isdigit, names))), ASK_S)
    return [
        "{} (process {})".format(POD, pid)
        for pid, command in commands.items()
        if POD_LAUNCHER in command + " "
    ]
