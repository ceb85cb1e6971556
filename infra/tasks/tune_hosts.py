"""`fab tune-hosts`: bring hosts to the tuning profile, report drift, or take it back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from infra.catalog.host_profile import ProfileChoice, choose_profile, read_identity
from infra.catalog.load import Catalog
from infra.errors import Differs, HostsFailed, StackError
from infra.launch.deployment import Limits
from infra.launch.fleet import Fleet, ask_reached
from infra.launch.host_tuning import (
    Allowance,
    TuningMode,
    TuningOrder,
    count_of,
    tune_reached,
    tuning_document,
)
from infra.remote.failures import HostFailure
from infra.remote.named_hosts import named_hosts
from infra.render.host_state import HOSTS_OWNER, hosts_state, tuning_state
from infra.render.items import HostState
from infra.render.wanted_tuning import Tuning
from infra.tasks.choice import same_choice
from infra.tasks.limit import LIMIT, limit_words, limited
from infra.tasks.options import Options
from infra.tasks.output import Output, with_failures
from infra.tasks.reached_hosts import host_states
from infra.tasks.recorded_hosts import open_fleet
from infra.tasks.stack_options import compile_for_hosts
from infra.tasks.sudo_password import sudo_words
from infra.tasks.tuning_report import show_tuning

# They choose a stack's hosts; hosts that are named on the command line have none.
_OF_STACKS = ("stack", "file", "inventory", "set", LIMIT)
_OF_HOSTS = ("identity", "ssh-config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The hosts to be tuned.

    Args:
        stack: None for hosts named on the command line.
        states: by host.
        profiles: by host, with what each follows from; {} where none is needed.
        away: hosts that could not be asked what they are.
        again: the words that choose the same hosts again.
        up: the command that starts the stack on its hosts, "" for hosts named on the command line.
    """

    stack: str | None
    fleet: Fleet
    states: Mapping[str, HostState]
    profiles: Mapping[str, ProfileChoice]
    away: tuple[HostFailure, ...]
    again: str
    up: str


def run(options: Options, output: Output) -> int:
    """Tune, check or take back; 4 when an item or a host failed, 6 when a check finds a difference."""
    order = TuningOrder(
        mode=_mode(options),
        allow=cast("tuple[Allowance, ...]", options.words("allow")),
        with_diff=options.is_on("diff"),
        timeout_s=Limits().ask_s,
    )
    with _chosen(options, order, output) as chosen:
        try:
            rows, lost = tune_reached(chosen.fleet, chosen.states, order)
        except KeyboardInterrupt:
            if order.mode != "check":
                output.message(
                    "What was changed is recorded on the hosts: the same command again does what is left, "
                    f"`{chosen.again} --rollback` takes all of it back."
                )
            raise
    checked = order.mode == "check"
    away = (*chosen.away, *lost)
    document = tuning_document(chosen.stack, rows, chosen.profiles, only_checked=checked)
    output.document(with_failures(document, away))
    profiles = {host: choice for host, choice in chosen.profiles.items() if host in rows}
    show_tuning(rows, profiles, order, output)
    if away:
        output.failed_hosts(away, len(rows) + len(away))
        mode = "" if order.mode == "apply" else f" --{order.mode}"
        output.next_command(f"{chosen.again}{mode}")
        return HostsFailed.exit_code
    if count_of(rows, "failed"):
        output.next_command(f"{chosen.again} --check --diff")
        return HostsFailed.exit_code
    if checked and count_of(rows, "changed"):
        output.next_command(chosen.again)
        return Differs.exit_code
    goes_on = order.mode != "rollback" and chosen.stack is not None
    output.next_command(chosen.up if goes_on else f"{chosen.again} --check")
    return 0


@contextmanager
def _chosen(options: Options, order: TuningOrder, output: Output) -> Iterator[Chosen]:
    if options.text("hosts") is not None:
        with _named(options, order, output) as chosen:
            yield chosen
        return
    if options.text("profile") is not None:
        what = "--profile is for hosts named with -H; a stack names its own."
        raise StackError("--profile", what, "Use --set tuning=NAME.")
    for name in _OF_HOSTS:
        if options.given.get(name):
            what = f"--{name} is for hosts named with -H; a stack's are in an inventory."
            raise StackError(f"--{name}", what, "Say there how each host is reached.")
    catalog = Catalog()
    compiled = compile_for_hosts(options, catalog)
    every = host_states(compiled, catalog, render=tuning_state)
    states = {host: every[host] for host in limited(options, every, compiled.book.hosts)}
    choice = ProfileChoice(profile=compiled.plan.tuning, why=f"stack {compiled.plan.stack}")
    with open_fleet(options, compiled.book.hosts, output, asks_once=True) as fleet:
        yield Chosen(
            stack=compiled.plan.stack,
            fleet=fleet,
            states=states,
            profiles=dict.fromkeys(states, choice),
            away=(),
            again=f"fab tune-hosts {same_choice(options)}{limit_words(options)}",
            up=f"fab up {same_choice(options)}",
        )


@contextmanager
def _named(options: Options, order: TuningOrder, output: Output) -> Iterator[Chosen]:
    """Hosts of -H: no stack, no inventory; the profile follows from what each host is."""
    for name in _OF_STACKS:
        if options.given.get(name):
            what = f"-H names hosts, and --{name} chooses a stack's."
            raise StackError("command line", what, "Give one of them.")
    text = options.needed("hosts")
    hosts = named_hosts(text, options.words("identity"))
    catalog = Catalog()
    with open_fleet(options, hosts, output) as fleet:
        away: tuple[HostFailure, ...] = ()
        if order.mode == "rollback":
            profiles: dict[str, ProfileChoice] = {}
            states = {
                name: HostState(stack=HOSTS_OWNER, host=name, release="", items=(), enable=())
                for name in hosts
            }
        else:
            profiles, away = _profiles(options, fleet, tuple(hosts), catalog)
            states = {
                name: hosts_state(name, Tuning(profile=catalog.tuning(choice.profile)))
                for name, choice in profiles.items()
            }
        yield Chosen(
            stack=None,
            fleet=fleet,
            states=states,
            profiles=profiles,
            away=away,
            again=_again(options, text),
            up="",
        )


def _profiles(
    options: Options, fleet: Fleet, names: tuple[str, ...], catalog: Catalog
) -> tuple[dict[str, ProfileChoice], tuple[HostFailure, ...]]:
    """The profile of every host that can be asked what it is, and why the others cannot."""
    named = options.text("profile")
    if named is not None:
        profile = catalog.tuning(named).id
        return {name: ProfileChoice(profile=profile, why="--profile") for name in names}, ()
    requests = {name: {"operation": "identity"} for name in names}
    reports, away = ask_reached(fleet, requests, timeout_s=Limits().ask_s)
    known = [catalog.tuning(name) for name in catalog.ids("tuning")]
    chosen = {
        host: choose_profile(read_identity(report), known) for host, report in reports.items()
    }
    return chosen, away


def _again(options: Options, hosts: str) -> str:
    words = ["fab", "-H", hosts]
    words += [word for path in options.words("identity") for word in ("-i", path)]
    config, profile = options.text("ssh-config"), options.text("profile")
    words += ["-S", config] if config else []
    words += ["tune-hosts"]
    words += ["--profile", profile] if profile else []
    words += sudo_words(options)
    return shlex.join(words)


def _mode(options: Options) -> TuningMode:
    if options.is_on("rollback"):
        if options.is_on("check"):
            what = "--check and --rollback were given together."
            raise StackError("command line", what, "Give one of them.")
        return "rollback"
    return "check" if options.is_on("check") else "apply"
