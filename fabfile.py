"""So that `fab` finds the tasks of this project."""

from fabric.main import program

from infra.tasks.program import put_in_place, task_collection

put_in_place(program)
namespace = task_collection()
