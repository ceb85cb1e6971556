"""`fab rehearse`: the whole job on this machine, or what is kept of earlier ones."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.plan.imported import read_plan
from infra.rehearsal.folders import new_folder, remove_forgotten_folders
from infra.rehearsal.lab.registry import LabEntry
from infra.rehearsal.lab.starting import list_labs, open_lab, stop_lab
from infra.rehearsal.practice import ENV_FILE, env_text, practice
from infra.rehearsal.real_engines import are_processors, has_real_engines
from infra.rehearsal.rehearse import Rehearsal
from infra.rehearsal.report import (
    RECORD,
    STEPS,
    Report,
    StepFailed,
    keep_record,
    not_shown,
    reality_rows,
)
from infra.rehearsal.simulated_hosts import Pace
from infra.rehearsal.wishes import Wishes
from infra.spec.nearest import nearest
from infra.spec.text_file import read_text
from infra.tasks.choice import same_choice
from infra.tasks.completion import Completion
from infra.tasks.default_stack import INVENTORY_VARIABLE, STACK_VARIABLE
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, AsWritten, Output, table
from infra.tasks.stack_options import chosen_stack
from infra.whole_file import write_whole

# Five minutes of an engine are six seconds; a load of half an hour is a third of a second.
PACE = Pace(time_scale=0.02, load_seconds=0.3)
# Of a log's line that is shown beside a failure, in characters; the whole of it is in the log.
LONGEST_LINE = 300


def run(options: Options, output: Output) -> int:
    """Rehearse; or list or stop what `--keep` left running."""
    if options.is_on("list"):
        return _list(output)
    stopped = options.text("stop")
    if stopped is not None:
        return _stop(stopped, output)
    return _rehearse(_wishes(options), options, output)


def _wishes(options: Options) -> Wishes:
    last = options.text("to-step") or STEPS[-1]
    if last not in STEPS:
        what = f"There is no step {last}."
        raise StackError("--to-step", what, f"{nearest(last, STEPS)} Steps: {', '.join(STEPS)}.")
    if options.text("break") is not None and STEPS.index(last) < STEPS.index("start"):
        what = f"Nothing is broken before the step start, and --to-step {last} ends before it."
        raise StackError("--break", what, "Leave --to-step out, or name start or verify.")
    plan_file = options.text("plan")
    return Wishes(
        stack=chosen_stack(options) if plan_file is None else None,
        plan=read_plan(Path(plan_file)) if plan_file is not None else None,
        plan_file=plan_file or "",
        to_step=last,
        spoilt=options.text("break"),
        pace=PACE,
    )


def _rehearse(wishes: Wishes, options: Options, output: Output) -> int:
    name = wishes.stack.name if wishes.stack else wishes.plan.stack if wishes.plan else ""
    report = Report(stack=name)
    # What is found wrong is found on the rehearsal's own hosts: never on those of the stack's own inventory.
    completion = Completion(lambda: _on_its_hosts(options, report))
    output = replace(output, complete=completion)
    catalog = Catalog()
    is_real = are_processors(_accelerators(wishes), catalog)
    simulated = "hosts are" if is_real else "hosts, devices, engines and cloud are"
    output.message(f"Rehearsing {name}: {simulated} SIMULATED; nothing real is touched.")
    if is_real:
        output.message(
            "Its engines are real and run on this machine's processors: minutes, not seconds."
        )
    remove_forgotten_folders()
    code = 0
    with open_lab(new_folder()) as lab, contextlib.ExitStack() as resources:
        report.id = lab.id
        rehearsal = Rehearsal(
            wishes, lab, catalog, report, output.message, completion.reach, resources
        )
        try:
            rehearsal.run()
            _print_report(rehearsal, output)
        except StepFailed as error:
            code = error.exit_code
            _print_failure(rehearsal, error, output)
        if options.is_on("keep") and lab.directory.is_dir():  # a lab that could not boot has gone
            keep_record(report, lab.directory)
            lab.keep()
            _print_ways_in(rehearsal, options, output)
        else:
            output.next_command(_kept_next_time(options))
    output.document(report.document())
    return code


def _kept_next_time(options: Options) -> str:
    """The same command with --keep, and what that is good for."""
    words = [same_choice(options)] if options.text("plan") is None else []
    for name in ("plan", "to-step", "break"):
        value = options.text(name)
        words += [] if value is None else [f"--{name} {shlex.quote(value)}"]
    gone = "its hosts are gone now; with --keep they stay, to practise on"
    return f"fab rehearse {' '.join(words)} --keep   ({gone})"


def _accelerators(wishes: Wishes) -> list[str]:
    """The ids of accelerators that are named, known or not."""
    if wishes.plan is not None:
        return [host.accelerator for host in wishes.plan.hosts]
    if wishes.stack is None:
        return []
    spec = wishes.stack.spec
    named = [spec.accelerator, spec.defaults.accelerator]
    named += [role.accelerator for _, role in spec.roles.items()]
    return [name for name in named if name is not None]


def _print_failure(rehearsal: Rehearsal, error: StepFailed, output: Output) -> None:
    """The step's own message, and what the process that it names said last."""
    output.message(output.toned(str(error), "bad"))
    for process, lines in rehearsal.last_words(error.cause.where).items():
        output.message(f"{process} said last:")
        for line in lines:
            shown = line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + " …"
            output.message(AsWritten(f"  {shown}"))


