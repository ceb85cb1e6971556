"""The whole job on this machine: production rooms, with a lab, an emulated cloud and simulated engines outside."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.catalog.load import Catalog
from infra.checks.judge import judge_plan, judge_stack, never_made, without_consequences
from infra.errors import InfraError, Problem, ProblemsFound, StackError
from infra.inventory.ansible_file import read_inventory
from infra.inventory.hosts import InventoryHost
from infra.plan.compile import address_book, analyse_stack, compile_plan, compile_stack
from infra.plan.process import Plan
from infra.rehearsal.breaking import Installed, files_of, parse_break, spoil
from infra.rehearsal.checkpoints import MANIFEST, checkpoints_of
from infra.rehearsal.cloud.deployment import provision_in_emulated_cloud
from infra.rehearsal.in_pods import InPods, of_the_cluster
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.errors import explain
from infra.rehearsal.lent_programs import compile_lent_programs
from infra.rehearsal.operating import Operator, operator_at_work, ways_in
from infra.rehearsal.pulumi_project import write_stack
from infra.rehearsal.real_engines import engine_environment, has_real_engines, look
from infra.rehearsal.report import (
    STEPS,
    Report,
    Step,
    StepFailed,
    StepName,
    counted,
    seconds_of_this_process,
)
from infra.rehearsal.served import last_by_role, read_served
from infra.rehearsal.simulated_hosts import LOGIN, simulate_hosts
from infra.rehearsal.staged_weights import with_staged_weights
from infra.rehearsal.wishes import Wishes
from infra.render.host_paths import unit_name
from infra.render.inventory_file import inventory_from_outputs, inventory_from_plan, inventory_text
from infra.render.wanted_tuning import Tuning
from infra.spec.load import LoadedStack
from infra.spec.stack import CLOUD_NAMES, CLOUDS, KUBERNETES

Say = Callable[[str], None]
Reach = Callable[[Mapping[str, InventoryHost]], None]

HOSTS_READY_S = 60.0
LAST_LINES = 10
# Of this machine's disk, wherever a step meets it.
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Rehearsal:
    """One rehearsal while it runs. Steps fill `report`; the lab's folder holds everything that is written.

    Args:
        say: told about progress.
        reach: told the hosts as soon as there are some, by the plan's names, and how each is reached.
    """

    wishes: Wishes
    lab: Lab
    catalog: Catalog
    report: Report
    say: Say
    reach: Reach
    resources: contextlib.ExitStack
    plan: Plan | None = None
    operator: Operator | None = None
    pods: InPods | None = None

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
            if name == "provision" and self.current_plan().platform in KUBERNETES:
                steps.update(self._steps_in_pods())
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
        if self.pods is not None:
            return self.pods.last_words(where)
        found: dict[str, list[str]] = {}
        for process in self.plan.processes if self.plan is not None else ():
            if process.id in where.replace(",", " ").split():
                unit = unit_name(self.current_plan().stack, process)
                words = ["journalctl", "--no-pager", "-o", "cat", "-n", str(LAST_LINES), "-u", unit]
                with contextlib.suppress(InfraError):
                    said = self.lab.run(process.host, words).stdout.decode(errors="replace")
                    found[process.id] = said.splitlines()
        return found

    def _in_pods(self) -> InPods:
        if self.pods is None:
            message = "these processes are not in pods"
            raise AssertionError(message)
        return self.pods

    def _steps_in_pods(self) -> dict[StepName, Callable[[], tuple[bool, str]]]:
        """What else is done where Kubernetes starts the processes."""
        pods = InPods(
            stack=self._stack(),
            plan=self.current_plan(),
            lab=self.lab,
            catalog=self.catalog,
            report=self.report,
            say=self._detail,
            resources=self.resources,
        )
        self.pods = pods
        return {
            "provision": of_the_cluster(self._provision_pods),
            "tune": of_the_cluster(lambda: (True, pods.tune())),
            "start": of_the_cluster(self._start_pods),
            "verify": of_the_cluster(lambda: (True, pods.verify())),
        }

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
            if wishes.plan.platform in KUBERNETES:
                what = "A plan does not say what its pods are made of."
                fix = f"Rehearse its stack: fab rehearse --stack {wishes.plan.stack}"
                raise StackError(wishes.plan_file, what, fix)
            self.plan, moved = with_staged_weights(wishes.plan, self.catalog)
            for told, folder in moved.items():
                self._detail(f"simulated hosts hold {told} at {folder}: their commands say so")
            if wrong := never_made(wishes.plan, wishes.plan_file, self.catalog):
                raise ProblemsFound(wrong)
            # A plan that is given is rehearsed even when the other rules refuse it: that is how it is judged.
            return False, self._told(judge_plan(wishes.plan, wishes.plan_file, self.catalog))
        stack = self._stack()
        resolved, topology, problems = analyse_stack(stack, self.catalog)
        if resolved is not None and topology is not None:
            book = address_book(topology, None)
            self.plan = compile_plan(resolved, topology, book, self.catalog)
            found = judge_stack(self.plan, stack, self.catalog)
            problems = without_consequences(problems, found)
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
            if plan.platform in KUBERNETES:
                what = f"On {plan.platform} nothing is installed on hosts that could be broken."
                raise StackError("--break", what, "Leave it out, or take another platform.")
            parse_break(self.wishes.spoilt, plan)
        if self._has_real_engines():
            engine_environment(plan)  # nothing is started where it is not installed
        return False, (
            f"{plan.stack}: {counted(engines, 'engine process', 'es')} on {counted(len(plan.hosts), 'host')}"
        )

    def _provision(self) -> tuple[bool, str]:
        plan = self.current_plan()
        cloud = None if plan.platform in KUBERNETES else CLOUDS.get(plan.platform)
        if self.wishes.plan is not None or cloud is None:
            self._write_inventory_of_plan()
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
            spec_file=write_stack(stack, self.lab.directory),
            config={"ssh_user": LOGIN} if cloud == "aws" else {},
            say=self._detail,
        )
        self.report.pulumi_dir = str(result.pulumi_dir)
        self.report.pulumi_env = result.pulumi_env
        own = inventory_from_outputs(result.outputs, ssh_arguments=self._ssh_arguments())
        self._write_inventory(own)
        inventory = read_inventory(self.inventory_path())
        self.plan = compile_stack(stack, catalog=self.catalog, inventory=inventory).plan
        return True, (
            f"real Pulumi engine, emulated {CLOUD_NAMES[cloud]}: {counted(len(inventory.hosts), 'instance')}"
        )

    def _provision_pods(self) -> tuple[bool, str]:
        """Pods in a cluster; from here on the plan is that of their hosts here."""
        detail = self._in_pods().provision()
        self.plan = self._in_pods().lab_plan()
        self._write_inventory_of_plan()
        return True, detail

    def _start_pods(self) -> tuple[bool, str]:
        detail = self._in_pods().start()
        self.report.first_token_s = seconds_of_this_process()
        self.report.served_by = last_by_role(read_served(self.lab, self.current_plan()))
        return True, detail

    def _hosts(self) -> tuple[bool, str]:
        plan = self.current_plan()
        compile_lent_programs(plan, self.catalog)
        hosts = simulate_hosts(
            plan, self.catalog, self.wishes.pace, has_asides=self.wishes.plan is None
        )
        self.lab.boot(hosts, strangers=self.wishes.strangers)
        self.report.ssh_config = str(self.lab.ssh_config)
        self.reach(ways_in(read_inventory(self.inventory_path()), self._ssh_arguments()))
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
            plan, stack = self.current_plan(), self.wishes.stack
            tuning = Tuning(
                profile=self.catalog.tuning(plan.tuning),
                enable=stack.spec.enabled_tuning if stack else (),
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

    def _ssh_arguments(self) -> tuple[str, str]:
        return ("-F", str(self.lab.ssh_config))

    def _write_inventory_of_plan(self) -> None:
        arguments = self._ssh_arguments()
        own = inventory_from_plan(self.current_plan(), user=LOGIN, ssh_arguments=arguments)
        self._write_inventory(own)

    def _write_inventory(self, document: dict[str, object]) -> None:
        self.inventory_path().write_text(inventory_text(document), encoding="utf-8")
        self.report.inventory = str(self.inventory_path())


def _counted(problems: tuple[Problem, ...]) -> str:
    errors = sum(problem.blocks for problem in problems)
    warnings = len(problems) - errors
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
