"""The platforms whose processes no task puts on hosts: Kubernetes starts and watches them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from infra.errors import StackError
from infra.spec.load import load_stack
from infra.spec.stack import KUBERNETES


def refuse_kubernetes(file: str, stack: str, platform: str) -> None:
    """Refuse a platform whose processes Kubernetes starts: units over SSH would be the wrong thing.

    Args:
        file: that says so.
        stack: its name.
        platform: of the stack.

    Raises:
        StackError: it is one.
    """
    if platform in KUBERNETES:
        what = f"On {platform} Kubernetes starts and watches the processes: nothing is put on hosts over SSH."
        fix = f"Type `pulumi up --stack {stack}`, then look with kubectl."
        raise StackError(f"{file} platform", what, fix)


def refuse_stack_in_pods(name: str, file: str | None, sets: Sequence[str]) -> None:
    """Refuse a stack, read from its file, that runs where no inventory could say how to reach it.

    Args:
        name: of the stack.
        file: that holds it, None for the one of that name.
        sets: `field=value` words of `--set`.

    Raises:
        StackError: it runs in pods, or its file is wrong.
    """
    stack = load_stack(name if file is None else str(Path(file).absolute()), sets)
    refuse_kubernetes(stack.file, stack.name, stack.spec.platform)
