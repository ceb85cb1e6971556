"""The program of the pod that tunes its node: gives the agent to the node's own Python, again and again.

It runs in an image with a Python, privileged and with the node's processes in sight: `run FOLDER`, as the command of a
probe `ready FOLDER`, and by hand `report FOLDER`. The folder holds `agent.py`, the agent as one program, and
`tuning.json`. The agent then works in the namespaces of the node's PID 1, as it does over SSH.
"""

import contextlib
import ctypes
import http.client
import json
import os
import re
import select
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any, Callable, Dict, List, Optional

Document = Dict[
    str, Any
]  # JSON that `infra.render.node_tuning` has written, and the agent's report

REFUSED = 78  # EX_CONFIG of sysexits.h
STOPPED = 128 + signal.SIGTERM
STOP = (signal.SIGTERM, signal.SIGINT)
MORE_S = 10.0
ASK_S = 10.0
CHUNK = 65536
MISSED = 2
NOT_FOUND, OK = 404, 200
# The mount namespace last: descriptors are open by then, paths mean the node's from there on.
NAMESPACES = ("uts", "ipc", "net", "cgroup", "mnt")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Of the image's environment nothing is meant for the node's programs: its libraries would be preloaded there.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C",
    "HOME": "/root",
}
NO_PYTHON = "moe-infra:no-python"
BOOTSTRAP = "import sys,zlib;i=sys.stdin.buffer;exec(zlib.decompress(i.read(int(i.readline()))))"
SCRIPT = (
    "p=$(command -v python3) || {{ echo {} >&2; exit 127; }}; "
    'exec "$p" -I -S -c "{}" framed'.format(NO_PYTHON, BOOTSTRAP)
)
# As `infra.agent.conversation` writes it.
_REPORT = re.compile(rb"^moe-infra-report (\d+)\n", re.MULTILINE)
_BAD, _KEPT = "failed", "blocked"


class Refused(Exception):
    """The node cannot be tuned; the text says why."""


def main(arguments: List[str]) -> int:
    """Tune, answer the probe, or print the last report."""
    operation, folder = arguments
    try:
        if operation == "run":
            return run(folder)
        settings = read_settings(folder)
        return ready(settings) if operation == "ready" else report()
    except Refused as error:
        sys.stderr.write("moe-infra: {}\n".format(error))
        return REFUSED


def read_settings(folder: str) -> Document:
    """What the pod was told."""
    with open(os.path.join(folder, "tuning.json"), encoding="utf-8") as stream:
        return dict(json.load(stream))


def run(folder: str) -> int:
    """Look and bring about at every interval; when the DaemonSet itself goes, bring back what was found."""
    settings = read_settings(folder)
    with open(os.path.join(folder, "agent.py"), encoding="utf-8") as stream:
        program = zlib.compress(stream.read().encode("utf-8"))
    # An order to stop is taken between two rounds: no write ends in its middle.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    last = {}  # type: Document
    while True:
        last = round_of(settings["request"], program, settings, last)
        if signal.sigtimedwait(STOP, float(settings["every_s"])) is not None:
            break
    if settings["request"]["mode"] == "apply":
        why = why_to_stay(settings["daemon_set"])
        if why:
            _say("what was changed stays: {}".format(why))
        else:
            _say("the DaemonSet is going: what was found is brought back")
            back = dict(settings["request"], mode="rollback", items=[])
            round_of(back, program, settings, {})
    return STOPPED


def round_of(request: Document, program: bytes, settings: Document, last: Document) -> Document:
    """One request to the agent; what became of it is told and kept for the probe."""
    try:
        answer = ask_node(request, program, float(settings["limit_s"]))
    except Refused as error:
        answer = {"error": {"what": str(error), "fix": ""}}
    tell(answer, last)
    keep(dict(answer, at=time.time()))
    return answer


