"""What an operator types to run something on a host: quoted for the shell here, so that the one there gets it whole."""

from __future__ import annotations

import shlex


def ssh_command(host: str, script: str) -> str:
    """The command for `script`, a line of the host's shell; one word of it where the shell here would take it apart."""
    is_plain = shlex.join(script.split()) == script
    return f"ssh {host} {script if is_plain else shlex.quote(script)}"
