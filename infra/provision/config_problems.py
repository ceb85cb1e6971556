"""What is wrong with a value of a stack's configuration, or of its file, with its fix. Known without Pulumi."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import replace

from infra.errors import Problem
from infra.spec.nearest import nearest
from infra.spec.stack import Platform

PROJECT_NAME = "moe-infra"
REGION = "aws:region"


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


def stack_problem(rule: str, field: str, what: str, fix: str, stack: str) -> Problem:
    """A problem of a field of the stack file, which only whoever buys the machines can see."""
    return Problem(
        rule=rule, severity="error", file=f"stacks/{stack}.yaml", field=field, what=what, fix=fix
    )


def unread_problem(name: str, value: str, platform: Platform, stack: str) -> Problem:
    """A key that another platform reads: whoever set it believes in a value that is passed over.

    Args:
        name: of the key, without namespace.
        value: that it has.
        platform: of the stack.
        stack: the stack's name.
    """
    what = f"It is {value}, and a stack on {platform} does not read it."
    problem = account_problem(f"{PROJECT_NAME}:{name}", what, "", stack)
    return replace(problem, fix=f"Type: pulumi config rm {name} --stack {stack}")


def secret_problems(keys: Iterable[str], stack: str) -> tuple[Problem, ...]:
    """Account facts that were set as secrets: whoever did so takes for hidden what is not."""
    what = "It is set as a secret, and what is made of it is readable: tags, state, inventory."
    return tuple(account_problem(key, what, "VALUE --plaintext", stack) for key in keys)


def unknown_key_problems(
    keys: Iterable[str], declared: Collection[str], stack: str
) -> tuple[Problem, ...]:
    """Keys that nothing reads: whoever set one believes in a value that is passed over.

    Keys of other namespaces are their providers', but for what was meant to be ours or the region.

    Args:
        keys: of the configuration, as its file has them (`moe-infra:zone_id`).
        declared: names of this project's keys, without namespace.
        stack: the stack's name.
    """
    known = {*(f"{PROJECT_NAME}:{name}" for name in declared), REGION}
    problems = []
    for key in keys:
        namespace, _, name = key.partition(":")
        is_ours = namespace == PROJECT_NAME or _is_like(namespace, PROJECT_NAME)
        is_region = namespace == REGION.partition(":")[0] and _is_like(name, "region")
        if key in known or not (is_ours or is_region):
            continue
        meant = [REGION] if _is_like(name, "region") else sorted(declared)
        typed = name if namespace == PROJECT_NAME else key
        problems.append(
            Problem(
                rule="account-fact",
                severity="error",
                file=f"stacks/Pulumi.{stack}.yaml",
                field=key,
                what="Nothing reads this key.",
                fix=(
                    f"{nearest(name, meant)} Set that, and take this key away: "
                    f"pulumi config rm {typed} --stack {stack}"
                ),
            )
        )
    return tuple(problems)


def _is_like(name: str, word: str) -> bool:
    return bool(difflib.get_close_matches(name.lower(), [word], cutoff=0.75))
