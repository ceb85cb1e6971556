"""Where everything of a stack lies on a host, and what its units and containers are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.errors import StackError
from infra.plan.grammar import is_process_id, is_variable, shown
from infra.spec.stack_files import STACK_NAME

if TYPE_CHECKING:  # commands that only read what hosts hold need none of the compiler
    from infra.plan.process import Process

UNIT_FOLDER = "/etc/systemd/system"
ROUTER_ENVIRONMENTS = "/opt/moe-infra/routers"
ENGINE_ENVIRONMENTS = "/opt/moe-infra/engines"
CONTAINER_SECRETS = "/run/secrets"


def stack_folder(stack: str) -> str:
    """The folder of a stack's files.

    Raises:
        StackError: the name cannot be part of a path and of a unit.
    """
    if not STACK_NAME.fullmatch(stack):
        raise StackError(
            f"stack {stack!r}",
            "The name becomes part of paths and units: letters, digits, `.`, `_` and `-`, at most 64.",
            "Rename the stack file.",
        )
    return f"/etc/moe-infra/{stack}"


def process_index(process: Process) -> int:
    """The number of a process on its host, counted per kind.

    Raises:
        StackError: its id names none; the plan has not passed the gate.
    """
    if not is_process_id(process.id):
        raise StackError("a process", f"{shown(process.id)} is no id of one.", "Write HOST/INDEX.")
    return int(process.id.rpartition("/")[2])


def process_folder(stack: str, process: Process) -> str:
    """The folder of one process's environment and launch script."""
    return f"{stack_folder(stack)}/{process.kind}-{process_index(process)}"


def release_path(stack: str) -> str:
    """The record of what `up` put on the host."""
    return f"{stack_folder(stack)}/release.json"


def credentials_folder(stack: str) -> str:
    """The folder of the stack's secrets, which root alone can read."""
    return f"{stack_folder(stack)}/credentials"


def credential_path(stack: str, secret: str) -> str:
    """The file that systemd reads a credential from.

    Raises:
        StackError: the secret's name cannot be part of a path and of a unit.
    """
    if not is_variable(secret):
        what = f"{shown(secret)} is no name of a secret."
        raise StackError(
            f"stack {stack} secrets", what, "Use letters, digits and `_`, no digit first."
        )
    return f"{credentials_folder(stack)}/{secret}"


def cache_folder(stack: str) -> str:
    """What engines of the stack compiled (agent/caches.py): below `compile` by accelerator and image."""
    stack_folder(stack)  # a name that is no path is refused
    return f"/var/cache/moe-infra/{stack}"


def router_credentials(stack: str, index: int | str) -> str:
    """The folder of copies of secrets that a router's own user may read, while the router runs."""
    return f"/run/moe-{stack}-router-{index}"


def edge_secrets_folder(stack: str) -> str:
    """Copies of the edge's secrets that its own user may read, while the edge runs."""
    return f"/run/moe-{stack}-edge.secrets"


def unit_template(stack: str, kind: str) -> str:
    """The name of the template unit of one kind of process, with `%s` for the instance."""
    return f"moe-{stack}-{kind}@%s.service"


def unit_name(stack: str, process: Process) -> str:
    """The unit of one process."""
    return unit_template(stack, process.kind) % process_index(process)


def cleanup_unit(stack: str) -> str:
    """The unit that removes the containers of a stack from a host."""
    return f"moe-{stack}-cleanup.service"


def stack_slice(stack: str) -> str:
    """The slice of everything that runs of a stack; `-` would make a slice within a slice."""
    return f"moe_infra-{stack.replace('-', '_')}.slice"


def slice_path(stack: str) -> str:
    """The control group of a stack's slice, which lies in that of its first word (systemd.slice(5))."""
    name = stack_slice(stack)
    return f"/{name.partition('-')[0]}.slice/{name}"


def metadata_unit(stack: str) -> str:
    """The unit that keeps a stack's processes from the metadata service of a cloud."""
    return f"moe-{stack}-metadata.service"


def metadata_rules(stack: str) -> str:
    """The rules that it loads."""
    return f"{stack_folder(stack)}/metadata.nft"


def metadata_guard(stack: str) -> str:
    """The script that loads them, or says why nothing of the stack may start."""
    return f"{stack_folder(stack)}/metadata-guard"


def watch_unit(stack: str) -> str:
    """The unit that watches a stack's groups on a host."""
    return f"moe-{stack}-watch.service"


def watch_program(stack: str) -> str:
    """The watcher as it lies on a host."""
    return f"{stack_folder(stack)}/watch/program"


def watch_config(stack: str) -> str:
    """What the watcher is told."""
    return f"{stack_folder(stack)}/watch/groups.json"


def firewall_unit(stack: str) -> str:
    """The unit that closes a host at boot."""
    return f"moe-{stack}-firewall.service"


def firewall_path(stack: str) -> str:
    """The table that it loads: the one that was kept last (agent/kinds/firewall.py)."""
    return f"/var/lib/moe-infra/firewall/{stack}.nft"


def container_name(stack: str, process: Process) -> str:
    """The container of one process."""
    return f"moe-{stack}-{process.kind}-{process_index(process)}"


def trial_name(stack: str, group: str) -> str:
    """What a group's collective is called while it runs: its container, and its unit without `.service`."""
    return f"moe-{stack}-collective-{group.replace('/', '-')}"
