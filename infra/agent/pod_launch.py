"""The launcher of a pod: starts the processes of one plan host, answers its probes, and ends when one of them ends.

It runs in the engine's image, as the first process of the container: `run DOCUMENT`, and as the command of probes
`started DOCUMENT` and `ready DOCUMENT`. Which host of the document it is, its environment says.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Set

INDEX = "MOE_WORKER_INDEX"
GROUP_INDEX = "MOE_GROUP_INDEX"
LEADER = "LWS_LEADER_ADDRESS"  # LeaderWorkerSet gives it to every container of a group
REFUSED = 78  # EX_CONFIG of sysexits.h
NOT_IN_TIME = 75  # EX_TEMPFAIL
STOPPED = 128 + signal.SIGTERM
LOOK_S = 1.0
TELL_S = 30.0
HEALTH_S = 5.0
PROOF_S = 25.0
OK = 200
_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")

Document = Dict[str, Any]  # JSON that `infra.render.pod_processes` has written


class Refused(Exception):
    """What the pod was told cannot be run."""


def main(arguments: List[str]) -> int:
    """Run, or answer a probe; the exit code says how it went."""
    try:
        operation, path = arguments
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
        if operation == "run":
            return run(document)
        return probe(document, with_proof=operation == "started")
    except Refused as error:
        sys.stderr.write("moe-infra: {}\n".format(error))
        return REFUSED


def expand(text: str, environment: Dict[str, str]) -> str:
    """`$(NAME)` as the kubelet resolves it: what is not known stays, `$$` is a dollar.

    Source: kubernetes third_party/forked/golang/expansion/expand.go, v1.35.0.
    """

    def value(found: "re.Match[str]") -> str:
        if found.group(1) == "$":
            return "$"
        return environment.get(found.group(2), found.group(0))

    return _REFERENCE.sub(value, text)


def host_of(document: Document, environment: Dict[str, str]) -> Document:
    """This pod's host: by its group, where the document is of several, and its index in the group."""
    index, group = environment.get(INDEX, ""), environment.get(GROUP_INDEX, "0")
    hosts, size = document["hosts"], int(_number(document["group_size"]))
    place = (
        int(group) * size + int(index) if index.isdecimal() and group.isdecimal() else len(hosts)
    )
    if place >= len(hosts) or int(index) >= size:
        what = "{}={!r} is none of the {} hosts of {}".format(
            INDEX, index, len(hosts), document["group"]
        )
        raise Refused(what + ": is the pod the LeaderWorkerSet's own?")
    return dict(hosts[place])


def processes_of(document: Document, environment: Dict[str, str]) -> List[Document]:
    """The rows of this pod's host."""
    return list(host_of(document, environment)["processes"])


def run(document: Document) -> int:
    """Wait for the peers' names, start every process, and end with the first that ends."""
    environment = dict(os.environ)
    own_host = host_of(document, environment)
    rows = list(own_host["processes"])
    with contextlib.suppress(FileNotFoundError):
        os.remove(started_path())
    children = _Children(_number(document["stop_s"]))
    signal.signal(signal.SIGTERM, children.stop)
    signal.signal(signal.SIGINT, children.stop)
    peers = {str(peer["name"]): peer.get("worker") for peer in own_host["awaits"]}
    urls, limit_s = _words(document["urls"]), _number(document["wait_s"])

    def is_peer(name: str) -> bool:
        return leads_to(name, pod_name(environment.get(LEADER, ""), peers[name]))

    if not _wait("the names of pods", list(peers), is_peer, limit_s):
        return NOT_IN_TIME
    if not _wait("endpoints", urls, is_healthy, limit_s):
        return NOT_IN_TIME
    for row in rows:
        words = [expand(word, environment) for word in _words(row["argv"])]
        given = row["env"]
        own = {name: expand(str(value), environment) for name, value in given.items()}
        prefix = "" if len(rows) == 1 else "[{}] ".format(row["id"])
        children.start(
            str(row["id"]), _words(row["wrapper"]) + words, dict(environment, **own), prefix
        )
    if not children.is_told:
        with open(started_path(), "w", encoding="utf-8"):
            pass
    return children.wait()


def started_path() -> str:
    """The file in the container that says that every process was started, to probes that have nobody to ask."""
    return os.path.join(tempfile.gettempdir(), "moe-infra-started")


def probe(document: Document, *, with_proof: bool) -> int:
    """0 when every endpoint of this pod is healthy and, where asked, has generated a token.

    A pod without endpoints is well when its processes were started: it ends with the first of them.
    """
    environment = dict(os.environ)
    work = []  # type: List[Callable[[], str]]
    for row in processes_of(document, environment):
        asked = [("health", HEALTH_S)] + ([("proof", PROOF_S)] if with_proof else [])
        for kind, limit_s in asked:
            questions = row[kind]
            work.extend(_question(one, environment, limit_s) for one in questions)
    problems = [problem for problem in _together(work) if problem]
    if not work and not os.path.exists(started_path()):
        problems.append("its processes are not started yet")
    for problem in problems:
        sys.stdout.write(problem + "\n")
    return 1 if problems else 0


def pod_name(leader: str, worker: Any) -> str:
    """The pod of a group's worker, by what its leader is called in this very revision; "" where nobody asks.

    Source: kubernetes-sigs/lws v0.9.0, pods `<set>-<group>` and `<set>-<group>-<worker>` of one subdomain.
    """
    if worker is None:
        return ""
    first, _, rest = leader.partition(".")
    return "{}-{}.{}".format(first, worker, rest) if int(_number(worker)) else leader


def leads_to(name: str, pod: str) -> bool:
    """Whether a name resolves, and to nothing but that pod: pods of an older revision may still end under it."""
    found = _addresses(name)
    return bool(found) and (not pod or found == _addresses(pod))


