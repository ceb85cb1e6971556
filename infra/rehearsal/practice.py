"""What a kept rehearsal is good for: a file that a shell reads, and what to type to practise operations."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from infra.plan.process import Plan
from infra.rehearsal.report import Report
from infra.render.host_paths import unit_name

ENV_FILE = "env.sh"
# Of the emulated cloud's whole environment, what a shell keeps as it is.
_OF_THE_SHELL = ("HOME", "LANG")


def env_text(report: Report, chosen: Mapping[str, str], *, searched: str) -> str:
    """The text of `env.sh`: what has `fab` work on the rehearsal, and `pulumi` on its cloud.

    Args:
        report: of the rehearsal.
        chosen: variables that choose its stack and inventory; {} where no task takes them.
        searched: the PATH of whoever rehearses, which the cloud's programs go before.
    """
    lines = [
        f"# Rehearsal {report.id} of {report.stack}; `fab rehearse --stop {report.id}` ends it."
    ]
    cloud = {k: v for k, v in report.pulumi_env.items() if k not in (*_OF_THE_SHELL, "PATH")}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in {**chosen, **cloud}.items()]
    known = searched.split(os.pathsep)
    programs = [p for p in report.pulumi_env.get("PATH", "").split(os.pathsep) if p not in known]
    if any(programs):
        lines.append(f'export PATH={shlex.quote(os.pathsep.join(programs))}:"$PATH"')
    return "\n".join(lines) + "\n"


def practice(plan: Plan, *, is_started: bool) -> Sequence[str]:
    """Lines that say how operations are practised, each with its commands.

    Args:
        plan: what runs.
        is_started: whether its processes run; else that is what comes first.
    """
    engine = next(process for process in plan.processes if process.kind == "engine")
    kill = f"ssh {engine.host} sudo systemctl kill -s KILL {unit_name(plan.stack, engine)}"
    return (
        *(() if is_started else ("  start:     `fab up`",)),
        "  look:      `fab status`, `fab logs --follow`, `fab verify`",
        f"  break:     `{kill}`, then `fab status --watch`",
        "  restart:   `fab restart --rolling`",
        "  upgrade:   `fab diff --set FIELD=VALUE`, then `fab up --set FIELD=VALUE --replace`",
        "  go back:   `fab up --release HASH`, with the hash of the line `replacing …`",
        "  evidence:  `fab bundle`",
        "  remove:    `fab down`, then `fab tune-hosts --rollback`",
    )
