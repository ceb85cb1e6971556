"""Whether `systemctl daemon-reload` would cut accelerators from containers that run on this host.

With docker's systemd cgroup driver, a reload makes systemd apply its own device rules again; devices that NVIDIA's
runtime hook added behind its back are lost to running containers: "Failed to initialize NVML: Unknown Error"
(NVIDIA/nvidia-container-toolkit#48, #251, #1227; still reported in 2025). Devices named by `--device` or CDI stay.
Pods are the same containers, but nothing on a node says in short whose devices came by the hook.
"""

import glob
import json
import os
from typing import Dict, List

from ..facts.device_holders import holders_of
from ..host import Host
from .report import Row, row_of
from .steps import Step

ALLOW = "daemon-reload"
LOOK_S = 10.0
UNIT_FOLDER = "/etc/systemd/system"
# Slices of systemd's own making: the kubelet with the cgroupfs driver has `/kubepods`.
POD_SLICE = "kubepods.slice"
GPUS = "/dev/nvidia[0-9]*"
FORMAT = "{{.Name}}\t{{.HostConfig.Runtime}}\t{{json .HostConfig.DeviceRequests}}"


def reload_hurts(host: Host, stack: str) -> str:
    """Why systemd must not be reloaded now; empty when nobody is hurt.

    Containers of the stack itself do not count: they are stopped before their units change.
    """
    pods = pods_with_gpus(host)
    if pods:
        message = "a unit changes, and `systemctl daemon-reload` may cut the GPUs from running pods ({}): {}"
        fix = "drain the node, or say --force {}".format(ALLOW)
        return message.format(", ".join(pods), fix)
    driver = host.run(["docker", "info", "--format", "{{.CgroupDriver}}"], LOOK_S)
    if driver.exit_code != 0 or driver.stdout.strip() != "systemd":
        return ""
    listed = host.run(["docker", "ps", "--quiet", "--no-trunc"], LOOK_S)
    ids = listed.stdout.split() if listed.exit_code == 0 else []
    if not ids:
        return ""
    shown = host.run(["docker", "inspect", "--format", FORMAT, *ids], LOOK_S)
    if shown.exit_code is None or (shown.exit_code != 0 and not shown.stdout.strip()):
        message = "a unit changes, and docker does not say whether a reload would cut GPUs from containers: {}. {}"
        return message.format(shown.last_words, "Look at docker there, or say --force " + ALLOW)
    names = [name for name in hooked(shown.stdout) if not name.startswith("moe-" + stack + "-")]
    if not names:
        return ""
    message = (
        "a unit changes, and `systemctl daemon-reload` would cut the GPUs from running containers ({}): "
        "docker uses the systemd cgroup driver (nvidia-container-toolkit#48). "
        "Stop or drain them, set native.cgroupdriver=cgroupfs, or say --force {}"
    )
    return message.format(", ".join(names), ALLOW)


def pods_with_gpus(host: Host) -> List[str]:
    """The processes of pods that have a GPU of NVIDIA's open, in words."""
    devices = [path[len(host.root) :] for path in glob.glob(host.path(GPUS))]
    return sorted(
        {
            "process {}".format(row["pid"])
            for row in holders_of(host, devices)
            if POD_SLICE in str(row["control_group"])
        }
    )


def why_not_reload(request: Dict[str, object], host: Host, changing: List[Step]) -> str:
    """Why no unit text may change now, empty when it may; looked at only when one would.

    A unit that is new needs no reload: systemd reads it when it is started.
    """
    if not any(is_rewritten(step) for step in changing):
        return ""
    return forbids_reload(request, host)


def knows_any(host: Host, paths: List[str]) -> bool:
    """Whether systemd has a unit of one of these files in memory, be it as one that is not there.

    Then only a reload has it read the file. All others it reads when they are started, which asks nothing of the units
    of everybody else.
    """
    if not paths or not host.has_systemd():
        return False
    if any(os.path.dirname(path) != UNIT_FOLDER for path in paths):
        return True  # a drop-in, whose unit may be anybody's
    names = [os.path.basename(path).replace("@.", "@*.") for path in paths]
    words = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "--full", "--"]
    listed = host.run([*words, *names], LOOK_S)
    return listed.exit_code != 0 or bool(listed.stdout.strip())


def forbids_reload(request: Dict[str, object], host: Host) -> str:
    """Why systemd must not be reloaded for a request; empty when it may, or when that is overruled."""
    allowed = request.get("allow")
    if request["mode"] == "boot" or ALLOW in (allowed if isinstance(allowed, list) else []):
        return ""
    return reload_hurts(host, str(request["stack"])) if host.has_systemd() else ""


def is_rewritten(step: Step) -> bool:
    """Whether a step changes the text of a unit that systemd may have read."""
    is_unit = bool(step.item.document.get("unit"))
    return is_unit and step.reading is not None and step.reading.value is not None


def held_back(step: Step, why: str) -> Row:
    """The row of a unit that may not change now."""
    reading = step.reading
    assert reading is not None  # noqa: S101 - only steps with a reading are pending
    values = (reading.value, reading.wanted, reading.value)
    return dict(row_of(step.item, "blocked", values, why), needs="drain")


def hooked(text: str) -> List[str]:
    """The containers of `docker inspect` whose devices NVIDIA's hook adds, by name."""
    found = []
    for line in text.splitlines():
        name, _, rest = line.partition("\t")
        runtime, _, requests = rest.partition("\t")
        try:
            asked = json.loads(requests or "null") or []
        except ValueError:
            asked = []
        by_hook = [one for one in asked if isinstance(one, dict) and one.get("Driver") != "cdi"]
        if runtime == "nvidia" or by_hook:
            found.append(name.lstrip("/"))
    return found
