"""Whether a connection is a tunnel of AWS Session Manager to one instance: then first contact proves the host."""

from __future__ import annotations

import itertools
import shlex
from pathlib import PurePath

_DOCUMENT = "AWS-StartSSHSession"


def leads_to(command: str | None, instance_id: str | None) -> bool:
    """Whether a ProxyCommand is a Session Manager tunnel to this very instance.

    Such a tunnel runs inside TLS to AWS, is opened by the operator's own IAM identity, and ends at the agent of
    the instance that its id names, which dials its own sshd: nobody stands between who could show another key.
    Ids are never given out again, so a key that is pinned under one stays right
    (docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-getting-started-enable-ssh-connections.html).

    Args:
        command: the ProxyCommand, None for none.
        instance_id: the inventory's `moe.instance_id`, None for none.
    """
    if command is None or not instance_id:
        return False
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    if not words or PurePath(words[0]).name != "aws" or words[1:3] != ["ssm", "start-session"]:
        return False
    given = dict(itertools.pairwise(words[3:]))
    return given.get("--target") == instance_id and given.get("--document-name") == _DOCUMENT
