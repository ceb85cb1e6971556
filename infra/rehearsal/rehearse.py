"""The whole job on this machine: production rooms, with a lab, an emulated cloud and simulated engines outside."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack
from infra.errors import InfraError, PrerequisiteError, Problem, ProblemsFound
from infra.inventory.ansible_file import read_inventory
from infra.plan.compile import address_book, analyse_stack, compile_plan, compile_stack
from infra.plan.process import Plan
from infra.rehearsal.breaking import Installed, files_of, parse_break, spoil
from infra.rehearsal.checkpoints import MANIFEST, checkpoints_of
from infra.rehearsal.cloud.deployment import provision_in_emulated_cloud
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.errors import explain
from infra.rehearsal.lent_programs import compile_lent_programs
from infra.rehearsal.operating import Operator, operator_at_work
from infra.rehearsal.real_engines import engine_environment, has_real_engines, look
from infra.rehearsal.report import STEPS, Report, Step, StepName, counted
from infra.rehearsal.served import last_by_role, read_served
from infra.rehearsal.simulated_hosts import (
    LOGIN,
    Pace,
    simulate_hosts,
)
from infra.render.host_paths import unit_name
from infra.render.inventory_file import inventory_from_outputs, inventory_from_plan, inventory_text
from infra.render.wanted_tuning import Tuning
from infra.spec.load import LoadedStack
from infra.spec.stack import Tuning as SpecTuning

Say = Callable[[str], None]

RECORD = "rehearsal.json"
HOSTS_READY_S = 60.0
LAST_LINES = 10
# Of this machine's disk, wherever a step meets it.
FULL = (errno.ENOSPC, errno.EDQUOT)
PLATFORMS_TO_COME = ("aws-eks", "existing-kubernetes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a rehearsal is asked for.

    Args:
        stack: the stack, None with `plan`.
        plan: a plan document to rehearse as it is, None with `stack`.
        plan_file: its name for messages.
        to_step: the last step.
        spoilt: `PROCESS:KIND` to break between install and start, None for nothing.
        pace: how fast simulated time runs.
    """

    stack: LoadedStack | None
    plan: Plan | None
    plan_file: str
    to_step: StepName
    spoilt: str | None
    pace: Pace


class StepFailed(InfraError):
    """A step failed; `cause` is its error, and its exit code is that of the rehearsal."""

    def __init__(self, step: StepName, cause: InfraError) -> None:
        """Take the words of the cause."""
        super().__init__(cause.where, cause.what, cause.fix)
        self.exit_code = cause.exit_code
        self.step = step
        self.cause = cause

    def __str__(self) -> str:
        """Which step, then the cause's own words."""
        return f"{self.step}: {self.cause}"


