"""The steps that keep a host's tuning over a reboot, for everything that is declared for the host."""

from typing import Dict, List, Set

from ..host import Host
from ..item import parse_item
from .declared import all_together
from .overwriters import overwriters_here, overwritten
from .persistence import Pair, overruled, overrulers, persistent_items
from .rollback import Record
from .steps import Step, observe
from .waiting import Permission


def persistent_steps(
    host: Host, record: Record, steps: List[Step], permission: Permission, notes: Dict[str, str]
) -> List[Step]:
    """The files that bring the declared tuning about at every boot, as steps.

    Args:
        host: the host.
        record: of the host's tuning; what it declares decides.
        steps: items that are observed already.
        permission: what waits for a drain is not left to the next boot.
        notes: by id, gets what other files do to our sysctls, and other services to our knobs.
    """
    pairs = _lasting_pairs(host, record, steps, permission)
    found, others = overrulers(host), overwriters_here(host)
    shadowed: Set[str] = set()
    for item, reading in pairs:
        note = overruled(item, reading, found)
        if note is not None:
            notes[item.id] = note
            shadowed.add(item.id)
        elif reading.wanted is not None and overwritten(item, others):
            notes[item.id] = overwritten(item, others)
    return [observe(host, document) for document in persistent_items(pairs, shadowed)]


def _lasting_pairs(
    host: Host, record: Record, steps: List[Step], permission: Permission
) -> List[Pair]:
    """Every declared item that a reboot would undo, with what it is on this host."""
    known = {step.item.id: step for step in steps}
    pairs: List[Pair] = []
    for document in all_together(record.declared):
        item = parse_item(document)
        step = known.get(item.id)
        if step is None or step.item._replace(document=document, why=item.why) != item:
            step = observe(host, document)
        if step.kind is None or step.reading is None or step.kind.survives_reboot:
            continue
        if not step.reading.differing() or permission.refusal(item, step.reading) is None:
            pairs.append((item, step.reading))
    return pairs
