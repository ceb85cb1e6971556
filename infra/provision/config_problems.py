"""What is wrong with a value of a stack's configuration, with the command that mends it. Known without Pulumi."""

from __future__ import annotations

from collections.abc import Iterable

from infra.errors import Problem

PROJECT_NAME = "moe-infra"


def account_problem(
    key: str, what: str, example: str, stack: str, rule: str = "account-fact"
) -> Problem:
    """A problem of one configuration value, with the command that sets it.

    Args:
        key: as the configuration file has it (`aws:region`, `moe-infra:zone_id`).
        what: the fact.
        example: a value of the right kind.
        stack: the stack's name.
        rule: by which the problem is known.
    """
    name = key.removeprefix(f"{PROJECT_NAME}:")
    return Problem(
        rule=rule,
        severity="error",
        file=f"stacks/Pulumi.{stack}.yaml",
        field=key,
        what=what,
        fix=f"Type: pulumi config set {name} {example} --stack {stack}",
    )


def secret_problems(keys: Iterable[str], stack: str) -> tuple[Problem, ...]:
    """Account facts that were set as secrets: whoever did so takes for hidden what is not."""
    what = "It is set as a secret, and what is made of it is readable: tags, state, inventory."
    return tuple(account_problem(key, what, "VALUE --plaintext", stack) for key in keys)
