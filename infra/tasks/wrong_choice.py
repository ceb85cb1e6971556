"""What may be wrong about a choice when nothing of the chosen stack is on its hosts: its name, or its inventory."""

from __future__ import annotations

from infra.errors import ProblemsFound
from infra.spec.stack_files import find_stack
from infra.tasks.choice import chosen_name, needed_inventory
from infra.tasks.options import Options


def refuse_wrong_choice(options: Options) -> None:
    """Refuse a stack that neither a file nor the hosts know, and the inventory of a stack with other roles.

    For tasks that found nothing of the stack on its hosts: what they would say of these hosts is true, and what was
    meant may run elsewhere.

    Raises:
        ProblemsFound: no file is of this name; it names the nearest.
        StackError: the inventory's groups are none of the stack's roles.
    """
    # Reading a stack takes half of a short command's start, and only here it matters.
    from infra.inventory.book import refuse_other_roles  # noqa: PLC0415
    from infra.spec.load import load_stack  # noqa: PLC0415

    file = options.text("file") or chosen_name(options)
    find_stack(file)
    try:
        stack = load_stack(file, options.words("set"))
    except ProblemsFound:  # what hosts hold is taken down whatever its file says by now
        return
    refuse_other_roles(
        {role for role, _ in stack.spec.roles.items()}, needed_inventory(options, stack.name)
    )
