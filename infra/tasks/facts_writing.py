"""The facts file written anew: what was found beside what it says already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.errors import StackError
from infra.inventory.collective_baseline import RecordedCollective
from infra.inventory.facts_file import RecordedHost, facts_text, read_collectives, read_facts
from infra.tasks.whole_file import write_whole


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
    """
    before = read_collectives(path)
    new = [one for one in collectives if not any(one.is_of(other) for other in before)]
    after = facts_text({**read_facts(path), **hosts}, [*before, *new])
    if path.is_file() and path.read_text(encoding="utf-8") == after:
        return False
    try:
        write_whole(path, after)
    except OSError as error:
        what = f"The facts cannot be written: {error.strerror}."
        raise StackError(str(path), what, "Give the folder back to yourself.") from error
    return True
