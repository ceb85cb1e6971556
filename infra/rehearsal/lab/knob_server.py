"""The process that answers the hosts' knobs, and how the lab talks to it."""

from __future__ import annotations

import json
import os
import select
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from infra.rehearsal.lab import linux
from infra.rehearsal.lab.errors import LabError
from infra.rehearsal.lab.hosts import LabHost
from infra.rehearsal.lab.knob_tree import BOOT_ID, build_knobs, find_knob, seen_at
from infra.rehearsal.lab.knobfs import KnobFileSystem
from infra.rehearsal.lab.knobs import Fault, Folder, Knob


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobWrite:
    """One write to a knob, as the audit log keeps it.

    Args:
        time: seconds since the epoch.
        host: its name.
        path: as the host sees it.
        value: what was written, without white space around it.
        error: errno of the refusal, 0 when it was taken.
        user_id: who wrote.
    """

    time: float
    host: str
    path: str
    value: str
    error: int
    user_id: int


class KnobClient:
    """The lab's side: one request at a time."""

    def __init__(self, channel: socket.socket) -> None:
        self._lines = channel.makefile("rwb")

    def ask(self, operation: str, **details: Any) -> Any:
        """Send one request and wait for its answer.

        Raises:
            LabError: the host has no such knob.
        """
        self._lines.write(json.dumps({"operation": operation, **details}).encode() + b"\n")
        self._lines.flush()
        answer = json.loads(self._lines.readline())
        if "missing" in answer:
            raise LabError(
                f"host {details['host']}",
                f"has no knob {answer['missing']}.",
                "Name it by its path (/proc/sys/vm/swappiness) or its sysctl name.",
            )
        return answer["result"]


def start_knob_server(hosts: tuple[LabHost, ...], where: Path, owner: int) -> KnobClient:
    """Mount the knobs of all hosts on a folder (one folder per host below it), in a child process.

    Args:
        hosts: whose knobs they are.
        where: the folder.
        owner: user and group of all files, as the machine numbers them.

    Raises:
        LabError: a host's first values name a knob that cannot be.
    """
    tree = Folder(entries={})
    for host in hosts:
        try:
            tree.entries[host.name] = build_knobs(host)
        except FileNotFoundError as error:
            raise LabError(
                f"host {host.name}",
                f"cannot have the knob {error}: nothing of the kind is simulated.",
                "Give knobs below /proc/sys and /sys.",
            ) from error
    server = _KnobServer(tree, owner)
    server.file_system.mount(where)
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            linux.die_with_parent()
            ours.close()
            server.serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    os.close(server.file_system.descriptor)
    return KnobClient(ours)


class _KnobServer:
    """One loop over the kernel's requests and the lab's."""

    def __init__(self, tree: Folder, owner: int) -> None:
        self.tree = tree
        self.writes: list[dict[str, Any]] = []
        self.file_system = KnobFileSystem(tree, self._record, owner)

    def serve(self, channel: socket.socket) -> None:
        """Answer until the lab closes its end."""
        lines = channel.makefile("rwb")
        poll = select.poll()
        poll.register(self.file_system.descriptor, select.POLLIN)
        poll.register(channel, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self.file_system.descriptor:
                    self.file_system.serve_one()
                    continue
                line = lines.readline()
                if not line:
                    return
                lines.write(json.dumps(self._answer(json.loads(line))).encode() + b"\n")
                lines.flush()

    def _record(self, path: str, value: str, error: int, user_id: int) -> None:
        host, _, inside = path.partition("/")
        write = KnobWrite(
            time=time.time(),
            host=host,
            path=seen_at(inside),
            value=value,
            error=error,
            user_id=user_id,
        )
        self.writes.append({name: getattr(write, name) for name in KnobWrite.__slots__})

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        operation, host = request["operation"], request["host"]
        if operation == "log":
            return {"result": [one for one in self.writes if host in (None, one["host"])]}
        tree = cast("Folder", self.tree.entries[host])
        if operation == "boot":
            for knob in tree.knobs():
                knob.value = knob.first
            boot_id = cast("Knob", tree.find(BOOT_ID))
            boot_id.value = str(uuid.uuid4())
            return {"result": boot_id.value}
        target = find_knob(tree, request["path"])
        if target is None:
            return {"missing": request["path"]}
        if operation == "inject":
            target.fault = cast("Fault | None", request["fault"])
        return {"result": target.render(target.value)}