@dataclass(slots=True)
class Rehearsal:
    """One rehearsal while it runs. Steps fill `report`; the lab's folder holds everything that is written."""

    wishes: Wishes
    lab: Lab
    catalog: Catalog
    report: Report
    say: Say
    resources: contextlib.ExitStack
    plan: Plan | None = None
    operator: Operator | None = None

    def run(self) -> None:
        """Go through the steps, up to the wished one.

        Raises:
            StepFailed: a step failed; what it had put into the report stays there.
        """
        steps: dict[StepName, Callable[[], tuple[bool, str]]] = {
            "check": self._check,
            "plan": self._plan,
            "provision": self._provision,
            "hosts": self._hosts,
            "weights": self._weights,
            "tune": self._tune,
            "start": self._start,
            "verify": self._verify,
        }
        for name in STEPS:
            self._take(name, steps[name])
            if name == self.wishes.to_step:
                return

    def current_plan(self) -> Plan:
        """The plan of the steps that come after `plan`."""
        if self.plan is None:
            message = "the plan step has not run"
            raise AssertionError(message)
        return self.plan

    def inventory_path(self) -> Path:
        """The inventory that every step after `provision` uses."""
        return self.lab.directory / "inventory.yml"

    def last_words(self, where: str) -> dict[str, list[str]]:
        """The last lines of the journals of the processes that an error names, by process id."""
        found: dict[str, list[str]] = {}
        for process in self.plan.processes if self.plan is not None else ():
            if process.id in where.replace(",", " ").split():
                unit = unit_name(self.current_plan().stack, process)
                words = ["journalctl", "--no-pager", "-o", "cat", "-n", str(LAST_LINES), "-u", unit]
                with contextlib.suppress(InfraError):
                    said = self.lab.run(process.host, words).stdout.decode(errors="replace")
                    found[process.id] = said.splitlines()
        return found

    def _take(self, name: StepName, step: Callable[[], tuple[bool, str]]) -> None:
        begun = time.monotonic()
        try:
            simulated, detail = self._with_room(step)
        except InfraError as error:
            self._note(name, begun, simulated=False, ok=False, detail=str(error))
            raise StepFailed(name, error) from error
        self._note(name, begun, simulated=simulated, ok=True, detail=detail)

    def _with_room(self, step: Callable[[], tuple[bool, str]]) -> tuple[bool, str]:
        """Take a step; a full disk under the lab is a prerequisite that is missing."""
        try:
            return step()
        except OSError as error:
            if error.errno in FULL:
                raise explain(error, str(self.lab.directory)) from error
            raise

    def _note(
        self, name: StepName, begun: float, *, simulated: bool, ok: bool, detail: str
    ) -> None:
        seconds = time.monotonic() - begun
        self.report.steps.append(
            Step(name=name, seconds=seconds, simulated=simulated, ok=ok, detail=detail)
        )
        if ok:
            self.say(f"{name:<9} {seconds:5.1f} s  {detail}")

    def _check(self) -> tuple[bool, str]:
        """The rules that need no host, on documentation addresses or on the plan as given."""
        wishes = self.wishes
        if wishes.plan is not None:
            self.plan = wishes.plan
            # A plan that is given is rehearsed even when the rules refuse it: that is how it is judged.
            return False, self._told(judge_plan(wishes.plan, wishes.plan_file, self.catalog))
        stack = self._stack()
        if stack.spec.platform in PLATFORMS_TO_COME:
            what = f"Rehearsals of {stack.spec.platform} are not there yet."
            raise PrerequisiteError(
                f"{stack.file} platform", what, "Use aws-ec2 or existing-hosts."
            )
        resolved, topology, problems = analyse_stack(stack, self.catalog)
        if resolved is not None and topology is not None:
            book = address_book(topology, None)
            self.plan = compile_plan(resolved, topology, book, self.catalog)
            problems = (*problems, *judge_stack(self.plan, stack, self.catalog))
        if errors := tuple(problem for problem in problems if problem.blocks):
            raise ProblemsFound(errors)
        return False, self._told(problems)

    def _told(self, problems: tuple[Problem, ...]) -> str:
        """Show every problem; how many there are."""
        for problem in problems:
            self._detail(f"{problem.severity}: {problem}")
        return _counted(problems)

    def _plan(self) -> tuple[bool, str]:
        plan = self.current_plan()
        engines = sum(process.kind == "engine" for process in plan.processes)
        if self.wishes.spoilt is not None:
            parse_break(self.wishes.spoilt, plan)
        if self._has_real_engines():
            engine_environment(plan)  # nothing is started where it is not installed
        return False, (
            f"{plan.stack}: {counted(engines, 'engine process', 'es')} on {counted(len(plan.hosts), 'host')}"
        )

    def _provision(self) -> tuple[bool, str]:
        plan = self.current_plan()
        ssh_arguments = ("-F", str(self.lab.ssh_config))
        if self.wishes.plan is not None or plan.platform != "aws-ec2":
            self._write_inventory(
                inventory_from_plan(plan, user=LOGIN, ssh_arguments=ssh_arguments)
            )
            why = (
                "the plan's own addresses"
                if self.wishes.plan is not None
                else f"{plan.platform}: nothing to provision"
            )
            return False, why
        stack = self._stack()
        result = provision_in_emulated_cloud(
            stack.name,
            self.lab.directory / "pulumi",
            spec_file=self._written_stack(stack),
            config={"ssh_user": LOGIN},
            say=self._detail,
        )
        self.report.pulumi_dir = str(result.pulumi_dir)
        self.report.pulumi_env = result.pulumi_env
        self._write_inventory(inventory_from_outputs(result.outputs, ssh_arguments=ssh_arguments))
        inventory = read_inventory(self.inventory_path())
        self.plan = compile_stack(stack, catalog=self.catalog, inventory=inventory).plan
        return True, (
            f"real Pulumi engine, emulated AWS: {counted(len(inventory.hosts), 'instance')}"
        )

    def _written_stack(self, stack: LoadedStack) -> Path:
        """The stack as one file, `extends` and `--set` applied: what the provisioning program reads."""
        path = self.lab.directory / f"{stack.name}.yaml"
        values = stack.spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        return path

    def _hosts(self) -> tuple[bool, str]:
        plan = self.current_plan()
        compile_lent_programs(plan, self.catalog)
        self.lab.boot(simulate_hosts(plan, self.catalog, self.wishes.pace))
        self.report.ssh_config = str(self.lab.ssh_config)
        for notice in self.lab.notices:
            self._detail(notice)
        statuses = self.lab.wait_ready(HOSTS_READY_S)
        return True, (
            f"{counted(len(statuses), 'simulated host')}, each with its own systemd and sshd"
        )

    def _weights(self) -> tuple[bool, str]:
        plan = self.current_plan()
        found = checkpoints_of(plan, self.catalog)
        gigabytes = sum(sum(checkpoint.weight_files.values()) for checkpoint in found) / 1e9
        self._at_work().prove_weights()
        if not gigabytes:
            size = sum(len(content) for each in found for content in each.contents.values())
            return False, (
                f"{size / 1e6:.1f} MB of random weights on every host, proven against {MANIFEST}"
            )
        return True, f"{gigabytes:.0f} GB in sparse files on every host, proven against {MANIFEST}"

    def _tune(self) -> tuple[bool, str]:
        return True, self._at_work().tune()

    def _start(self) -> tuple[bool, str]:
        operator = self._at_work()
        operator.install()
        if self.wishes.spoilt is not None:
            self._detail(f"broken: {self._spoil(self.wishes.spoilt)}")
        detail = operator.start()
        self.report.first_token_s = seconds_of_this_process()
        if not self._has_real_engines():
            self.report.served_by = last_by_role(read_served(self.lab, self.current_plan()))
            return True, detail
        seen = look(self.lab, self.current_plan())
        self.report.served_by = seen.answered
        return False, f"{detail}; {counted(seen.transfers, 'KV cache')} fetched over NIXL"

    def _verify(self) -> tuple[bool, str]:
        return not self._has_real_engines(), self._at_work().verify()

    def _has_real_engines(self) -> bool:
        return has_real_engines(self.current_plan(), self.catalog)

    def _spoil(self, text: str) -> str:
        plan = self.current_plan()
        broken = parse_break(text, plan)
        host = broken.process.host
        launch, environment = files_of(plan.stack, broken.process)
        installed = Installed(
            launch=self.lab.read_file(host, launch).decode(),
            environment=self.lab.read_file(host, environment).decode(),
        )
        spoilt, done = spoil(broken, installed, plan)
        self.lab.write_file(host, launch, spoilt.launch.encode(), 0o755)
        self.lab.write_file(host, environment, spoilt.environment.encode())
        return f"{broken.process.id}: {done}"

    def _at_work(self) -> Operator:
        """The operator, connected once and kept to the end."""
        if self.operator is None:
            plan, chosen = (
                self.current_plan(),
                self.wishes.stack.spec.tuning if self.wishes.stack else None,
            )
            tuning = Tuning(
                profile=self.catalog.tuning(plan.tuning),
                enable=chosen.enable if isinstance(chosen, SpecTuning) else (),
            )
            inventory = read_inventory(self.inventory_path())
            self.operator = self.resources.enter_context(
                operator_at_work(plan, inventory, self.catalog, tuning, self._detail)
            )
        return self.operator

    def _detail(self, line: str) -> None:
        self.say(f"            {line}")

    def _stack(self) -> LoadedStack:
        if self.wishes.stack is None:
            message = "a rehearsal of a plan has no stack"
            raise AssertionError(message)
        return self.wishes.stack

    def _write_inventory(self, document: dict[str, object]) -> None:
        self.inventory_path().write_text(inventory_text(document), encoding="utf-8")
        self.report.inventory = str(self.inventory_path())


def keep_record(rehearsal: Rehearsal) -> None:
    """Leave the report beside a kept lab, for `--list`."""
    path = rehearsal.lab.directory / RECORD
    path.write_text(json.dumps(rehearsal.report.document()) + "\n", encoding="utf-8")


def seconds_of_this_process() -> float:
    """Seconds since this operating-system process was started, imports included."""
    with Path("/proc/self/stat").open(encoding="ascii") as file:
        started_ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def _counted(problems: tuple[Problem, ...]) -> str:
    errors = sum(problem.blocks for problem in problems)
    warnings = len(problems) - errors
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
