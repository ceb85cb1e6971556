"""What a look at the operator's machine tells of the files that a stack's secrets lie in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.checks.view import SecretFile
from infra.spec.secret_file import look_at


def secret_files(references: Mapping[str, Mapping[str, str]]) -> Mapping[str, SecretFile]:
    """By name of the secret, what is said of its file; nothing is read of what the files hold.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.
    """
    named = {name: each["file"] for name, each in references.items() if "file" in each}
    paths = {name: Path(os.path.expanduser(file)) for name, file in named.items()}  # noqa: PTH111 - never raises
    looks = {name: look_at(path) for name, path in paths.items()}
    return {
        name: SecretFile(path=str(paths[name]), flaw=flaw, is_shared=is_shared)
        for name, (flaw, is_shared) in looks.items()
    }
