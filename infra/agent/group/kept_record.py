"""A group's record on a disk that may not take it: full, broken, read-only, or busy with a download for minutes."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Optional, Tuple

from ..host import Host
from .record import RECORDS, Document, OwnRecord, Record, load_record, save_record, told_of

AGAIN_S = 1.0
# Whoever keeps a record holds the watcher's lock: a host that is silent for long is lost to the others.
WAIT_S = 0.5

Lasting = Tuple[OwnRecord, Document]


class KeptRecord:
    """What this host remembers of a group. Only a start waits for the disk; what it has not taken is written again.

    A stop that is in memory alone is lost with the watcher, which then finds ranks that have ended in an epoch that
    runs, and stops that epoch once more. An epoch's number that was lost would be given to another start.

    Attributes:
        record: what is remembered.
        refused: why the disk takes nothing, "" when it does.
    """

    def __init__(self, host: Host, stack: str, group: str, now: float) -> None:
        """Read it; `now` is when its phase begins."""
        self._host, self._place = host, (stack, group)
        self._tried = now
        self._disk = ThreadPoolExecutor(max_workers=1)
        self._writing: "Optional[Tuple[Record, Future[None]]]" = None
        self.record: Record = load_record(host, stack, group, now)
        self._on_disk = _lasting(self.record)
        self.refused = ""

    @property
    def is_owed(self) -> bool:
        """Whether the disk holds something else than what is remembered."""
        return bool(self.refused) or self._on_disk != _lasting(self.record)

    def remember(self, record: Record) -> None:
        """Know it; the disk holds all of it that lasts, or will with what is kept next."""
        self.record = record

    def keep(self, record: Record, *, first: bool = False) -> bool:
        """Know it, and write it as soon as the disk takes it; what must be there `first` is not known before.

        Returns:
            Whether it is known.
        """
        # a disk that was slow may have taken by now what must be there first
        is_there = first and self._has_ended() and self._on_disk == _lasting(record)
        is_written = is_there or self._write(record)
        if is_written or not first:
            self.record = record
        return is_written or not first

    def catch_up(self, now: float) -> None:
        """Write again what the disk has not taken; not at once, for whoever waits for a write asks for it again."""
        if self._writing is not None:
            self._tried = now
            self._has_ended()
        elif self.is_owed and now - self._tried >= AGAIN_S:
            self._tried = now
            self._write(self.record)

    def _write(self, record: Record) -> bool:
        """Whether the disk has taken it; one that is slow is given one at a time, and not waited for."""
        if not self._has_ended():
            return False
        task = self._disk.submit(save_record, self._host, self._place[0], self._place[1], record)
        self._writing = (record, task)
        return self._has_ended(WAIT_S) and not self.refused

    def _has_ended(self, wait_s: float = 0.0) -> bool:
        """Whether no write is under way, after so long; what has come of it is then noted."""
        if self._writing is None:
            return True
        record, task = self._writing
        if not wait([task], wait_s).done:
            self._note("the disk does not answer")
            return False
        self._writing, error = None, task.exception()
        if error is None:
            self._on_disk = _lasting(record)
            self._note("")
        elif isinstance(error, OSError):
            self._note(error.strerror or str(error))
        else:
            raise error
        return True

    def _note(self, why: str) -> None:
        refused = "{} cannot be written: {}".format(RECORDS, why) if why else ""
        if refused != self.refused:
            self.refused = refused
            told = refused or RECORDS + " is written again"
            print("{}: {}".format(self._place[1], told), flush=True)


def _lasting(record: Record) -> Lasting:
    """What of a record is on disk."""
    return record.own, told_of(record.memory)
