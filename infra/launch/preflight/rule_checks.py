"""Whether a host can be closed by its plan, and whether other rules there would close more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from infra.launch.name_lists import listed
from infra.launch.preflight.evidence import Answer, is_there, printed
from infra.launch.preflight.scene import Scene, Trouble, everywhere
from infra.launch.preflight.ssh_command import ssh_command

CHAINS = "chains"
QUESTION = ("nft", "-j", "list", "chains")
# These accept by policy, and end with a rule that rejects.
REJECTING_TABLES = ("firewalld",)
OWN_TABLES = "moe-"


class Chain(NamedTuple):
    """A chain that packets for the host pass, of whatever table."""

    table: str
    name: str
    policy: str


def closed_hosts(scene: Scene) -> tuple[str, ...]:
    """The hosts that have answered, of a plan that closes them."""
    return everywhere(scene) if scene.plan.firewall is not None else ()


def rules_told(_scene: Scene, _host: str) -> Iterator[Answer]:
    """The chains of every table."""
    yield Answer(command=CHAINS, is_told=printed(parse_chains, is_there))


def find_other_rules(scene: Scene) -> Iterator[Trouble]:
    """Hosts without nft, and tables of others that drop what they do not accept: ours cannot overrule them."""
    for name in closed_hosts(scene):
        told = scene.hosts[name].commands.get(CHAINS) if name in scene.hosts else None
        if told is not None and told.is_missing:
            yield Trouble(
                host=name,
                severity="block",
                observed="there is no program nft, which closes the host as `firewall: plan` says",
                fix="Install the package nftables there, or write firewall: none.",
            )
        found = parse_chains(told.stdout) if told is not None else None
        others = [f"{one.table} {one.name}" for one in found or () if _drops(one)]
        if others:
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"{listed(others)} drops what it does not accept: no rule of ours opens that again",
                wanted="the stack's ports open there, too",
                fix=ssh_command(name, "nft list ruleset"),
            )


def parse_chains(text: str) -> tuple[Chain, ...] | None:
    """The chains that packets for the host pass, in `nft -j list chains`; None where that is something else."""
    try:
        rows = [row["chain"] for row in json.loads(text)["nftables"] if "chain" in row]
        return tuple(
            Chain(f"{row['family']} {row['table']}", str(row["name"]), str(row.get("policy", "")))
            for row in rows
            if row.get("hook") == "input"
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _drops(chain: Chain) -> bool:
    table = chain.table.rpartition(" ")[2]
    is_ours = table.startswith(OWN_TABLES)
    return not is_ours and (chain.policy == "drop" or table in REJECTING_TABLES)
