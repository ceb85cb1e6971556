"""`fab replace-host`: put another machine in a host's place; every other rank stays where it is."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from infra.catalog.load import Catalog
from infra.errors import HostsFailed, NotReady, PrerequisiteError, StackError
from infra.inventory.hosts import Inventory
from infra.inventory.replacement import Edit, replace_machine
from infra.inventory.variable_files import read_variable_files
from infra.launch.bring_up import bring_up
from infra.launch.observation import status_document
from infra.launch.preflight.gate import Gate, refuse_unknown_checks
from infra.plan.compile import CompiledStack, compile_stack
from infra.spec.nearest import nearest
from infra.spec.text_file import read_text
from infra.tasks.choice import inventory_path, needed_inventory, same_choice
from infra.tasks.judging import refuse_problems
from infra.tasks.options import Options
from infra.tasks.output import Output
from infra.tasks.platforms import refuse_kubernetes
from infra.tasks.reached_hosts import make_deployment
from infra.tasks.recorded_facts import recorded_facts
from infra.tasks.recorded_hosts import holding_lease, open_fleet
from infra.tasks.stack_options import chosen_stack
from infra.tasks.status import status_table
from infra.tasks.unfinished import Begun, tell_unfinished
from infra.tasks.up import client_url, served_rows
from infra.whole_file import kept_from_others, write_whole


def run(options: Options, output: Output) -> int:
    """Edit the inventory, clear the machine that leaves, restart the groups that it was part of."""
    old, new = options.needed("old"), options.needed("new")
    refuse_unknown_checks(options.words("force"))
    catalog = Catalog()
    stack = chosen_stack(options)
    refuse_kubernetes(stack.file, stack.name, stack.spec.platform)
    inventory = needed_inventory(options, stack.name)
    path = inventory_path(options, stack.name)
    before = compile_stack(stack, catalog=catalog, inventory=inventory)
    text = read_text(path)
    edit = replace_machine(
        text,
        str(path),
        _entry_name(before, inventory, old),
        new,
        read_variable_files(path.parent, str(path.parent)),
    )
    _refuse_used(before, edit)
    compiled = compile_stack(stack, catalog=catalog, inventory=edit.inventory)
    refuse_problems(compiled, catalog, output)
    return _carry_out(options, output, compiled, edit, _writer(path, text, edit, output))


def _carry_out(
    options: Options,
    output: Output,
    compiled: CompiledStack,
    edit: Edit,
    write: Callable[[], None],
) -> int:
    catalog, plan = Catalog(), compiled.plan
    leaving = f"{edit.gone.name} ({edit.gone.address})"
    reached = {leaving: replace(edit.gone, name=leaving), **compiled.book.hosts}
    recorded = recorded_facts(options, plan.stack, compiled.book.hosts)
    with (
        open_fleet(options, reached, output) as opened,
        holding_lease(
            options, "fab replace-host", opened, plan.stack, tuple(compiled.book.hosts)
        ) as fleet,
    ):
        deployment, secrets = make_deployment(compiled, catalog, fleet, output)
        begun = Begun()

        def decided() -> None:
            write()
            begun()

        deployment = replace(
            deployment,
            leaving=(leaving,),
            forces=options.words("force"),
            decided=decided,
            hang_up=opened.hang_up,
        )
        try:
            served = bring_up(
                deployment,
                secrets,
                tunes=options.is_on("tune"),
                replaces=True,
                gate=Gate(catalog=catalog, recorded=recorded),
            )
        except (HostsFailed, NotReady) as error:
            output.message(_state_of(edit, options))
            again = same_choice(options)
            return tell_unfinished(deployment, output, error, has_begun=begun.is_so, again=again)
        except KeyboardInterrupt:
            output.message(_state_of(edit, options))
            raise
    rows = served_rows(deployment, served)
    output.document(status_document(plan.stack, rows))
    output.data(status_table(rows))
    output.data(f"{deployment.endpoints.model} is served at {client_url(deployment)}/v1")
    output.next_command(f"fab verify {same_choice(options)}")
    return 0


def _entry_name(compiled: CompiledStack, inventory: Inventory, old: str) -> str:
    """The inventory's name of a host of the plan, which may be called differently there.

    Raises:
        StackError: the plan has no such host.
    """
    used = {host.service_address: name for name, host in compiled.book.hosts.items()}
    for host in inventory.hosts:
        plan_name = used.get(host.service_address)
        if plan_name is not None and old in {plan_name, host.name}:
            return host.name
    fix = f"It uses {', '.join(used.values())}."
    raise StackError("OLD", f"{compiled.plan.stack} does not use a host {old}.", fix)


def _refuse_used(before: CompiledStack, edit: Edit) -> None:
    """Refuse to exchange two hosts of the same plan.

    Raises:
        StackError: the machine that comes serves already.
    """
    came = edit.inventory.host(edit.gone.name)
    used = {host.service_address: name for name, host in before.book.hosts.items()}
    if came is not None and came.service_address in used:
        what = f"{came.service_address} is {used[came.service_address]} of the same stack."
        raise StackError("NEW", what, "Name a machine that the stack does not use.")


def _writer(path: Path, before: str, edit: Edit, output: Output) -> Callable[[], None]:
    """What writes the edited inventory, whole or not at all; not over what somebody else has written meanwhile."""

    def write() -> None:
        with kept_from_others(path):
            if read_text(path) != before:
                what = "The inventory has changed since it was read."
                raise PrerequisiteError(str(path), what, "Nothing was changed. Type it again.")
            write_whole(path, edit.text, fix="Nothing was changed. Make it writable.")
        output.message(f"{path}: {edit.words}")

    return write


def _state_of(edit: Edit, options: Options) -> str:
    """Which machine a failure is about, under the name that stays, and whether inventory and hosts agree after it."""
    again, new = same_choice(options), options.needed("new")
    path = Path(str(edit.inventory.path))
    if read_text(path) == edit.text:
        return f"The inventory says already: {edit.words}. `fab up {again} --replace` goes on from there."
    old, gone = edit.gone.name, edit.gone.address
    meant = f"{old} is the machine that was to come, {new}, in all that is said here; {gone} stays."
    words = [meant, "The inventory is as it was."]
    others = [host for host in edit.inventory.hosts if host.name != old]
    if not any(host.address == gone for host in others) and not _is_address(new):
        names = [host.name for host in others]
        words.append(
            f"It has no host {new}, so that is taken for an address. {nearest(new, names)}"
        )
    return " ".join(words).rstrip()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
