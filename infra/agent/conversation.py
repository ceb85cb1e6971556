"""Requests in, a report out for each; an operation's module is loaded only when it is asked for."""

import contextlib
import importlib
import json
import os
import select
import sys
import threading
import zlib
from typing import Any, Callable, Dict, List, cast

from .asker import Asker, Watch
from .host import Host, Refused, mending
from .item import NotCarried
from .lease import LeaseRefused, keep_lease, release_lease

SCHEMA_VERSION = 1
MARKER = "moe-infra-report"
OPERATIONS = {
    "state": ".state.operation",
    "units": ".processes.units",
    "probe": ".processes.probe",
    "listening": ".processes.listening",
    "read": ".reading",
    "status": ".processes.status",
    "live": ".processes.live",
    "lease": ".lease",
    "prepare": ".preparing",
    "identity": ".facts.identity",
    "releases": ".state.kept_releases",
    "facts": ".facts.operation",
    "reach": ".facts.reach",
    "staging": ".staging.operation",
    "receive": ".staging.receiving",
    "groups": ".group.operation",
    "firewall": ".kinds.firewall",
    "caches": ".caches",
}
# They send chunks of any size before their report, and only to somebody who reads them as they come.
STREAMS = {"logs": ".journal.operation", "evidence": ".processes.evidence"}
STREAM = "moe-infra-stream"
# How long an agent waits for the next request before it goes; whoever asks later starts another.
IDLE_LIMIT_S = 300.0
BAD_STATES = ("failed", "blocked")

Report = Dict[str, object]


def main(arguments: List[str]) -> int:
    """Answer one request, or one after the other.

    Args:
        arguments: nothing: the request is all of standard input. `framed`: a length line, then the
            request, compressed, and standard input stays open while somebody wants the answer. `piped`: the same,
            but its end says nothing (Ansible closes it at once). `turns`: framed requests until standard input
            ends, each after the report on the one before. A path: the request is that file, and
            the exit code tells whether every item is as wanted.
    """
    if arguments == ["turns"]:
        _leave_group()
        while _take_turn():
            pass
        os._exit(0)
    host = Host(os.environ.get("MOE_INFRA_ROOT", ""))
    if arguments in (["framed"], ["piped"]):
        request = _read_frame()
        _leave_group()
        asker = _asker(request, is_heard=arguments == ["framed"])
        watch = Watch(host, asker)
        report = answer_stream(request, host) if asker.is_stream else answer(request, host)
        _write(_framed(report))  # which blocks where nobody reads
        watch.end()
        os._exit(0)
    if arguments:
        with open(arguments[0], encoding="utf-8") as stream:
            report = answer(json.load(stream), host)
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
        return _verdict(report)
    sys.stdout.write(json.dumps(answer(json.load(sys.stdin), host)) + "\n")
    return 0


def _take_turn() -> bool:
    """Answer the next request; False when there is none."""
    request = _next_frame()
    if not request:
        return False
    _learn(request.pop("modules", None))
    host = Host(os.environ.get("MOE_INFRA_ROOT", ""))
    watch = Watch(host, _asker(request, is_heard=True))
    framed = _framed(answer(request, host))
    # Behind the last byte the next request may come, which is not the watch's to read.
    place = -2 if len(framed) > select.PIPE_BUF else 0
    _write(framed[:place])
    watch.end()
    _write(framed[place:])
    return True


def _learn(modules: object) -> None:
    """Take in modules that an operation needs and that were not carried here before."""
    loader = getattr(sys.modules[__name__], "__loader__", None)
    if isinstance(modules, dict) and modules:
        cast(Any, loader).sources.update(modules)


def answer(request: Report, host: Host) -> Report:
    """The report of one request; a failure of the whole operation is a report too."""
    operation = str(request.get("operation"))
    if request.get("schema_version") != SCHEMA_VERSION:
        what = "this agent speaks schema version {}".format(SCHEMA_VERSION)
        return failure(what, "Use the agent and the commands of one release.")
    if operation not in OPERATIONS:
        what = "{!r} is not an operation of this agent".format(operation)
        return failure(what, "It knows {}.".format(", ".join(OPERATIONS)))
    return _reported(
        operation, lambda: _answer_leased(_module(OPERATIONS[operation]), request, host)
    )


