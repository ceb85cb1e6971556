"""A group's record on a disk that may not take it: full, broken or read-only."""

from ..host import Host
from .record import RECORDS, Record, load_record, save_record

AGAIN_S = 1.0


class KeptRecord:
    """What this host remembers of a group. Only a start waits for the disk; what it has not taken is written again.

    A stop that is in memory alone is lost with the watcher, which then finds ranks that have ended in an epoch that
    runs, and stops that epoch once more. An epoch's number that was lost would be given to another start.

    Attributes:
        record: what is remembered.
        refused: why the disk has not taken that, "" when it has.
    """

    def __init__(self, host: Host, stack: str, group: str, now: float) -> None:
        """Read it; `now` is when its phase begins."""
        self._host, self._place = host, (stack, group)
        self._tried = now
        self.record: Record = load_record(host, stack, group, now)
        self.refused = ""

    def remember(self, record: Record) -> None:
        """Know it; the disk holds all of it that lasts."""
        self.record = record

    def keep(self, record: Record, *, first: bool = False) -> bool:
        """Know it, and write it as soon as the disk takes it; what must be there `first` is not known before.

        Returns:
            Whether it is known.
        """
        is_written = self._write(record)
        if is_written or not first:
            self.record = record
        return is_written or not first

    def catch_up(self, now: float) -> None:
        """Write again what the disk has not taken."""
        if self.refused and now - self._tried >= AGAIN_S:
            self._tried = now
            self._write(self.record)

    def _write(self, record: Record) -> bool:
        refused, place = "", self._place
        try:
            save_record(self._host, place[0], place[1], record)
        except OSError as error:
            refused = "{} cannot be written: {}".format(RECORDS, error.strerror or error)
        if refused != self.refused:
            self.refused = refused
            print("{}: {}".format(place[1], refused or RECORDS + " is written again"), flush=True)
        return not refused
