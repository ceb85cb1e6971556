"""What was written for a wish that nobody has any more."""

from typing import List

from ..kinds.table import KINDS
from .persistence import ENABLED_LINK, STORED_AGENT, STORED_REQUEST, SYSCTL_FILE, UNIT_FILE
from .rollback import Entry, Record
from .steps import Step

# Files that follow from everything that is declared; nobody declares them.
OWN_FILES = {
    "file:" + path for path in (SYSCTL_FILE, STORED_AGENT, STORED_REQUEST, UNIT_FILE, ENABLED_LINK)
}


def withdrawn_entries(record: Record, lasting: List[Step]) -> List[Entry]:
    """The entries of the host's tuning that nobody declares, in the order to take them back from the end.

    Args:
        record: of the host's tuning, with what its owners declare now.
        lasting: the files that keep what is declared over a reboot.
    """
    documents = [document for items in record.declared.values() for document in items]
    wanted = {str(document["id"]) for document in documents}
    own = [entry for entry in record.entries if entry.item.id in OWN_FILES]
    gone = [entry for entry in record.entries if entry.item.id not in wanted | OWN_FILES]
    if not gone and any(_is_lost_at_reboot(str(document.get("kind"))) for document in documents):
        return []  # a knob that is away just now is none of `lasting`, and still wants its file
    needed = {step.item.id for step in lasting}
    return gone + [entry for entry in own if entry.item.id not in needed]


def _is_lost_at_reboot(kind: str) -> bool:
    return kind in KINDS and not KINDS[kind].survives_reboot
