"""The work of one staging: a checkpoint's files verified, fetched, served to peers and put into place.

It runs in a unit of its own, so that no lost connection ends it. What has arrived stays beside the target in
`.partial-<revision>` until all of it is there and right; then one rename makes it the checkpoint.
"""

import contextlib
import functools
import os
import queue
import threading
import time
from typing import Any, Dict, List, Optional

from ..folders import FOLDER_MODE
from ..host import Host, Refused
from ..trees import Tree, open_above
from .choosing import Choice, Source
from .fetching import Fetcher
from .manifest import (
    FILE_MODE,
    MANIFEST,
    Digests,
    Entry,
    Verified,
    as_json,
    entry_of,
    has_sum,
    hash_file,
    read_verified,
    row_of,
    words_of,
    write_json,
    write_verified,
)
from .peers import Peer, PeerServer
from .place import clear_foreign, partial_name, revision_lock
from .sources import open_origin
from .transfers import Rate, Transfer

STATUS_S = 0.5
WATCHED = "watched"
NUM_STREAMS = 8
SILENT_S = 15.0
PATIENCE_S = 60.0
LINGER_S = 45.0
FAILED_S = 10.0


class Work:
    """One checkpoint on one host.

    Args:
        request: see `staging.answer`.
        host: this one.
        status_path: where others read how far it is.
    """

    def __init__(self, request: Dict[str, Any], host: Host, status_path: str) -> None:
        """Take the request; nothing is touched yet."""
        self._watched_path = os.path.join(os.path.dirname(status_path), WATCHED)
        self.request = request
        self.target = str(request["target"])
        self.folder = host.path(self.target)
        self._revision = os.path.basename(self.folder)
        self._held = contextlib.ExitStack()
        self._above: Optional[Tree] = None
        self._there: Optional[Tree] = None
        self._arriving: Optional[Tree] = None
        self.entries = [entry_of(file) for file in request["files"]]
        self.transfers = {entry.name: self._transfer(entry) for entry in self.entries}
        self.phase = "verifying"
        self.problem: Optional[str] = None
        self.checked_bytes = 0
        self.damaged: List[str] = []
        self._host = host
        self._status_path = status_path
        self._rate = Rate()
        self._begun = time.time()
        self._guard = threading.Lock()
        self._failure: Optional[Exception] = None
        self._doubts: List[str] = []
        self._silent_s = float(request.get("silent_s") or SILENT_S)
        self.choice = Choice(self._sources())

    def run(self) -> None:
        """Until the checkpoint lies in its place and no peer wants it any more.

        Raises:
            Refused: why it does not.
            OSError: as Refused.
        """
        server = None
        try:
            self._refuse_unknown_sums()
            above, name = open_above(self.folder, FOLDER_MODE)
            self._above = self._held.enter_context(above)
            with revision_lock(above, name, str(self.request.get("operator") or "somebody")):
                self._say()
                threading.Thread(target=self._report_steadily, daemon=True).start()
                self._look_there()
                if self.request.get("only_check"):
                    self._check()
                    return
                server = self._serve()
                self._stage()
            self._linger(server)
        except (Refused, OSError) as error:
            self.phase, self.problem = "failed", _words(error)
            self._tell_peers(server)
            raise
        finally:
            self._say()
            if server is not None:
                server.shutdown()
                server.server_close()
            self._held.close()

    def _refuse_unknown_sums(self) -> None:
        """A peer is never believed: what comes from one has its checksum from the operator's request.

        Raises:
            Refused: a file has none.
        """
        unknown = [file for file in self.request["files"] if not has_sum(file)]
        if unknown and self.request.get("peers"):
            text = "{} is to come from another host, and the request has no checksum of it"
            raise Refused(text.format(unknown[0]["name"]))

    def _look_there(self) -> None:
        """Hold the folder of the checkpoint, if it is there already."""
        assert self._above is not None  # noqa: S101 - it is opened first
        with contextlib.suppress(FileNotFoundError):
            self._there = self._held.enter_context(self._above.folder(self._revision))

    def _tell_peers(self, server: Optional[PeerServer]) -> None:
        """Let peers hear for some seconds that nothing more will come: a silent port would cost them minutes."""
        self._say()
        for transfer in self.transfers.values():
            transfer.give_up()
        if server is not None:
            time.sleep(min(FAILED_S, float(self.request.get("linger_s") or LINGER_S)))

    def _check(self) -> None:
        """Read everything, and write nothing."""
        self._in_parallel(self.entries, self._check_one)
        self.phase = "checked"

    def _check_one(self, entry: Entry) -> None:
        wrong = self._difference(entry)
        if wrong is not None:
            with self._guard:
                self.damaged.append(wrong)

    def _stage(self) -> None:
        missing = self._missing()
        if missing:
            assert self._above is not None  # noqa: S101 - it is opened first
            name = partial_name(self._revision)
            arriving, was_foreign = self._above.own_folder(name)
            self._arriving = self._held.enter_context(arriving)
            if was_foreign:
                self._doubts.append("removed {}: it was not root's own".format(arriving.path))
            clear_foreign(arriving, self.entries)
            self.phase = "fetching"
            fetcher = Fetcher(arriving, self.transfers, self.choice)
            self._in_parallel(missing, fetcher.fetch)
        self._publish([entry.name for entry in missing])
        self.phase = "complete"
        self._say()

    def _missing(self) -> List[Entry]:
        """The files that are not in the target as declared; those that were verified and not touched since are."""
        there = self._there
        if there is None:
            return sorted(self.entries, key=lambda entry: entry.name)
        verified = read_verified(there)
        if verified.doubt:
            self._doubts.append("every file is read again: {}".format(verified.doubt))
        missing: List[Entry] = []

        def look(entry: Entry) -> None:
            wrong, sha256 = self._judge_there(there, verified, entry)
            if sha256:
                self.transfers[entry.name].finish(sha256, "there already")
                return
            with self._guard:
                missing.append(entry)
                self.damaged.extend([wrong] if wrong else [])

        self._in_parallel(self.entries, look)
        return sorted(missing, key=lambda entry: entry.name)

    def _judge_there(self, there: Tree, verified: Verified, entry: Entry) -> "tuple[str, str]":
        """What is wrong with a file that lies in the target, and its checksum where it is right; "" for neither."""
        try:
            found = there.status(entry.name)
            if found.st_size != entry.size_bytes:
                return "", ""
            if entry.sha256 is not None and verified.knows(entry.name, found):
                return "", entry.sha256
            digests = self._hashed(there, entry)
        except FileNotFoundError:
            return "", ""
        except (OSError, Refused) as error:
            return "{}: {}".format(entry.name, words_of(error)), ""
        wrong = digests.difference()
        return (wrong, "") if wrong is not None else ("", digests.sha256)

    def _hashed(self, there: Tree, entry: Entry) -> Digests:
        def advance(count: int) -> None:
            with self._guard:
                self.checked_bytes += count

        handle = there.open(entry.name)
        try:
            return hash_file(handle, entry, advance)
        finally:
            os.close(handle)

    def _difference(self, entry: Entry) -> Optional[str]:
        try:
            if self._there is None:
                raise FileNotFoundError("{} does not exist".format(self.target))
            size = self._there.status(entry.name).st_size
            if size != entry.size_bytes:
                return "{} has {} bytes, wanted {}".format(entry.name, size, entry.size_bytes)
            return self._hashed(self._there, entry).difference()
        except (OSError, Refused) as error:
            return "{}: {}".format(entry.name, words_of(error))

    def _publish(self, fetched: List[str]) -> None:
        """Put what was fetched into place: the whole folder by one rename, or file by file into one that is there."""
        above, arriving, partial = self._above, self._arriving, partial_name(self._revision)
        folder = self._there or arriving
        assert above is not None  # noqa: S101 - it is opened first
        if folder is None:
            raise Refused("{} vanished while it was looked at".format(self.target))
        if arriving is not None and folder is not arriving:
            for name in fetched:
                inside, last = os.path.split(name)
                with arriving.folder(inside) as source, folder.folder(inside, FOLDER_MODE) as place:
                    source.rename(last, place, last)
        os.fchmod(folder.handle, FOLDER_MODE)
        folder.replace(MANIFEST, as_json(self._manifest()), FILE_MODE)
        write_verified(folder, [entry.name for entry in self.entries])
        folder.sync()
        if folder is arriving:
            above.rename(partial, above, self._revision)
            if not folder.is_at(above, self._revision):
                raise Refused("{} was swapped while it was put into place".format(self.target))
            above.sync()
        else:
            above.remove(partial)
        for name, transfer in self.transfers.items():
            transfer.moved(functools.partial(folder.open, name))

    def _manifest(self) -> Dict[str, object]:
        """The manifest: equal on every host that holds the same content."""
        rows = []
        for entry in self.entries:
            sha256 = self.transfers[entry.name].sha256
            rows.append(row_of(entry._replace(sha256=sha256 or None, git_sha1=None)))
        keys = ("repository", "revision", "commit")
        document = {key: self.request.get(key) for key in keys}
        return dict(document, schema_version=1, files=rows)

    def _linger(self, server: Optional[PeerServer]) -> None:
        """Serve until nobody has wanted anything for a while, and no operator has looked."""
        begun = time.monotonic()
        while server is not None:
            linger_s = float(self.request.get("linger_s") or LINGER_S)
            idle_s = min(server.idle_s(), _age_s(self._watched_path), time.monotonic() - begun)
            if idle_s >= linger_s:
                return
            time.sleep(min(STATUS_S, linger_s))

    def _serve(self) -> Optional[PeerServer]:
        """Begin to serve peers, if there are any."""
        listen = self.request.get("listen")
        if not listen:
            return None
        address, port = str(listen["address"]), int(listen["port"])
        members = {str(name): str(of) for name, of in listen["members"].items()}
        try:
            token = str(self.request["token"])
            server = PeerServer((address, port), token, self.transfers, members)
        except OSError as error:
            text = "peers cannot be served at {}:{}: {}"
            raise Refused(text.format(address, port, error.strerror)) from error
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        return server

    def _sources(self) -> List[Source]:
        if self.request.get("only_check"):
            return []
        patience_s = float(self.request.get("patience_s") or PATIENCE_S)
        token, listen = str(self.request.get("token")), self.request.get("listen")
        own = str(listen["address"]) if listen else None
        sources = []
        for peer in self.request.get("peers") or []:
            place = Peer(str(peer["name"]), str(peer["address"]), token, self._silent_s, own)
            sources.append(Source(place, is_peer=True, patience_s=patience_s / 3))
        if self.request.get("source") is not None:
            origin = open_origin(self.request["source"], self._host, self._silent_s)
            sources.append(Source(origin, is_peer=False, patience_s=patience_s))
        return sources

    def _transfer(self, entry: Entry) -> Transfer:
        return Transfer(entry, functools.partial(self._open, entry.name))

    def _open(self, name: str) -> int:
        """A file that arrives, or that lies there already."""
        for folder in (self._arriving, self._there):
            if folder is not None:
                with contextlib.suppress(FileNotFoundError):
                    return folder.open(name)
        raise FileNotFoundError(name)

    def _in_parallel(self, entries: List[Entry], function: Any) -> None:
        """A function for every file in some threads; the first failure ends the others' next steps and is raised."""
        waiting: queue.Queue[Entry] = queue.Queue()
        for entry in entries:
            waiting.put(entry)

        def work() -> None:
            while self._failure is None:
                try:
                    function(waiting.get_nowait())
                except queue.Empty:
                    return
                except Exception as error:  # noqa: BLE001 - raised below, in the thread that waits
                    self._failure = self._failure or error
                    return

        count = min(int(self.request.get("num_streams") or NUM_STREAMS), len(entries))
        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and self._failure is None:
            for thread in threads:
                thread.join(STATUS_S / len(threads))
        if self._failure is not None:
            raise self._failure

    def _report_steadily(self) -> None:
        while self.phase not in ("failed", "checked"):
            time.sleep(STATUS_S)
            self._say()

    def _say(self) -> None:
        """Write down how far it is."""
        fetching = self.phase not in ("verifying", "checked")
        transfers = list(self.transfers.values())
        arrived = sum(transfer.num_bytes for transfer in transfers)
        num_bytes = arrived if fetching else max(arrived, self.checked_bytes)
        document = {
            "schema_version": 1,
            "phase": self.phase,
            "problem": self.problem,
            "operator": self.request.get("operator"),
            "since": self._begun,
            "pid": os.getpid(),
            "num_files": len(transfers),
            "files_done": sum(transfer.is_whole for transfer in transfers),
            "size_bytes": sum(entry.size_bytes for entry in self.entries),
            "num_bytes": num_bytes,
            "bytes_per_s": self._rate.per_second(num_bytes),
            "damaged": sorted(self.damaged),
            "notes": [*self._doubts, *self.choice.notes],
            "came_from": self._came_from(),
            "port": (self.request.get("listen") or {}).get("port"),
            "token": self.request.get("token"),
        }
        with contextlib.suppress(OSError), self._guard:
            write_json(self._status_path, document)

    def _came_from(self) -> Dict[str, int]:
        counts: Dict[str, int] = {}
        for transfer in self.transfers.values():
            if transfer.is_whole:
                counts[transfer.came_from] = counts.get(transfer.came_from, 0) + 1
        return counts


def _age_s(path: str) -> float:
    """How long ago a file was last touched, in seconds; for ever where there is none."""
    try:
        return max(time.time() - os.stat(path).st_mtime, 0.0)
    except OSError:
        return float("inf")


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = " ({})".format(error.filename) if error.filename else ""
        return "{}{}".format(error.strerror, where)
    return str(error) or repr(error)
