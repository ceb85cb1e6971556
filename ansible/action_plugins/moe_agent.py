"""The action `moe_agent`: one request to a host's agent, as `fab` sends it, and its report in Ansible's words.

The agent travels on standard input in one execution: nothing is copied to the host, and no secret stands in a
task's arguments, an argument vector or a result. Options are described in ../library/moe_agent.py.
"""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleActionSkip  # type: ignore[import-untyped]
from ansible.plugins.action import ActionBase  # type: ignore[import-untyped]

PROJECT = str(Path(__file__).resolve().parents[2])
if PROJECT not in sys.path:  # the project need not be installed where Ansible is
    sys.path.append(PROJECT)

from infra.errors import InfraError  # noqa: E402
from infra.launch.rendered_host import Document, RenderedHost, read_rendered  # noqa: E402
from infra.launch.result_words import state_result  # noqa: E402
from infra.remote.agent_call import agent_command, agent_input, read_answer  # noqa: E402
from infra.remote.outcome import Outcome  # noqa: E402
from infra.tasks.stack_secrets import read_secrets  # noqa: E402

Values = dict[str, Any]
GROUPS = ["tuning", "files", "images", "weights"]
OPTIONS = {
    "rendered": {"type": "path", "required": True},
    "groups": {"type": "list", "elements": "str", "choices": GROUPS, "default": GROUPS},
    "mode": {"type": "str", "choices": ["apply", "check", "rollback"], "default": "apply"},
    "timeout_s": {"type": "float", "default": 60.0},
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
        try:
            name = variables["inventory_hostname"]
            host = read_rendered(Path(options["rendered"]), name)
            if host is None:
                message = f"No process of the plan is on {name}."
                raise AnsibleActionSkip(message)
            result.update(self._state(host, options, variables))
        except InfraError as error:
            raise AnsibleActionFail(str(error)) from error
        return result

    def _state(self, host: RenderedHost, options: Values, variables: Values) -> Values:
        """Look at groups of the host's state, bring them about, or take them back."""
        if self._task.check_mode and options["mode"] == "rollback":
            message = "What a rollback brings back is not told beforehand."
            raise AnsibleActionSkip(message)
        checks = self._task.check_mode or options["mode"] == "check"
        mode = "check" if checks else options["mode"]
        items = host.items(options["groups"], only_needed=False)
        secrets = self._secrets(host, items, variables)
        request = host.state_request(mode, options["groups"], items, secrets)
        report = self._ask(host, {**request, "diff": bool(self._task.diff)}, options["timeout_s"])
        return state_result(report["items"], checks=checks, strict=False)

    def _secrets(self, host: RenderedHost, items: Sequence[Document], variables: Values) -> Values:
        """By name: from the variable `moe_secrets` (a vault's, perhaps), else from where the stack says."""
        names = {item["secret"] for item in items if "secret" in item}
        given = self._templar.template(variables.get("moe_secrets") or {}) if names else {}
        read = read_secrets({name: host.stack["secrets"][name] for name in names - set(given)})
        return {
            **{name: str(given[name]) for name in names & set(given)},
            **{name: secret.reveal() for name, secret in read.items()},
        }

    def _ask(self, host: RenderedHost, request: Values, timeout_s: float) -> Values:
        """The agent's report; of a host that cannot be reached, Ansible tells by itself.

        Raises:
            HostsFailed: there is no report, or it is an error.
        """
        who = {"operator": f"{getpass.getuser()}@{socket.gethostname()}, Ansible"}
        done = self._low_level_execute_command(
            agent_command(sudo=False, holds_stdin=False),
            in_data=agent_input({**who, **request}, timeout_s=timeout_s),
        )
        stdout, stderr = done["stdout"].encode(), done["stderr"].encode()
        return read_answer(host.name, Outcome(exit_code=done["rc"], stdout=stdout, stderr=stderr))
