"""Fabric's program as one of ours: `-H`, and what else is Fabric's on the command line."""

from __future__ import annotations

from pathlib import Path

import fabric
from fabric.main import Fab
from paramiko.ssh_exception import ConfigParseError

from infra.spec.present import is_file
from infra.spec.text_file import read_text
from infra.tasks.program import OwnSettings, TableProgram, refuse, task_collection

# What Fabric's own options would promise and no task of ours can keep.
NOT_OURS = {
    "dry": "`fab diff` and `fab tune-hosts --check` say what would change, and change nothing.",
    "prompt-for-sudo-password": "Type --ask-sudo-password after the task.",
    "prompt-for-login-password": "Hosts are reached with keys; -i names one beside -H, an inventory for its hosts.",
    "prompt-for-passphrase": "Add the key to ssh-agent: `ssh-add PATH`.",
    "connect-timeout": "A host has a limit of its own; ConnectTimeout in an ssh_config sets another.",
    "command-timeout": "Tasks have limits of their own, and say what they wait for.",
    "config": "Tasks read stacks, inventories and ssh_configs, and no configuration of Fabric's.",
}
# What only says how the hosts of -H are reached, and where an inventory says it.
WITH_HOSTS = {
    "identity": (
        "-i",
        "An inventory is named with --inventory FILE; a key stands there as ansible_ssh_private_key_file.",
    ),
    "ssh-config": ("-S", "Set ansible_ssh_common_args: -F PATH in the inventory."),
}


class _FabricSettings(OwnSettings, fabric.Config):  # type: ignore[misc]  # fabric publishes no types
    """Fabric's defaults, and the ssh_config of -S."""


class FabricProgram(TableProgram, Fab):  # type: ignore[misc]  # fabric publishes no types
    """`fab` as Fabric ships it, with the list and the exit codes of ours."""

    def update_config(self, merge: bool = True) -> None:  # noqa: FBT001, FBT002 - as Invoke has it
        """Read configuration files; one that -S names and that is not there leaves with 2."""
        del merge
        for name, fix in NOT_OURS.items():
            if self.tasks and self.args[name].value:
                refuse(f"--{name} is Fabric's, and no task here does what it says.", fix)
        for name, (flag, fix) in WITH_HOSTS.items():
            if self.tasks and self.args[name].value and not self.args["hosts"].value:
                refuse(f"{flag} says how the hosts of -H are reached, and there is no -H.", fix)
        named = self.args["ssh-config"].value
        if named and not is_file(Path(named).expanduser()):
            refuse(f"There is no ssh_config {named}.", "Correct -S.")
        try:
            if named:
                read_text(Path(named).expanduser())
            super().update_config()  # Fabric's takes nothing, and merges
        except (OSError, UnicodeDecodeError, ConfigParseError) as error:
            refuse(f"The ssh_config {named} cannot be read: {error}.", "Correct it, or -S.")

    def execute(self) -> None:
        """Run the tasks."""
        if self.args["hosts"].value and self.tasks:
            self._hand_hosts_to_tasks()
        super().execute()

    def _hand_hosts_to_tasks(self) -> None:
        """Give -H, -i and -S to tasks that take hosts by name; Fabric would run the task once per host."""
        for context in self.tasks:
            if "hosts" not in context.args:
                refuse(
                    f"{context.name} takes its hosts from --inventory.",
                    "-H is for `fab -H HOST tune-hosts`.",
                )
            if context.args["hosts"].value:
                refuse("-H and --hosts both name hosts.", "Leave one of them out.")
            context.args["hosts"].value = self.args["hosts"].value
            for path in self.args["identity"].value:
                context.args["identity"].value = path
            if self.args["ssh-config"].value:
                context.args["ssh-config"].value = self.args["ssh-config"].value
        self.args["hosts"].value = ""


def fabric_program() -> FabricProgram:
    """The program of the table's tasks with Fabric's options; like Fabric's, but that it looks for no `fabfile.py`."""
    return FabricProgram(
        name="Fabric",
        version=fabric.__version__,
        namespace=task_collection(),
        config_class=_FabricSettings,
    )