def answer_stream(request: Report, host: Host) -> Report:
    """Send the chunks of one request, each behind its length, then 0; returns the report behind them."""
    operation = str(request.get("operation"))
    out = sys.stdout.buffer

    def write(chunk: bytes) -> None:
        if chunk:
            out.write(b"%d\n" % len(chunk) + chunk)
            out.flush()

    out.write("\n{}\n".format(STREAM).encode("ascii"))
    report = _reported(operation, lambda: _module(STREAMS[operation]).stream(request, host, write))
    out.write(b"0\n")
    return report


def _module(name: str) -> Any:  # whatever the operation's module holds
    return importlib.import_module(name, __package__)


def _reported(operation: str, work: Callable[[], Report]) -> Report:
    """What the work returns; a failure is a report too."""
    try:
        return work()
    except NotCarried as error:
        what = "modules of the agent are missing: {}".format(error)
        return dict(failure(what, "Carry all of it."), lacks=error.modules)
    except Refused as error:
        report = failure(str(error), "Nothing was changed.")
        if isinstance(error, LeaseRefused):
            cast(Report, report["error"])["lease"] = error.found
        return report
    except OSError as error:
        where = error.filename or operation
        look = mending(error, where) or "look at {} on the host".format(where)
        fix = "There, {}; what was done is in the rollback record.".format(look)
        return failure("{}: {}".format(where, error.strerror or error), fix)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug is a report too
        sys.excepthook(
            *sys.exc_info()
        )  # the traceback, without loading its module for every request
        what = "a bug in the agent: {!r}".format(error)
        return failure(what, "Report it with the lines above.")


def _answer_leased(module: object, request: Report, host: Host) -> Report:
    """The operation's report; whoever changes a deployment brings a lease, which is looked at first."""
    lease = request.get("lease")
    if not isinstance(lease, dict):
        return _answer_all(module, request, host)
    if not lease.get("release"):
        keep_lease(host, lease)
        return _answer_all(module, request, host)
    try:
        return _answer_all(module, request, host)
    finally:
        release_lease(host, lease)


def _answer_all(module: object, request: Report, host: Host) -> Report:
    """The operation's report, with those of the requests that it carries along, in their order."""
    report = cast(Report, module.answer(request, host))  # type: ignore[attr-defined]
    along = request.get("also")
    if isinstance(along, list):
        complete = [dict(one, schema_version=SCHEMA_VERSION) for one in along]
        report = dict(report, also=[answer(one, host) for one in complete])
    return report


def failure(what: str, fix: str) -> Report:
    """The report of an operation that could not be done."""
    return {"schema_version": SCHEMA_VERSION, "error": {"what": what, "fix": fix}}


def _next_frame() -> Report:
    """The next request; the agent goes when none begins for a while."""
    idle = threading.Timer(IDLE_LIMIT_S, os._exit, [0])
    idle.daemon = True
    idle.start()
    return _read_frame(idle.cancel)


def _read_frame(begin: Callable[[], None] = lambda: None) -> Report:
    """The request, empty where there is none; bytes that follow it stand in its `body`, as many as it announces.

    Line breaks before it are signs of life that came when the request before it was answered.

    Args:
        begin: called when it begins to come.
    """
    stream = sys.stdin.buffer
    line = stream.readline()
    while line == b"\n":
        line = stream.readline()
    begin()
    length = int(line or 0)
    if not length:
        return {}
    request = cast(Report, json.loads(zlib.decompress(stream.read(length)).decode("utf-8")))
    following = request.get("body_bytes")
    return dict(request, body=stream.read(int(str(following)))) if following else request


def _framed(report: Report) -> bytes:
    """A marker line with the length, so that a login's noise before or after it does no harm."""
    text = json.dumps(report).encode("ascii")
    return "\n{} {}\n".format(MARKER, len(text)).encode("ascii") + text + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _leave_group() -> None:
    with contextlib.suppress(OSError):  # it leads its group already
        os.setsid()


def _asker(request: Report, *, is_heard: bool) -> Asker:
    deadline, lease = request.get("deadline_s"), request.get("lease")
    is_held = isinstance(lease, dict) and not lease.get("release")
    return Asker(
        is_heard=is_heard,
        deadline_s=float(str(deadline)) if deadline is not None else None,
        lease=cast(Report, lease) if is_held else None,
        is_stream=request.get("operation") in STREAMS,
    )


def _verdict(report: Report) -> int:
    rows = report.get("items")
    bad = [row for row in rows if row["state"] in BAD_STATES] if isinstance(rows, list) else []
    return 1 if bad or "error" in report else 0
