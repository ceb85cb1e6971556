"""So that `fab` finds the tasks of this project."""

import sys

# Invoke forbids Python to keep what it compiles, so that every start would compile most of our modules again.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from fabric.main import program  # noqa: E402 - after the line above

from infra.tasks.fabric_program import put_in_place  # noqa: E402
from infra.tasks.program import task_collection  # noqa: E402

put_in_place(program)
namespace = task_collection()
