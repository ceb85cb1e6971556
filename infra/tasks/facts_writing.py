"""The facts file written anew: what was found beside what it says already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.inventory.collective_baseline import RecordedCollective
from infra.inventory.facts_file import RecordedHost, facts_text, read_collectives, read_facts
from infra.whole_file import kept_from_others, write_whole


def add_facts(
    path: Path, hosts: Mapping[str, RecordedHost], collectives: Sequence[RecordedCollective]
) -> bool:
    """Put what was found beside what the file says of others; whether it says something new.

    Args:
        path: of the facts file, which need not be there.
        hosts: found now, in the place of what the file says of the same.
        collectives: measured now; a group's first one stays.

    Raises:
        StackError: the file is damaged, or cannot be written.
        PrerequisiteError: there is no room for it.
    """
    with kept_from_others(path):
        known, before = read_facts(path), read_collectives(path)
        new = [one for one in collectives if not any(one.is_of(other) for other in before)]
        if path.is_file() and not new and known == {**known, **hosts}:
            return False
        after = facts_text({**known, **hosts}, [*before, *new])
        write_whole(path, after, fix="Give the folder back to yourself.")
    return True
