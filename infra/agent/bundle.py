"""The agent as one Python program: how it is carried to a host, and how it is stored for the next boot."""

import json
import os
import re
import sys
from typing import Dict, Iterable, Match

PACKAGE = "moe_agent"
_DOCSTRING = re.compile(r'(\A|:\n *)("""[\s\S]*?""")$', re.MULTILINE)
_COMMENT = re.compile(r"(?:^ *|  )# .*$", re.MULTILINE)
_IMPORTED = re.compile(r"^ *from \.(?:(\w+) import| import ([\w, ]+)$)", re.MULTILINE)
# What the watcher imports: `tests/agent/test_bundle.py` runs it with these alone.
WATCHER = (
    "__init__",
    "bundle",
    "files",
    "group_config",
    "group_evidence",
    "group_part",
    "group_progress",
    "group_record",
    "group_router",
    "group_rules",
    "group_talk",
    "group_units",
    "group_watch",
    "host",
    "item",
    "journal",
    "listening",
    "services",
)

TITLE = "# The host agent of moe-infra: all of its modules in one file, and an importer for them."
# Runs on any Python 3, so that one that is too old can still say so.
PROGRAM = """\
{title}
import sys

if sys.version_info < (3, 6):
    sys.stderr.write("moe-infra:old-python %d.%d\\n" % sys.version_info[:2])
    sys.exit(1)

from importlib.machinery import ModuleSpec

PACKAGE = {package}
SOURCES = {sources}


class Importer(object):
    sources = SOURCES

    def find_spec(self, name, path=None, target=None):
        if name == PACKAGE:
            return ModuleSpec(name, self, origin="moe-infra", is_package=True)
        if name.startswith(PACKAGE + ".") and name[len(PACKAGE) + 1 :] in SOURCES:
            return ModuleSpec(name, self, origin="moe-infra")
        return None

    def create_module(self, spec):
        return None

    def get_source(self, name):
        return SOURCES[name[len(PACKAGE) + 1 :] or "__init__"]

    def exec_module(self, module):
        text = self.get_source(module.__name__)
        exec(compile(text, "<%s>" % module.__name__, "exec"), module.__dict__)


sys.meta_path.insert(0, Importer())
from moe_agent.{main} import main

sys.exit(main(sys.argv[1:]))
"""


def program(sources: Dict[str, str], main: str = "conversation") -> str:
    """The program that holds these modules; same sources, same text.

    Args:
        sources: text by module name, `__init__` among them.
        main: the module whose `main` is run.
    """
    literal = json.dumps(sources, sort_keys=True, indent=0)
    text = PROGRAM.replace("{title}", TITLE).replace("{package}", json.dumps(PACKAGE))
    text = text.replace("{main}", main)
    return text.replace("{sources}", literal)


def needed(sources: Dict[str, str], roots: Iterable[str]) -> Dict[str, str]:
    """These modules and all that they import of the agent's own; same sources and roots, same modules."""
    found: Dict[str, str] = {}
    waiting = ["__init__", *roots]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = sources[name]
            for module, modules in _IMPORTED.findall(sources[name]):
                waiting.extend([module] if module else modules.split(", "))
    return found


def own_program(module: str) -> str:
    """The program of the agent that is running, with what one operation's module needs.

    It does not depend on how much of the agent was carried here, so that every carrier stores the same bytes.
    """
    return program(needed(_own_sources(), ["conversation", module]))


def watcher_program() -> str:
    """The watcher, of the modules that it needs; it is changed by theirs alone, and runs on this Python."""
    sources = _own_sources()
    modules = {name: sources[name] for name in WATCHER}
    python = sys.executable or "/usr/bin/python3"
    return "#!{} -IS\n{}".format(python, program(modules, "group_watch"))


def _own_sources() -> Dict[str, str]:
    loader = getattr(sys.modules[__name__], "__loader__", None)
    sources = getattr(loader, "sources", None)
    return sources if sources is not None else sources_in(os.path.dirname(__file__))


def sources_in(folder: str) -> Dict[str, str]:
    """The agent's modules as they lie in a folder, as they are carried."""
    return {name: without_comments(text) for name, text in texts_in(folder).items()}


def texts_in(folder: str) -> Dict[str, str]:
    """The agent's modules as they lie in a folder."""
    texts = {}
    for name in sorted(os.listdir(folder)):
        stem, suffix = os.path.splitext(name)
        if suffix == ".py" and stem != "__main__":
            with open(os.path.join(folder, name), encoding="utf-8") as stream:
                texts[stem] = stream.read()
    return texts


def without_comments(text: str) -> str:
    """A module without docstrings and comments: a third less to carry, and every line keeps its number.

    It knows how this package is written, not Python: `tests/agent/test_bundle.py` compares what is left.
    """

    def blank(found: Match[str]) -> str:
        return found.group(1) + "pass" + "\n" * found.group(2).count("\n")

    return _DOCSTRING.sub(blank, _COMMENT.sub("", text))