def _print_report(rehearsal: Rehearsal, output: Output) -> None:
    """Where the time went, what was real, what was not, and what this cannot show."""
    report, plan = rehearsal.report, rehearsal.current_plan()
    rows = [("step", "seconds", "simulated", "what")]
    rows += [
        (s.name, f"{s.seconds:.1f}", "in part" if s.simulated else "no", s.detail)
        for s in report.steps
    ]
    output.data("\n" + table(rows))
    if report.first_token_s is not None:
        served = ", ".join(f"{role} {process}" for role, process in report.served_by.items())
        output.data(
            f"\nFirst token {report.first_token_s:.1f} s after the command's start, served by {served}."
        )
    provisioned = bool(report.pulumi_dir)
    is_real = has_real_engines(plan, rehearsal.catalog)
    scale = None if is_real else rehearsal.wishes.pace.time_scale
    output.data("\n" + table(reality_rows(plan, provisioned=provisioned, time_scale=scale)))
    output.data("\nThis rehearsal cannot show:")
    for line in not_shown(plan, has_real_engines=is_real):
        output.data(f"  - {line}")


def _on_its_hosts(options: Options, report: Report) -> Options:
    """The options that choose the same stack, with the inventory of the rehearsal as soon as there is one."""
    return Options({**options.given, "inventory": report.inventory or None})


def _print_ways_in(rehearsal: Rehearsal, options: Options, output: Output) -> None:
    lab, report, plan = rehearsal.lab, rehearsal.report, rehearsal.plan
    output.message(f"\nKept as {lab.id}.")
    kubeconfig = report.pulumi_env.get("KUBECONFIG")
    # no task that reaches hosts takes a plan
    is_operated = options.text("plan") is None and bool(report.ssh_config) and not kubeconfig
    environment = lab.directory / ENV_FILE
    chosen = _for_a_shell(options, report) if is_operated else {}
    text = env_text(report, chosen, searched=os.environ.get("PATH", os.defpath))
    write_whole(environment, text)
    if report.ssh_config and plan is not None:
        first, *others = (host.name for host in plan.hosts)
        more = f", and so the other {len(others)}" if others else ""
        output.message(f"Hosts: `ssh {first}`{more}.")
    if plan is not None and plan.secrets and is_operated:
        again = same_choice(_on_its_hosts(options, report))
        output.message(
            f"Secrets are made up here ({', '.join(sorted(plan.secrets))}), so `fab verify` finds others than "
            f"your own: `fab up {again} --replace` puts yours there first."
        )
    if kubeconfig:
        output.message(
            f"Cluster: KUBECONFIG={kubeconfig}; its kubelets have ended with this command: pods stay as they are"
        )
    if report.pulumi_dir:
        output.message(
            f"Cloud: `source {environment}`, then `pulumi -C {report.pulumi_dir} stack --stack {report.stack}`"
        )
    ends = f"fab rehearse --stop {lab.id}"
    if is_operated and plan is not None:
        sets = shlex.join(word for value in options.words("set") for word in ("--set", value))
        beside = f", with {sets} behind each" if sets else ""
        output.message(f"Practise: `source {environment}`, and type in that shell{beside}")
        is_started = report.first_token_s is not None
        for line in practice(plan, is_started=is_started):
            output.message(line)
        verb = "status" if is_started else "up"
        ends = f"fab {verb} {same_choice(_on_its_hosts(options, report))}   ({ends} ends it)"
    output.next_command(ends)


def _for_a_shell(options: Options, report: Report) -> dict[str, str]:
    """The variables that choose the rehearsed stack, and the rehearsal's own hosts."""
    file = options.text("file")
    stack = options.text("stack") if file is None else str(Path(file).absolute())
    return {STACK_VARIABLE: stack or "", INVENTORY_VARIABLE: report.inventory}


def _stop(lab_id: str, output: Output) -> int:
    running = [entry.id for entry in list_labs()]
    if lab_id not in running:
        what = f"No rehearsal {lab_id} runs."
        raise StackError("--stop", what, f"Running: {', '.join(running) or 'none'}.")
    stop_lab(lab_id)
    head = {"schema_version": SCHEMA_VERSION, "stack": None, "ok": True}
    output.document({**head, "stopped": lab_id})
    output.message(f"Stopped {lab_id}: nothing of it is left.")
    return 0


def _list(output: Output) -> int:
    entries = list_labs()
    kept = [(entry, _record(entry)) for entry in entries]
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": None,
            "ok": True,
            "rehearsals": [
                {
                    "id": entry.id,
                    "kept": entry.kept,
                    "directory": entry.directory,
                    **_summary(record),
                }
                for entry, record in kept
            ],
        }
    )
    rows = [("id", "stack", "kept", "inventory")]
    rows += [
        (
            entry.id,
            str(record.get("stack", "?")),
            "yes" if entry.kept else "runs",
            str(record.get("inventory", "")),
        )
        for entry, record in kept
    ]
    output.data(table(rows) if entries else "No rehearsal is kept.")
    if entries:
        output.next_command(f"fab rehearse --stop {entries[0].id}")
    return 0


def _record(entry: LabEntry) -> dict[str, object]:
    """What a kept rehearsal said of itself; empty while it runs."""
    try:
        record = json.loads(read_text(Path(entry.directory) / RECORD))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _summary(record: dict[str, object]) -> dict[str, object]:
    return {
        key: record[key]
        for key in ("stack", "inventory", "ssh_config", "served_by")
        if key in record
    }
