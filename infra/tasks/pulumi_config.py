"""What `stacks/Pulumi.<stack>.yaml` and `Pulumi.yaml` say, read without Pulumi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import yaml

from infra.errors import ProblemsFound, StackError
from infra.provision.config_problems import (
    PROJECT_NAME,
    account_problem,
    secret_problems,
    unknown_key_problems,
)
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml


def config_path(stack: str) -> Path:
    """Where the configuration of a stack stands, or would."""
    return PROJECT / "stacks" / f"Pulumi.{stack}.yaml"


def configured(stack: str, names: Iterable[str]) -> dict[str, str]:
    """What is set for a stack of some keys of ours, by short name (`namespace`); empty is not set.

    Raises:
        ProblemsFound: keys that nothing reads, and values that are set as secrets, both of which `pulumi up` refuses
            too; values that are no texts.
        StackError: the file cannot be read.
    """
    path = config_path(stack)
    given = _read_map(path).get("config") if path.is_file() else None
    values = given if isinstance(given, dict) else {}
    found = {name: values.get(f"{PROJECT_NAME}:{name}") for name in names}
    nested = {f"{PROJECT_NAME}:{key}": each for key, each in found.items() if _is_nested(each)}
    secret = [key for key, each in nested.items() if isinstance(each, dict) and "secure" in each]
    declared = _read_map(PROJECT / "Pulumi.yaml")["config"]
    problems = [
        *unknown_key_problems(
            map(str, values), cast("Mapping[str, object]", declared).keys(), stack
        ),
        *secret_problems(secret, stack),
        *(
            account_problem(key, "It is a list or a map, and a text is wanted.", "VALUE", stack)
            for key in nested
            if key not in secret
        ),
    ]
    if problems:
        raise ProblemsFound(tuple(problems))
    return {name: str(each) for name, each in found.items() if each not in (None, "")}


def default_of(key: str) -> str:
    """What `Pulumi.yaml` says of a key of ours where nobody has set it."""
    declared = cast(
        "Mapping[str, Mapping[str, object]]", _read_map(PROJECT / "Pulumi.yaml")["config"]
    )
    return str(declared[key]["default"])


def _is_nested(value: object) -> bool:
    return isinstance(value, dict | list)


def _read_map(path: Path) -> Mapping[str, object]:
    try:
        data = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = f"It cannot be read: {error}."
        raise StackError(
            str(path), what, "Mend it, or write it anew with `pulumi config set`."
        ) from error
    return data if isinstance(data, dict) else {}
