"""The names nearest to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], count: int = 3) -> str:
    """`Did you mean a, b or c?`, the names nearest to a word, or all when few."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=count, cutoff=0.3) or names[:count]
    if not close:
        return ""
    if len(close) == 1:
        return f"Did you mean {close[0]}?"
    return f"Did you mean {', '.join(close[:-1])} or {close[-1]}?"
