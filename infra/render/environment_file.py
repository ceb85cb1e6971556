"""Environment files that systemd, docker and podman read alike, and the values that they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.errors import StackError
from infra.plan.grammar import is_process_id, is_variable, shown

# Quotes and backslashes mean something to systemd and to some podman releases, nothing to docker. systemd drops a
# variable with a control character (env-util.c, env_value_is_valid, v252; tabs it keeps), and one that is no UTF-8.
_ODD = re.compile(r"[\"'\\\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]|^\s|\s$")
# docker reads the file line by line into 64 KiB (bufio.MaxScanTokenSize of Go 1.22).
_MAX_LINE_BYTES = 60_000


def environment_file(process_id: str, env: Mapping[str, str]) -> str:
    """The text of an environment file: one `KEY=VALUE` per line, plain values alone.

    Raises:
        StackError: a name is none, or the id is more than one: whoever reads the file would take more from it.
    """
    refuse_variables(process_id, env)
    lines = [f"# {process_id}, written by moe-infra; `fab down` removes it."]
    lines += [f"{name}={value}" for name, value in env.items() if is_plain(name, value)]
    return "\n".join(lines) + "\n"


def odd_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that no environment file carries unharmed: the launch script sets them."""
    return {name: value for name, value in env.items() if not is_plain(name, value)}


def is_plain(name: str, value: str) -> bool:
    """Whether all three readers take the line to mean this name and this value."""
    return _ODD.search(value) is None and len(name) + 4 * len(value) < _MAX_LINE_BYTES


def refuse_variables(process_id: str, env: Mapping[str, str]) -> None:
    """Nothing, where an id is a process's and every name a variable's; the gate should have seen to it.

    Raises:
        StackError: one is more than that to whoever reads the file.
    """
    if not is_process_id(process_id):
        raise StackError("a process", f"{shown(process_id)} is no id of one.", "Write HOST/INDEX.")
    for name in env:
        if not is_variable(name):
            what = f"{shown(name)} is no name of a variable."
            raise StackError(
                f"{process_id} env", what, "Use letters, digits and `_`, no digit first."
            )
