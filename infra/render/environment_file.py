"""Environment files that systemd, docker and podman read alike, and the values that they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Quotes and backslashes mean something to systemd and to some podman releases, nothing to docker; a
# variable's name that ends in `*` is a pattern to podman.
_ODD = re.compile(r"[\"'\\\n\r\0]|^\s|\s$")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment_file(process_id: str, env: Mapping[str, str]) -> str:
    """The text of an environment file: one `KEY=VALUE` per line, plain values alone."""
    lines = [f"# {process_id}, written by moe-infra; `fab down` removes it."]
    lines += [f"{name}={value}" for name, value in env.items() if is_plain(name, value)]
    return "\n".join(lines) + "\n"


def odd_variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that no environment file carries unharmed: the launch script sets them."""
    return {name: value for name, value in env.items() if not is_plain(name, value)}


def is_plain(name: str, value: str) -> bool:
    """Whether all three readers take the line to mean this name and this value."""
    return _PLAIN_NAME.fullmatch(name) is not None and _ODD.search(value) is None
