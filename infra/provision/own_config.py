"""This project's part of a stack's configuration, as Pulumi gives it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env, is_config_secret

from infra.errors import ProblemsFound
from infra.provision.config_problems import PROJECT_NAME, secret_problems, unknown_key_problems


def refuse_unknown_keys(declared: Collection[str]) -> None:
    """Refuse a configuration of the selected stack with a key that nothing reads.

    Args:
        declared: names of this project's keys, as `Pulumi.yaml` has them.

    Raises:
        ProblemsFound: every such key, with the nearest that is read.
    """
    keys = {**get_config_env(), **CONFIG.get()}
    problems = unknown_key_problems(sorted(keys), declared, pulumi.get_stack())
    if problems:
        raise ProblemsFound(problems)


def read_own_values(names: Iterable[str]) -> dict[str, str]:
    """Values of this project's keys as Pulumi gives them, by short name; empty is not set.

    Raises:
        ProblemsFound: values that are set as secrets.
    """
    values = read_keys(tuple(f"{PROJECT_NAME}:{name}" for name in names))
    return {key.removeprefix(f"{PROJECT_NAME}:"): value for key, value in values.items()}


def read_keys(keys: tuple[str, ...]) -> dict[str, str]:
    """Values of full keys (`moe-infra:zone_id`) as Pulumi gives them; empty is not set.

    Raises:
        ProblemsFound: values that are set as secrets.
    """
    problems = secret_problems(filter(is_config_secret, keys), pulumi.get_stack())
    if problems:
        raise ProblemsFound(problems)
    places = {key: key.split(":", 1) for key in keys}
    return {key: pulumi.Config(bag).get(name) or "" for key, (bag, name) in places.items()}
