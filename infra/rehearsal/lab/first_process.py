"""PID 1 of the lab's process namespace: it owns the hosts and answers requests about them."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infra.rehearsal.lab import cgroups, connecting, control, entering, inotify, linux
from infra.rehearsal.lab.errors import LabError, UnknownHost, explain
from infra.rehearsal.lab.fleet import BuildOrder, Fleet, RunningHost
from infra.rehearsal.lab.hosts import HostKey, host_from_document
from infra.rehearsal.lab.loop import READ, Loop

_REQUEST_LIMIT_S = 10.0
_DIAL_LIMIT_S = 10.0

_LIKE_SYSTEM_CALLS = ("dial", "open")
"""What a caller gets the operating system's own error of."""

Answer = Mapping[str, Any] | None
"""What a handler returns: the answer, or None when it answers later."""


class FirstProcess:
    """The lab itself.

    Args:
        directory: the lab's folder.
        group: descriptor of the lab's cgroup.
        supervisor: channel to the outer process.
    """

    def __init__(self, directory: Path, group: int, supervisor: socket.socket) -> None:
        self.loop = Loop()
        self._directory = directory
        self._supervisor = supervisor
        self._fleet = Fleet(self.loop, directory, group)
        self._server: socket.socket
        self._handlers: dict[str, Callable[[Request], Answer]] = {
            "boot": self._boot,
            "status": self._status,
            "settled": self._settled,
            "keep": self._keep,
            "end-with-lab": self._end_with_lab,
            "dial": self._dial,
            "open": self._open,
            "run": self._run,
            "processes": self._processes,
            "power": self._power,
            "network": self._network,
            "freeze": self._freeze,
            "inject": self._inject,
            "knob-log": self._knob_log,
        }

    def listen(self, path: Path) -> None:
        """Take requests on a unix socket."""
        self._server = control.listen(path)
        self.loop.watch(self._server, READ, self._accept)

    def _accept(self) -> None:
        channel, _ = self._server.accept()
        channel.settimeout(_REQUEST_LIMIT_S)
        try:
            document, files = control.receive(channel)
        except (OSError, ValueError):
            channel.close()
            return
        if document is None:
            channel.close()
            return
        request = Request(channel, document, files)
        try:
            answer = self._handlers[document["operation"]](request)
        except Exception as error:  # noqa: BLE001 - the requester gets it, the lab goes on
            if not isinstance(error, (LabError, OSError)):
                traceback.print_exc()
                sys.stderr.flush()
            request.fail(error, str(self._directory))
        else:
            if answer is not None:
                request.answer(answer)

    def _host(self, request: Request) -> RunningHost:
        return self._fleet.find(request.document["host"])

    def _boot(self, request: Request) -> Answer:
        document = request.document
        hosts = tuple(host_from_document(one) for one in document["hosts"])
        keys = {
            name: HostKey(private=private, public=public)
            for name, (private, public) in document["keys"].items()
        }
        self._tell_supervisor({"num_hosts": len(hosts)})
        notice = inotify.make_room()
        order = BuildOrder(disk=document["disk"], strangers=document["strangers"])
        told = self._fleet.build(hosts, keys, document["login_key"], order)
        return {"notices": [each for each in (notice, told) if each]}

    def _status(self, _request: Request) -> Answer:
        return {"hosts": [asdict(one.status) for one in self._fleet.hosts.values()]}

    def _settled(self, request: Request) -> Answer:
        self._fleet.when_settled(lambda: request.answer(self._status(request) or {}))
        return None

    def _keep(self, _request: Request) -> Answer:
        self._tell_supervisor({"keep": True})
        return {}

    def _end_with_lab(self, request: Request) -> Answer:
        self._tell_supervisor({"end": True}, request.files)
        return {}

    def _tell_supervisor(self, message: Mapping[str, Any], files: list[int] | None = None) -> None:
        control.send(self._supervisor, message, files or ())
        control.receive(self._supervisor)

    def _dial(self, request: Request) -> Answer:
        document = request.document
        target = document["host"]
        if not target.replace(".", "").isdigit():
            target = self._fleet.find(target).host.address

        def done(result: socket.socket | OSError) -> None:
            if isinstance(result, OSError):
                request.fail(result, f"{document['host']}:{document['port']}")
                return
            request.answer({}, [result.fileno()])
            result.close()

        timeout_s = float(document.get("timeout_s", _DIAL_LIMIT_S))
        connecting.connect(self.loop, (target, int(document["port"])), timeout_s, done)
        return None

    def _open(self, request: Request) -> Answer:
        running, document = self._host(request), request.document
        root = f"/proc/{running.pid}/root" if running.pid else str(running.root)
        if document["path"] == "console":
            root, document["path"] = str(running.root.parent), "/console"
        descriptor = linux.open_in_root(root, document["path"], document["flags"], document["mode"])
        if document["flags"] & os.O_CREAT:
            self._fleet.own(descriptor)
        request.answer({}, [descriptor])
        os.close(descriptor)
        return None

    def _run(self, request: Request) -> Answer:
        running, document = self._running(request), request.document
        group = cgroups.make(running.cgroup, "rehearsal")
        program = entering.Program(
            argv=tuple(document["argv"]),
            environment=document["environment"],
            files=tuple(request.files),
        )
        try:
            child = entering.run_inside(running.pid, group, program)
        finally:
            os.close(group)
        is_over = False

        def ended(status: int) -> None:
            nonlocal is_over
            is_over = True
            self.loop.forget(request.channel)
            request.answer({"exit_code": os.waitstatus_to_exitcode(status)})

        def requester_left() -> None:
            if not is_over:
                os.kill(child, signal.SIGKILL)

        self.loop.on_exit(child, ended)
        self.loop.watch(request.channel, READ, requester_left)
        return None

    def _processes(self, request: Request) -> Answer:
        return {"processes": entering.list_processes(self._running(request).pid)}

    def _running(self, request: Request) -> RunningHost:
        running = self._host(request)
        if not running.pid:
            raise LabError(
                f"host {running.host.name}", "is powered off.", "Power it on first (start)."
            )
        return running

    def _power(self, request: Request) -> Answer:
        running, action = self._host(request), request.document["action"]
        if action == "start":
            self._fleet.start((running,))
            return {}
        change = self._fleet.reset if action == "reset" else self._fleet.power_off
        change(running, lambda: request.answer({}))
        return None

    def _network(self, request: Request) -> Answer:
        running, action = self._host(request), request.document["action"]
        if action == "heal":
            self._fleet.heal(running)
        else:
            self._fleet.cut(running, carrier=action == "no-carrier")
        return {}

    def _freeze(self, request: Request) -> Answer:
        self._fleet.freeze(self._running(request), is_frozen=request.document["is_frozen"])
        return {}

    def _inject(self, request: Request) -> Answer:
        document = request.document
        name = self._host(request).host.name
        value = self._fleet.knobs.ask(
            "inject", host=name, path=document["path"], fault=document["fault"]
        )
        return {"value": value}

    def _knob_log(self, request: Request) -> Answer:
        host = request.document["host"]
        name = self._fleet.find(host).host.name if host is not None else None
        return {"writes": self._fleet.knobs.ask("log", host=name)}


class Request:
    """One request and the connection that its answer goes to."""

    def __init__(self, channel: socket.socket, document: dict[str, Any], files: list[int]) -> None:
        self.channel = channel
        self.document = document
        self.files = files

    def answer(self, document: Mapping[str, Any], files: list[int] | None = None) -> None:
        """Send the answer and close everything of this request."""
        try:
            control.send(self.channel, document, files or ())
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EAGAIN):
                raise
        finally:
            self.channel.close()
            for descriptor in self.files:
                os.close(descriptor)
            self.files = []

    def fail(self, error: Exception, where: str) -> None:
        """Send an error as the answer."""
        explained = explain(error, where)
        number = error.errno if isinstance(error, OSError) else None
        is_callers = self.document["operation"] in _LIKE_SYSTEM_CALLS
        self.answer(
            {
                "error": {
                    "where": explained.where,
                    "what": explained.what,
                    "fix": explained.fix,
                    "errno": number if is_callers else None,
                    "is_unknown_host": isinstance(error, UnknownHost),
                }
            }
        )
