"""The action `moe_agent`: one request to a host's agent, as `fab` sends it, and its report in Ansible's words.

The agent travels on standard input in one execution: nothing is copied to the host, and no secret stands in a
task's arguments, an argument vector or a result. Options are described in ../library/moe_agent.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleActionSkip  # type: ignore[import-untyped]
from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]
from ansible.utils.display import Display  # type: ignore[import-untyped]

PROJECT = str(Path(__file__).resolve().parents[2])
if PROJECT not in sys.path:  # the project need not be installed where Ansible is
    sys.path.append(PROJECT)

from infra.errors import InfraError, PrerequisiteError  # noqa: E402
from infra.launch.fleet import SystemClock  # noqa: E402
from infra.launch.rendered.host import read_rendered  # noqa: E402
from infra.launch.rendered.work import OPERATIONS, HostAtWork, Wish  # noqa: E402
from infra.launch.secret import Secret  # noqa: E402
from infra.remote.agent_call import agent_command, agent_input, read_answer  # noqa: E402
from infra.remote.outcome import Outcome  # noqa: E402
from infra.tasks.stack_secrets import given_or_read  # noqa: E402

Values = dict[str, Any]
OPTIONS = {
    "rendered": {"type": "path", "required": True},
    "operation": {"type": "str", "choices": [*OPERATIONS], "required": True},
    "mode": {"type": "str", "choices": ["apply", "rollback"], "default": "apply"},
    "allow": {
        "type": "list",
        "elements": "str",
        "choices": ["drain", "running", "reboot"],
        "default": [],
    },
    "kind": {"type": "str", "choices": ["engine", "router", "edge"], "default": "engine"},
    "lease": {"type": "str"},
    "since": {"type": "float"},
    "ready_s": {"type": "float", "default": 1800.0},
}


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible publishes no types
    """Asks the agent of one host."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: object = None, task_vars: Values | None = None) -> Values:
        """The result of the task."""
        variables = task_vars or {}
        result: Values = super().run(tmp, variables)
        _, options = self.validate_argument_spec(argument_spec=OPTIONS)
        folder = Path(options.pop("rendered"))
        wish = Wish(**options, checks=self._task.check_mode, diff=bool(self._task.diff))
        try:
            host = read_rendered(folder, variables["inventory_hostname"])
            if host is None:
                raise AnsibleActionSkip("No process of the plan is on this host.")
            work = HostAtWork(
                host=host,
                ask=partial(self._ask, host.state.host),
                secrets=lambda: self._secrets(host.plan.secrets, variables),
                watch_key=lambda: self._watch_key(variables),
                say=lambda line: Display().display(f"{host.state.host}: {line}"),
                clock=SystemClock(),
            )
            result.update(OPERATIONS[wish.operation](work, wish))
        except InfraError as error:
            raise AnsibleActionFail(str(error)) from error
        return result

    def _secrets(self, references: Mapping[str, Any], variables: Values) -> dict[str, Secret]:
        """From the variable `moe_secrets` (a vault's, perhaps), else from where the stack says."""
        given = self._templar.template(variables.get("moe_secrets") or {})
        return given_or_read(given, references)

    def _watch_key(self, variables: Values) -> Secret:
        """What the play has made once for all hosts of this run: `moe_watch_key`.

        Raises:
            PrerequisiteError: it has not.
        """
        key = str(self._templar.template(variables.get("moe_watch_key") or ""))
        if re.fullmatch("[0-9a-f]{64}", key):
            return Secret(key)
        what = "The variable moe_watch_key is not set, so that watchers of the hosts could not know each other."
        fix = "Make 64 hex digits once for all hosts before `operation: watch`, as ansible/launch.yml does."
        raise PrerequisiteError("operation watch", what, fix)

    def _ask(self, name: str, request: Values, *, timeout_s: float) -> Values:
        """The agent's report; of a host that cannot be reached, Ansible tells by itself.

        Raises:
            HostsFailed: there is no report, or it is an error.
        """
        done = self._low_level_execute_command(
            agent_command(sudo=False, mode="piped"),
            in_data=agent_input(request, timeout_s=timeout_s),
        )
        stdout, stderr = done["stdout"].encode(), done["stderr"].encode()
        return read_answer(name, Outcome(exit_code=done["rc"], stdout=stdout, stderr=stderr))
