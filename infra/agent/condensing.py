"""The agent's modules as they lie in a folder, and as they are carried: without what only people read.

What was carried brings its modules with it, and leaves this one behind.
"""

import os
import re
from functools import lru_cache
from typing import Dict, Match

_DOCSTRING = re.compile(r'(\A|:\n *)("""[\s\S]*?""")$', re.MULTILINE)
_INDENTATION = re.compile(r"^(?: {4})+", re.MULTILINE)
_COMMENT = re.compile(r"(?:^ *|  )# .*$", re.MULTILINE)
_RETURNED = re.compile(r"\) -> .*:$", re.MULTILINE)


def sources_in(folder: str) -> Dict[str, str]:
    """The agent's modules as they lie in a folder, as they are carried."""
    return {name: condensed(text) for name, text in texts_in(folder).items()}


def texts_in(folder: str) -> Dict[str, str]:
    """The agent's modules as they lie in a folder."""
    texts = {}
    for inside, folders, names in os.walk(folder):
        folders.sort()
        package = os.path.relpath(inside, folder).replace(os.sep, ".")
        for stem, suffix in sorted(map(os.path.splitext, names)):
            if suffix == ".py" and stem != "__main__":
                with open(os.path.join(inside, stem + suffix), encoding="utf-8") as stream:
                    texts[_module_name(package, stem)] = stream.read()
    return texts


def _module_name(package: str, stem: str) -> str:
    if package == ".":
        return stem
    return package if stem == "__init__" else package + "." + stem


@lru_cache(maxsize=None)
def condensed(text: str) -> str:
    """A module without docstrings, comments and what functions return, indented with tabs; lines keep their numbers.

    It knows how this package is written, not Python: `tests/agent/test_bundle.py` compares what is left.
    """

    def blank(found: Match[str]) -> str:
        return found.group(1) + "pass" + "\n" * found.group(2).count("\n")

    def tabs(found: Match[str]) -> str:
        return "\t" * (len(found.group(0)) // 4)

    read = _RETURNED.sub("):", _COMMENT.sub("", text))
    return _INDENTATION.sub(tabs, _DOCSTRING.sub(blank, read))
