"""What checks could not see: an answer that is missing or cannot be read is told, and never passes for a good one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from infra.launch.name_lists import listed
from infra.launch.preflight.asking import asked_commands
from infra.launch.preflight.evidence import UNSEEN, WANTED, Answer, FileText, why_unseen
from infra.launch.preflight.finding import host_names
from infra.launch.preflight.scene import Check, Scene, Trouble
from infra.launch.preflight.ssh_command import ssh_command


def find_unseen(scene: Scene, check: Check) -> Iterator[Trouble]:
    """A warning per host and cause, where answers that a check rests on are missing or cannot be read."""
    for name in check.applies(scene):
        if name not in scene.hosts:
            continue
        commands = scene.hosts[name].commands
        lacking: dict[str, list[Answer]] = {}
        for one in check.needs(scene, name):
            if isinstance(one, FileText):
                yield from _unseen_file(scene, name, one)
                continue
            told = commands.get(one.command)
            if told is None or not one.is_told(told):
                kind = why_unseen(told, "").partition(":")[0]
                lacking.setdefault(f"{_family(one)} {kind}", []).append(one)
        for answers in lacking.values():
            yield _trouble(scene, name, answers)


def _unseen_file(scene: Scene, name: str, file: FileText) -> Iterator[Trouble]:
    why = file.why_unseen(scene.hosts[name].files)
    if why is not None:
        fix = ssh_command(name, f"grep . {file.path}")
        said = f"{UNSEEN}: {why}"
        yield Trouble(host=name, severity="warn", observed=said, wanted=WANTED, fix=fix)


def _family(answer: Answer) -> str:
    """One name for what is asked of every device, or about every peer (`route:PEER`)."""
    name = answer.command.partition(":")[0]
    return name if answer.device is None else name.rpartition(".")[0]


def _trouble(scene: Scene, name: str, answers: Sequence[Answer]) -> Trouble:
    first = answers[0]
    typed = first.by_hand or _typed(scene, name, first.command)
    words = typed.split("   #")[0].split()
    program = words[0].rpartition("/")[2] if words else first.command
    of = _of_devices(scene, name, answers) or _of_peers(scene, answers)
    why = why_unseen(scene.hosts[name].commands.get(first.command), program, first.lacks)
    script, hash_mark, note = f"sudo {typed}".partition("   #")
    return Trouble(
        host=name,
        severity="warn",
        observed=f"{UNSEEN}{of}: {why}",
        wanted=WANTED,
        fix=ssh_command(name, script) + hash_mark + note,
    )


def _of_devices(scene: Scene, name: str, answers: Sequence[Answer]) -> str:
    """The devices that the answers are of, "" for none."""
    devices = [one.device for one in answers if one.device is not None]
    if len(devices) > 1 and len(set(devices)) == scene.plan.host(name).num_devices:
        return " of any device"
    return f" of device {listed([str(one) for one in devices])}" if devices else ""


def _of_peers(scene: Scene, answers: Sequence[Answer]) -> str:
    """The peers that the answers are about, "" for none."""
    peers = [peer for one in answers if (peer := one.command.partition(":")[2])]
    if len(peers) > 1 and len(set(peers)) == len(scene.plan.hosts) - 1:
        return " of any peer"
    return f" of {host_names(peers)}" if peers else ""


def _typed(scene: Scene, name: str, command: str) -> str:
    """The command itself, as it is typed on the host."""
    asked = asked_commands(scene, name).get(command)
    return shlex.join(asked.argv) if asked is not None else ""
