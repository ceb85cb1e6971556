"""What a look at the operator's machine tells of the files that a stack's secrets lie in."""

from __future__ import annotations

from collections.abc import Mapping

from infra.checks.view import SecretFile
from infra.provision.secret_values import file_flaw, secret_path

_OTHERS = 0o077


def secret_files(references: Mapping[str, Mapping[str, str]]) -> Mapping[str, SecretFile]:
    """By name of the secret, what is said of its file; nothing is read of what the files hold.

    Args:
        references: by name, `{"env": NAME}` or `{"file": PATH}`.
    """
    paths = {name: secret_path(each["file"]) for name, each in references.items() if "file" in each}
    found: dict[str, SecretFile] = {}
    for name, path in paths.items():
        flaw = file_flaw(path)
        is_shared = flaw is None and bool(path.stat().st_mode & _OTHERS)
        found[name] = SecretFile(path=str(path), flaw=flaw, is_shared=is_shared)
    return found
