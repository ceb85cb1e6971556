"""The agent as one Python program: how it is carried to a host, and how it is stored for the next boot."""

import json
import os
import re
import sys
from typing import Dict, Iterable, List, cast

from .item import bring_module

PACKAGE = "moe_agent"
_IMPORTED = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\(|[\w, ]+)", re.MULTILINE)
WATCHER = "group.watch"
# Around the text of a module; none holds them.
QUOTES = "'" * 3

TITLE = "# The host agent of moe-infra: all of its modules in one file, and an importer for them."
# Runs on any Python 3, so that one that is too old can still say so; indented so that it is carried as it stands.
# What it begins with is packed close to this module, which says the same: far behind, it would be packed twice.
PROGRAM = """\
{title}
import sys

if sys.version_info < (3, 6):
 sys.stderr.write("moe-infra:old-python %d.%d\\n" % sys.version_info[:2])
 sys.exit(1)

from importlib.machinery import ModuleSpec

PACKAGE = {package}


class Importer(object):
 def find_spec(self, name, path=None, target=None):
  if name == PACKAGE:
   return ModuleSpec(name, self, origin="moe-infra", is_package=True)
  own = name[len(PACKAGE) + 1 :]
  if not name.startswith(PACKAGE + ".") or own not in self.sources:
   return None
  is_package = any(each.startswith(own + ".") for each in self.sources)
  return ModuleSpec(name, self, origin="moe-infra", is_package=is_package)

 def create_module(self, spec):
  return None

 def get_source(self, name):
  return self.sources[name[len(PACKAGE) + 1 :] or "__init__"]

 def exec_module(self, module):
  text = self.get_source(module.__name__)
  exec(compile(text, "<%s>" % module.__name__, "exec"), module.__dict__)


Importer.sources = {sources}
sys.meta_path.insert(0, Importer())
from moe_agent.{main} import main

sys.exit(main(sys.argv[1:]))
"""


def program(sources: Dict[str, str], main: str = "conversation") -> str:
    """The program that holds these modules; same sources, same text.

    Args:
        sources: text by module name (`host`, `group.rules`), with `__init__` and the packages (`group`).
        main: the module whose `main` is run.
    """
    rows = [
        '"{}": r{}{}{},\n'.format(name, QUOTES, sources[name], QUOTES) for name in sorted(sources)
    ]
    text = PROGRAM.replace("{title}", TITLE).replace("{package}", json.dumps(PACKAGE))
    text = text.replace("{main}", main)
    return text.replace("{sources}", "{{\n{}}}".format("".join(rows)))


def needed(sources: Dict[str, str], roots: Iterable[str]) -> Dict[str, str]:
    """These modules and all that they import of the agent's own; same sources and roots, same modules."""
    found: Dict[str, str] = {}
    waiting = ["__init__", *roots]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = sources[name]
            waiting.extend(_imports(name, sources[name]))
    return found


def _imports(name: str, text: str) -> List[str]:
    """The agent's own modules that a module needs: those that it imports, and the package that it is in."""
    package = name.rpartition(".")[0]
    modules = [package] if package else []
    for dots, module, names in _IMPORTED.findall(text):
        within = package if dots == "." and package else ""
        found = [module] if module else names.strip().split(", ")
        modules += [within + "." + each if within else each for each in found]
    return modules


def own_program(*modules: str) -> str:
    """The program of the agent that is running, with what some modules need.

    It does not depend on how much of the agent was carried here, so that every carrier stores the same bytes.
    """
    return program(needed(_own_sources(), ["conversation", *modules]))


def watcher_program() -> str:
    """The watcher, of the modules that it needs; it is changed by theirs alone, and runs on this Python."""
    sources = _own_sources()
    python = sys.executable or "/usr/bin/python3"
    return "#!{} -IS\n{}".format(python, program(needed(sources, [WATCHER]), WATCHER))


def _own_sources() -> Dict[str, str]:
    loader = getattr(sys.modules[__name__], "__loader__", None)
    sources = getattr(loader, "sources", None)
    if sources is None:  # it was not carried: its modules lie in a folder
        sources = bring_module("condensing").sources_in(os.path.dirname(__file__))
    return cast(Dict[str, str], sources)