def ask_node(request: Document, program: bytes, limit_s: float) -> Document:
    """The agent's report, from the node's own Python in the node's namespaces.

    Raises:
        Refused: there is no report.
    """
    told = zlib.compress(json.dumps(dict(request, deadline_s=limit_s)).encode("utf-8"))
    payload = b"".join((b"%d\n" % len(part)) + part for part in (program, told))
    descriptors = open_namespaces("/proc/1/ns")
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=entering(descriptors),  # noqa: PLW1509 - this program has one thread
        )
    except (OSError, subprocess.SubprocessError) as error:
        what = "the node's namespaces cannot be entered ({}): is the pod privileged?"
        raise Refused(what.format(error)) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    said, errors = _communicate(child, payload, limit_s + MORE_S)
    answer = find_report(said)
    if answer is not None:
        return answer
    if NO_PYTHON in errors:
        what = "the node has no python3: install Python 3.6 or newer there, or say node_tuning none"
        raise Refused(what)
    lines = errors.strip().splitlines() or ["nothing was said"]
    raise Refused("the agent gave no report (exit code {}): {}".format(child.returncode, lines[-1]))


def open_namespaces(folder: str) -> List[int]:
    """Descriptors of the node's namespaces.

    Raises:
        Refused: PID 1 is the container's own: it would be tuned, and not the node.
    """
    try:
        if os.stat(folder + "/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino:
            raise Refused("PID 1 is this container's own: the pod needs hostPID")
        present = [name for name in NAMESPACES if os.path.exists(os.path.join(folder, name))]
        return [os.open(os.path.join(folder, name), os.O_RDONLY) for name in present]
    except OSError as error:
        what = "the node's namespaces cannot be opened ({}): is the pod privileged?"
        raise Refused(what.format(error)) from error


def entering(descriptors: List[int]) -> Callable[[], None]:
    """What a child does before its program: it enters the namespaces, and takes orders to stop again."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        for descriptor in descriptors:
            if libc.setns(descriptor, 0) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        os.chdir("/")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)

    return enter


def find_report(said: bytes) -> Optional[Document]:
    """The report in what the agent wrote; None where there is no whole one."""
    for match in reversed(list(_REPORT.finditer(said))):
        with contextlib.suppress(ValueError):
            found = json.loads(
                said[match.end() : match.end() + int(match.group(1))].decode("utf-8")
            )
            if isinstance(found, dict):
                return found
    return None


def tell(answer: Document, last: Document) -> None:
    """A line for each item whose end differs from the last round's, and one for all."""
    if "error" in answer:
        _say("{what} {fix}".format(**answer["error"]).strip())
        return
    before = {row["id"]: (row["state"], row["after"]) for row in last.get("items", ())}
    for row in answer["items"]:
        if before.get(row["id"]) != (row["state"], row["after"]):
            _say("{}: {}".format(row["id"], _words(row)))
    counts = {}  # type: Dict[str, int]
    for row in answer["items"]:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    if before != {row["id"]: (row["state"], row["after"]) for row in answer["items"]}:
        listed = ", ".join("{} {}".format(counts[state], state) for state in sorted(counts))
        _say("{} items: {}".format(len(answer["items"]), listed or "nothing to do"))


def ready(settings: Document) -> int:
    """0 when the last round is recent and no item has failed; what is blocked is only told."""
    last = kept()
    if last is None:
        _print("the node has not been looked at yet")
        return 1
    age_s = time.time() - last["at"]
    limit_s = MISSED * (float(settings["every_s"]) + float(settings["limit_s"]))
    if age_s > limit_s:
        _print("the node was last looked at {:.0f} s ago".format(age_s))
        return 1
    if "error" in last:
        _print("{what} {fix}".format(**last["error"]).strip())
        return 1
    bad = [row for row in last["items"] if row["state"] in (_BAD, _KEPT)]
    for row in sorted(bad, key=lambda row: str(row["state"] != _BAD)):
        _print("{}: {}".format(row["id"], _words(row)))
    return 1 if any(row["state"] == _BAD for row in bad) else 0


def report() -> int:
    """Print the last report in the form of `fab tune-hosts --json`."""
    last = kept() or {"items": [], "error": {"what": "the node has not been looked at yet"}}
    keys = ("id", "state", "before", "wanted", "after", "why", "needs")
    items = [{key: row.get(key) for key in keys} for row in last.get("items", ())]
    counts = {state: sum(row["state"] == state for row in items) for state in ("changed", _BAD)}
    document = {
        "schema_version": 1,
        "ok": "error" not in last and not counts[_BAD],
        "hosts": [{"name": os.environ.get("MOE_NODE", ""), "items": items}],
        "changed": counts["changed"],
        "failed": counts[_BAD],
    }
    if "error" in last:
        document["error"] = last["error"]
    _print(json.dumps(document, indent=1))
    return 0


def keep(answer: Document) -> None:
    """Keep a report for the probe, which is another process of the container."""
    path = _kept_path()
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(answer, stream)
    os.rename(path + ".new", path)


def kept() -> Optional[Document]:
    """The last report, None before the first."""
    try:
        with open(_kept_path(), encoding="utf-8") as stream:
            found = json.load(stream)  # type: Document
    except FileNotFoundError:
        return None
    return found


def why_to_stay(daemon_set: Document) -> str:
    """Why what was changed stays when this pod ends, "" when its DaemonSet is going: it alone says what nodes shall be.

    A node that reboots, an update and an eviction end the pod, too, and the next one would only change it all again.
    """
    place = "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}".format(**daemon_set)
    try:
        status, found = _ask_api(place)
    except (OSError, ValueError, http.client.HTTPException, KeyError) as error:
        return "the API does not say whether the DaemonSet is going ({!r})".format(error)
    if status == NOT_FOUND:
        return ""
    if status != OK:
        return "the API answers {} about the DaemonSet".format(status)
    if found.get("metadata", {}).get("deletionTimestamp"):
        return ""
    return "only this pod ends, and the next one takes over"


def _ask_api(place: str) -> "tuple[int, Document]":
    with open(ACCOUNT + "/token", encoding="utf-8") as stream:
        token = stream.read().strip()
    trusted = ssl.create_default_context(cafile=ACCOUNT + "/ca.crt")
    address = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(address, port, timeout=ASK_S, context=trusted)
    try:
        connection.request("GET", place, headers={"Authorization": "Bearer " + token})
        answer = connection.getresponse()
        said = answer.read()
        return answer.status, json.loads(said.decode("utf-8")) if answer.status == OK else {}
    finally:
        connection.close()


def _communicate(
    child: "subprocess.Popen[bytes]", payload: bytes, limit_s: float
) -> "tuple[bytes, str]":
    """All that a child says; its standard input stays open meanwhile, for its end tells the agent that nobody waits."""
    assert child.stdin is not None  # noqa: S101 - all three are pipes
    assert child.stdout is not None  # noqa: S101
    assert child.stderr is not None  # noqa: S101
    said = {child.stdout: b"", child.stderr: b""}
    left, end = set(said), time.monotonic() + limit_s
    try:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(payload)
            child.stdin.flush()
        while left:
            readable, _, _ = select.select(list(left), [], [], max(end - time.monotonic(), 0.0))
            if not readable:
                os.killpg(child.pid, signal.SIGKILL)
                break
            for stream in readable:
                chunk = os.read(stream.fileno(), CHUNK)
                said[stream] += chunk
                left -= set() if chunk else {stream}
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        child.wait()
        child.stdout.close()
        errors = said[child.stderr].decode("utf-8", "replace")
        child.stderr.close()
    sys.stderr.write(errors)
    return said[child.stdout], errors


def _words(row: Document) -> str:
    """How an item ended."""
    if row["state"] == "changed":
        return "changed, {} → {}".format(row["before"], row["after"])
    if row["state"] == "ok":
        return "ok, {}".format(row["after"])
    return "{}, {}".format(row["state"], row["why"])


def _kept_path() -> str:
    return os.path.join(tempfile.gettempdir(), "moe-infra-tuning.json")


def _print(text: str) -> None:
    sys.stdout.buffer.write((text + "\n").encode("utf-8"))
    sys.stdout.flush()


def _say(text: str) -> None:
    _print("moe-infra: {}".format(text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
