"""The operation `staging`: bring checkpoints to this host by a unit of its own, and tell how far it is.

    look   checkpoints [{job, target}], ports       {"checkpoints": [{job, state, num_bytes, free_bytes, status,
           with_files                                 is_running, files}], "ports_taken"}
    list   source, timeout_s                        {"files": [{name, size_bytes, sha256, git_sha1}], "commit"}
    start  job, target, files, source, peers,       {"started": whether it was not running, "status"}
           listen {address, port, members}, token,
           only_check, …
    run    as `start`: what the unit does           {"status"}
    end    jobs                                     {"ended": those that ran}

A job's request lies in a folder of /run that root alone reads, and is removed as soon as its unit has read it.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import sys
import time
from typing import Any, Dict, Iterator, List, Optional

from ..bundle import own_program
from ..files import make_folders, missing_folders, replace_file
from ..host import Host, Refused
from ..processes.listening import answer as listening
from ..trees import open_tree, walk
from .manifest import MANIFEST, parse_manifest, row_of, write_json, wrong_files
from .place import partial_path
from .sources import open_origin
from .work import WATCHED, Work

JOBS = "/run/moe-infra/staging"
FILES = "files.json"
PRIVATE = 0o700
START_S = 20.0
BEGIN_S = 10.0
END_S = 30.0
LIST_S = 30.0
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,150}$")


def answer(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """Do one action."""
    actions = {"look": _look, "list": _list, "start": _start, "run": _run, "end": _end}
    action = actions.get(str(request.get("action")))
    if action is None:
        text = "{!r} is not an action; it takes {}"
        raise Refused(text.format(request.get("action"), ", ".join(actions)))
    return dict(action(request, host), schema_version=1)


def unit_of(job: str) -> str:
    """The unit that does a job."""
    return "moe-staging-{}.service".format(job)


def _look(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    wanted = request.get("checkpoints") or []
    rows = [_checkpoint(host, one, with_files=bool(request.get("with_files"))) for one in wanted]
    taken = listening({"ports": request.get("ports") or []}, host)["listening"]
    ports = sorted({row["port"] for row in taken}) if isinstance(taken, list) else []
    return {"checkpoints": rows, "ports_taken": ports}


def _checkpoint(host: Host, wanted: Dict[str, Any], *, with_files: bool) -> Dict[str, object]:
    """How far one checkpoint is here."""
    job, target = _job(wanted), str(wanted["target"])
    status = _status(host, job)
    running = _is_running(host, job) and not _has_failed(status)
    folder = host.path(target)
    row: Dict[str, object] = {"job": job, "status": status, "is_running": running}
    if running:
        with contextlib.suppress(OSError):  # it ends at this moment
            os.utime(os.path.join(_folder(host, job), WATCHED), None)
        return dict(row, state="running", files=_files(host, job) if with_files else [])
    there = os.path.isdir(folder)
    row["free_bytes"] = _free_bytes(folder)
    row["num_bytes"] = _size_of(folder if there else partial_path(folder))
    if there:
        row.update(_judge(host, target, with_files=with_files))
        if row["state"] == "damaged":  # a repair may have got further
            row["num_bytes"] = int(str(row["num_bytes"])) + _size_of(partial_path(folder))
        return row
    return dict(row, state="partial" if row["num_bytes"] else "absent")


def _judge(host: Host, target: str, *, with_files: bool) -> Dict[str, object]:
    """Whether a folder is complete or damaged, or `unverified`: all of it seems there, and has to be read again."""
    try:
        with open_tree(host.path(target)) as folder:
            entries = parse_manifest(folder.read(MANIFEST))
    except (FileNotFoundError, Refused) as error:
        why = "no manifest" if isinstance(error, FileNotFoundError) else str(error)
        return {"state": "damaged", "wrong": [why]}
    wrong, doubt = wrong_files(host, target, entries)
    files = [row_of(entry) for entry in entries] if with_files else []
    if doubt and not wrong:
        return {"state": "unverified", "wrong": [doubt], "files": files}
    return {"state": "damaged" if wrong else "complete", "wrong": wrong, "files": files}


def _list(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    source = request["source"]
    try:
        timeout_s = float(request.get("timeout_s") or LIST_S)
        listing = open_origin(source, host, timeout_s).list_files()
    except Refused:
        raise
    except Exception as error:
        where = open_origin(source, host, LIST_S).endpoint
        raise Refused("{}: {}".format(where, error or repr(error))) from error
    return {"files": [row_of(entry) for entry in listing.files], "commit": listing.commit}


def _start(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """Hand the job to a unit; one that runs already is left to it."""
    job = _job(request)
    if _is_running(host, job):
        status = _status(host, job)
        if not _has_failed(status):
            return {"started": False, "status": status}
        _end({"jobs": [job]}, host)  # it only tells its peers
    if not host.has_systemd():
        raise Refused("systemd does not run this host, so nothing would outlive the connection")
    folder = _folder(host, job)
    shutil.rmtree(folder, ignore_errors=True)
    make_folders(os.path.dirname(folder))
    os.mkdir(folder, PRIVATE)
    run = dict(request, action="run", deadline_s=None)
    replace_file(os.path.join(folder, WATCHED), b"", 0o600)
    replace_file(
        os.path.join(folder, "agent.py"), own_program("staging.operation").encode("utf-8"), 0o600
    )
    replace_file(os.path.join(folder, "request.json"), json.dumps(run).encode("ascii"), 0o600)
    unit = unit_of(job)
    host.run(["systemctl", "reset-failed", "--", unit], END_S)  # fails where there is none
    words = ["systemd-run", "--quiet", "--unit=" + unit, "--property=TimeoutStopSec=10"]
    words += ["--property=LimitNOFILE=4096"]  # above all connections of its peers (doors.py)
    words += ["--property=Nice=5", "--description=moe-infra brings weights ({})".format(job)]
    words += [sys.executable, "-I", "-S", os.path.join(folder, "agent.py")]
    done = host.run([*words, os.path.join(folder, "request.json")], START_S)
    if done.exit_code != 0 and not _is_running(host, job):
        raise Refused("systemd-run: {}".format(done.last_words))
    deadline = time.monotonic() + BEGIN_S
    while _status(host, job) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return {"started": done.exit_code == 0, "status": _status(host, job)}


def _run(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """What the unit does."""
    job = _job(request)
    folder = _folder(host, job)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, "request.json"))  # it holds the hub's token
    make_folders(folder, PRIVATE)
    write_json(os.path.join(folder, FILES), request["files"], 0o600)
    work = Work(request, host, os.path.join(folder, "status.json"))
    with _alive(folder):
        work.run()
    return {"status": _status(host, job)}


def _end(request: Dict[str, Any], host: Host) -> Dict[str, object]:
    """Stop jobs and forget them; what has arrived stays."""
    ended = []
    for job in [_job({"job": name}) for name in request.get("jobs") or []]:
        if not os.path.isdir(_folder(host, job)):
            continue
        if _is_running(host, job):
            ended.append(job)
        unit = unit_of(job)
        done = host.run(["systemctl", "stop", "--", unit], END_S)
        if _is_running(host, job):
            raise Refused("systemctl stop {}: {}".format(unit, done.last_words))
        host.run(["systemctl", "reset-failed", "--", unit], END_S)  # fails where it did not fail
        shutil.rmtree(_folder(host, job), ignore_errors=True)
    return {"ended": ended}


def _job(request: Dict[str, Any]) -> str:
    job = str(request.get("job"))
    if not NAME.match(job):
        raise Refused("{!r} is not the name of a staging".format(job))
    return job


def _folder(host: Host, job: str) -> str:
    return host.path("{}/{}".format(JOBS, job))


@contextlib.contextmanager
def _alive(folder: str) -> Iterator[None]:
    """Hold the mark by which others know that the job runs; it goes with the process, however that ends."""
    handle = os.open(os.path.join(folder, "alive"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_running(host: Host, job: str) -> bool:
    try:
        handle = os.open(os.path.join(_folder(host, job), "alive"), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _status(host: Host, job: str) -> Optional[Dict[str, object]]:
    document = _document(os.path.join(_folder(host, job), "status.json"))
    return document if isinstance(document, dict) else None


def _has_failed(status: Optional[Dict[str, object]]) -> bool:
    return status is not None and status.get("phase") == "failed"


def _document(path: str) -> object:
    """A JSON file of a job, None when it is not there or not whole."""
    try:
        with open(path, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def _files(host: Host, job: str) -> List[object]:
    """The files that a job was given."""
    listed = _document(os.path.join(_folder(host, job), FILES))
    return listed if isinstance(listed, list) else []


def _free_bytes(folder: str) -> int:
    """Room on the file system that a folder is or would be on, without what is kept for root."""
    missing: List[str] = missing_folders(folder)
    found = os.statvfs(os.path.dirname(missing[0]) if missing else folder)
    return found.f_bavail * found.f_frsize


def _size_of(folder: str) -> int:
    """Bytes of a folder's files."""
    with contextlib.suppress(OSError, Refused), open_tree(folder) as there:
        return sum(status.st_size for _, status in walk(there))
    return 0
