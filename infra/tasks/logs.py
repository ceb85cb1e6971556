"""`fab logs`: the processes' logs, merged by time."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from operator import add, floordiv
from typing import TypeVar

from infra.errors import HostsFailed, NotReady, StackError
from infra.launch.logs.lines import LogLines
from infra.launch.logs.reading import LogMerge, LogQuery, judge_moment, judge_query
from infra.launch.logs.stream import HostLog
from infra.remote.failures import failure_table
from infra.tasks.choice import same_choice
from infra.tasks.limit import limited
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, AsWritten, Output
from infra.tasks.recorded_hosts import ReachedStack, open_recorded
from infra.tasks.wrong_choice import refuse_wrong_choice
from infra.visible import visible_json

DEFAULT_LINES = 50
_SECOND_US = 1_000_000
_Key = TypeVar("_Key")


def run(options: Options, output: Output) -> int:
    """Print the lines; with --follow, go on until interrupted. 4 when a host's are missing, 5 when nothing is there."""
    query = _query(options, output)
    judge_query(query)
    with open_recorded(options, output) as everyone:
        chosen = limited(options, everyone.hosts, everyone.serving)
        reached = replace(everyone, hosts=chosen)
        merge = LogMerge(_host_logs(reached, query, output))
        shown = _Shown(output, reached.name)
        try:
            for texts in merge.texts(shown.shape):
                shown.show(texts)
        finally:
            merge.close()
    failures = merge.failures
    if not shown.has_any:
        judge_moment(query, failures)
    if not failures:
        _judge_choice(query, merge)
        if not merge.processes:
            refuse_wrong_choice(options)
            output.message(f"Nothing of {reached.name} is on these {len(reached.hosts)} hosts.")
    missing = {failure.host: failure.error.what for failure in failures}
    shown.end(ok=bool(merge.processes) and not failures, missing=missing)
    if failures:
        output.message(output.toned("These hosts' lines are missing:", "bad"))
        output.message(failure_table(failures))
        return HostsFailed.exit_code
    output.next_command(f"fab status {same_choice(options)}")
    return 0 if merge.processes else NotReady.exit_code


def _query(options: Options, output: Output) -> LogQuery:
    """What the options ask for.

    Raises:
        StackError: --json and --follow exclude each other.
    """
    follows, since, lines = (
        options.is_on("follow"),
        options.text("since"),
        options.count("lines"),
    )
    if follows and output.wants_json:
        what = "--json prints one document, --follow never ends."
        raise StackError("command line", what, "Leave one of them out.")
    default = DEFAULT_LINES if since is None else None
    return LogQuery(
        process=options.text("rank"),
        role=options.text("role"),
        grep=options.text("grep"),
        lines=default if lines is None else lines,
        since=since,
        follow=follows,
    )


def _host_logs(reached: ReachedStack, query: LogQuery, output: Output) -> list[HostLog]:
    request = query.request(reached.name)
    return [
        HostLog(
            name=host,
            open_stream=functools.partial(reached.streams.open_stream, host),
            request=request,
            say=output.message,
        )
        for host in reached.hosts
    ]


def _judge_choice(query: LogQuery, merge: LogMerge) -> None:
    """Refuse a process or role that no host has.

    Raises:
        StackError: it is not recorded anywhere.
    """
    everyone = merge.processes
    ids, roles = [each.id for each in everyone], sorted({each.role for each in everyone})
    if everyone and query.process is not None and query.process not in ids:
        what = f"There is no process {query.process}."
        raise StackError("--rank", what, f"There are {', '.join(ids)}.")
    if everyone and query.role is not None and query.role not in roles:
        raise StackError(
            "--role", f"There is no role {query.role}.", f"There are {', '.join(roles)}."
        )


class _Shown:
    """Prints lines as they come; with --json as one document, which is never held as a whole."""

    def __init__(self, output: Output, stack: str) -> None:
        self._output = output
        self._stack = stack
        self._num_lines = 0

    @property
    def has_any(self) -> bool:
        """Whether a line has been printed."""
        return self._num_lines > 0

    def shape(self, lines: LogLines) -> list[str]:
        """Lines as they are shown."""
        return (documents_of if self._output.wants_json else texts_of)(lines)

    def show(self, texts: list[str]) -> None:
        """Some more lines."""
        if self._output.wants_json:
            self._write_json(texts)
        else:
            self._output.data(AsWritten("\n".join(texts)))
        self._num_lines += len(texts)

    def end(self, *, ok: bool, missing: dict[str, str]) -> None:
        """The rest of the document.

        Args:
            ok: whether all of it came.
            missing: why, by host.
        """
        rest = {"ok": ok, "missing": missing}
        if not self._num_lines:
            head = {"schema_version": SCHEMA_VERSION, "stack": self._stack, "lines": []}
            self._output.document({**head, **rest})
        elif self._output.wants_json:
            text = visible_json(json.dumps(rest, ensure_ascii=False))
            self._output.stdout.write("], " + text[1:] + "\n")
            self._output.stdout.flush()

    def _write_json(self, documents: list[str]) -> None:
        head = {"schema_version": SCHEMA_VERSION, "stack": self._stack}
        begin = json.dumps(head)[:-1] + ', "lines": ['
        text = visible_json(", ".join(documents))
        self._output.stdout.write((", " if self._num_lines else begin) + text)


class _Made(dict[_Key, str]):
    """Texts that are made when they are first asked for."""

    def __init__(self, make: Callable[[_Key], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: _Key) -> str:
        text = self[key] = self._make(key)
        return text


def texts_of(lines: LogLines) -> list[str]:
    """`2026-11-20 14:00:00.123 decode-0/3   message`, in UTC; one text each."""
    seconds: _Made[int] = _Made(_second_stamp)
    names: _Made[str] = _Made("{:<12} ".format)

    def stamp(milliseconds: int) -> str:
        return f"{seconds[milliseconds // 1000]}.{milliseconds % 1000:03} "

    moments = map(floordiv, lines.times, repeat(1000))
    if len(set(lines.processes)) == 1:
        name = names[lines.processes[0]]
        heads: _Made[int] = _Made(lambda at: stamp(at) + name)
        return list(map(add, map(heads.__getitem__, moments), lines.messages))
    stamps: _Made[int] = _Made(stamp)
    whose = map(names.__getitem__, lines.processes)
    pieces = zip(map(stamps.__getitem__, moments), whose, lines.messages, strict=True)
    return list(map("".join, pieces))


def documents_of(lines: LogLines) -> list[str]:
    """Each line as a JSON document of its own."""
    columns = zip(lines.times, lines.processes, lines.messages, strict=True)
    rows = (
        {"time": time_us / _SECOND_US, "process": process, "message": message}
        for time_us, process, message in columns
    )
    return [json.dumps(row, ensure_ascii=False) for row in rows]


def _second_stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