def _addresses(name: str) -> Set[str]:
    try:
        return {str(row[4][0]) for row in socket.getaddrinfo(name, None)}
    except OSError:
        return set()


def is_healthy(url: str) -> bool:
    """Whether `http://address:port/path` answers 200."""
    place, _, path = url[len("http://") :].partition("/")
    address, _, port = place.rpartition(":")
    return _request(address, int(port), {"path": "/" + path}, HEALTH_S) is None


class _Children:
    """The processes of this pod, and the order to end."""

    def __init__(self, stop_s: float) -> None:
        self.stop_s = stop_s
        self.names = {}  # type: Dict[int, str]
        self.started = []  # type: List[subprocess.Popen[bytes]]
        self.readers = []  # type: List[threading.Thread]
        self.is_told = False

    def start(self, name: str, words: List[str], environment: Dict[str, str], prefix: str) -> None:
        if self.is_told:
            return
        try:
            child = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if prefix else None,
                stderr=subprocess.STDOUT if prefix else None,
                start_new_session=True,
            )
        except OSError as error:
            self.end_all(signal.SIGKILL)
            raise Refused("{}: {} cannot be started: {}".format(name, words[0], error)) from error
        self.names[child.pid] = name
        self.started.append(child)
        if prefix:
            reader = threading.Thread(target=_copy_lines, args=(child, prefix), daemon=True)
            reader.start()
            self.readers.append(reader)

    def stop(self, number: int, frame: object) -> None:
        """A signal handler: the pod is to end."""
        del number, frame
        if not self.names:
            os._exit(STOPPED)
        self.is_told = True
        self.end_all(signal.SIGTERM)
        _kill_after(self.stop_s, self)

    def end_all(self, number: int) -> None:
        for pid in list(self.names):
            with contextlib.suppress(OSError):
                os.killpg(pid, number)

    def wait(self) -> int:
        """The exit code of the first process that ended, when all have; orphans are reaped on the way."""
        code = None  # type: Optional[int]
        while self.names:
            pid, status = os.waitpid(-1, 0)
            name = self.names.pop(pid, None)
            if name is None:
                continue
            _kill_group(pid)  # what it has left behind would keep its devices
            if code is None:
                code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                if not self.is_told:
                    _say("{} has ended with {}: the pod ends with it".format(name, code))
                    self.end_all(signal.SIGTERM)
                    _kill_after(self.stop_s, self)
        for reader in self.readers:
            reader.join(LOOK_S)
        return STOPPED if self.is_told else code or 0


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _kill_after(seconds: float, children: _Children) -> None:
    """End without mercy what has not ended by then."""
    signal.signal(signal.SIGALRM, lambda *_: children.end_all(signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _copy_lines(child: "subprocess.Popen[bytes]", prefix: str) -> None:
    start = prefix.encode("utf-8")
    for line in child.stdout or ():
        sys.stdout.buffer.write(start + line if line.endswith(b"\n") else start + line + b"\n")
        sys.stdout.buffer.flush()


def _wait(what: str, awaited: List[str], is_there: Callable[[str], bool], limit_s: float) -> bool:
    """Whether all are there in time; says who is awaited."""
    begun = told = time.monotonic()
    left = [one for one in awaited if not is_there(one)]
    while left:
        now = time.monotonic()
        if now - begun > limit_s:
            _say("gave up on {} after {:.0f} s: {}".format(what, limit_s, ", ".join(left)))
            return False
        if now - told >= TELL_S:
            told = now
            _say(
                "waiting for {}: {} ({:.0f} s of {:.0f})".format(
                    what, ", ".join(left), now - begun, limit_s
                )
            )
        time.sleep(LOOK_S)
        left = [one for one in left if not is_there(one)]
    return True


def _question(question: Document, environment: Dict[str, str], limit_s: float) -> Callable[[], str]:
    address, port = expand("$(POD_IP)", environment), int(_number(question["port"]))
    key = environment.get(str(question.get("key_variable")))

    def ask() -> str:
        problem = _request(address, port, question, limit_s, key)
        return "" if problem is None else "port {}{}: {}".format(port, question["path"], problem)

    return ask


def _request(
    address: str, port: int, question: Document, limit_s: float, key: Optional[str] = None
) -> Optional[str]:
    """Why an endpoint's answer is not the wanted one, None when it is."""
    body, given = question.get("body"), question.get("headers")
    headers = dict(given) if isinstance(given, dict) else {}
    if key:
        headers["Authorization"] = "Bearer " + key
    if body is not None:
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(address, port, timeout=limit_s)
    try:
        text = None if body is None else json.dumps(body).encode("utf-8")
        connection.request("GET" if body is None else "POST", str(question["path"]), text, headers)
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    if answer.status != OK:
        return "{} {}".format(answer.status, said[:200].decode("utf-8", "replace"))
    return None if body is None or has_token(said) else "it answered without a token"


def has_token(said: bytes) -> bool:
    """Whether the answer to a completion counts at least one generated token."""
    try:
        return int(json.loads(said.decode("utf-8"))["usage"]["completion_tokens"]) > 0
    except (ValueError, KeyError, TypeError):
        return False


def _together(work: List[Callable[[], str]]) -> List[str]:
    """Every answer, asked at the same time: ranks of a group answer together or not at all."""
    found = [""] * len(work)

    def ask(place: int) -> None:
        found[place] = work[place]()

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _say(text: str) -> None:
    sys.stdout.write("moe-infra: {}\n".format(text))
    sys.stdout.flush()


def _words(value: Any) -> List[str]:
    return [str(word) for word in value]


def _number(value: Any) -> float:
    return float(str(value))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
