"""A host's rules as nftables reads them: one table of ours for each stack, which closes our ports and nothing else.

Only a first packet of a TCP connection (SYN without ACK) is ever dropped. So whatever is connected stays so when the
table is loaded, and when the kernel forgets its connections (a full conntrack table, a flush, five idle days):
tracking, by which such rules are usually made, would take such packets for new and drop them.

A drop of one table is not overruled by an accept of another (nft(8), "Base chains"). Two stacks of a host both guard
the ranges in which engines and the stager choose their ports. So what one stack lets in gets a mark, no stack drops in
those ranges what has it, and it is taken off again: three chains, one behind the other.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence

from infra.plan.ports import STAGING_BLOCK
from infra.plan.process import Plan
from infra.render.host_paths import UNIT_FOLDER, firewall_unit, unit_name, watch_unit
from infra.render.items import Item, file_item, link_item
from infra.render.reach import Opening, openings
from infra.render.units import BOOT_TARGETS, firewall_unit_text

SCHEMA_VERSION = 1
# A bit that kube-proxy (0x4000, 0x8000), Cilium (0x0f00), Tailscale (0xff0000) and Calico (0xffff0000) leave alone
# (source: their documentation of marks; checked 2026-11-26). It is there between the first chain and the last.
MARK = 0x1000
# Before the priority 0 of everybody else's filters (nft(8), "priority filter").
MEMBERS_PRIORITY, STRANGERS_PRIORITY, UNMARK_PRIORITY = -11, -10, -9
# What of dropped packets goes to the kernel's log, for whoever asks why something is closed.
LOGGED = "limit rate 5/second burst 5 packets"
NOT_PLAIN, LONGEST_COMMENT = re.compile(r"[^A-Za-z0-9 _-]"), 64
UNFILTERED = (
    "Not filtered: RDMA (InfiniBand, RoCE, EFA), NVLink, IMEX, UDP, "
    "and ports that containers publish by themselves."
)


def table_name(stack: str) -> str:
    """The table of a stack, in the family inet."""
    return f"moe-{stack}"


def firewall_text(plan: Plan, host: str) -> str:
    """What `nft -f` loads on a host in one step, whatever was loaded before.

    The set `spared` is filled on the host: ports of these on which somebody else listens there, sshd among them.

    Raises:
        StackError: an address of the plan is a name.
    """
    name, found = table_name(plan.stack), openings(plan, host)
    own = _elements(one for one in found if one.is_own)
    ranges = _elements(one for one in found if not one.is_own)
    accepts = [line for one in found for line in _accepts(plan, one)]
    lines = [
        f"table inet {name}",
        f"delete table inet {name}",
        f"table inet {name} {{",
        *_set("spared", ""),
        *_set("ports", own),
        *_set("ranges", ranges),
        *_chain("members", MEMBERS_PRIORITY, [*accepts, *_drops(name, "ports")]),
        *_chain(
            "strangers",
            STRANGERS_PRIORITY,
            [f"meta mark & {MARK:#010x} == {MARK:#010x} accept", *_drops(name, "ranges")],
        ),
        "\tchain unmark {",
        f"\t\ttype filter hook input priority {UNMARK_PRIORITY}; policy accept;",
        f"\t\tmeta mark & {MARK:#010x} == {MARK:#010x} meta mark set meta mark & {~MARK & 0xFFFFFFFF:#010x}",
        "\t}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def firewall_items(plan: Plan, host: str) -> Iterator[Item]:
    """The table of a host, which is loaded for a trial first (launch/closing.py); nothing where it stays open."""
    processes = plan.on_host(host)
    if plan.firewall is None or not processes:
        return
    name = table_name(plan.stack)
    units = [*(unit_name(plan.stack, each) for each in processes), watch_unit(plan.stack)]
    yield Item(
        id=f"firewall:{name}",
        group="firewall",
        kind="firewall",
        target=name,
        why="only who dials by the plan is let in",
        details={
            "stack": plan.stack,
            "content": firewall_text(plan, host),
            "guards": guarded(plan, host),
            "own": _spans(one for one in openings(plan, host) if _is_ours(one)),
            "units": units,
        },
    )


def boot_files(stack: str) -> Iterator[Item]:
    """The unit that loads the table at every boot, and what starts it."""
    path, why = f"{UNIT_FOLDER}/{firewall_unit(stack)}", "closes the host at every boot"
    yield file_item(path, firewall_unit_text(stack), why, unit=True)
    for wanting in BOOT_TARGETS:
        yield link_item(f"{UNIT_FOLDER}/{wanting}.wants/{firewall_unit(stack)}", path, why)


def guarded(plan: Plan, host: str) -> list[list[int]]:
    """The first and last port of everything that a host's table guards, ascending, without overlap."""
    return _spans(openings(plan, host))


def firewall_listing(plan: Plan, host: str) -> list[tuple[str, str, str]]:
    """Ports, from whom, and what for: a row for each opening of a host."""
    return [
        (
            _span(one.first, one.last),
            ", ".join((*one.hosts, *one.networks)) or "nobody",
            one.name,
        )
        for one in openings(plan, host)
    ]


def firewall_document(plan: Plan, hosts: Iterable[str]) -> dict[str, object]:
    """The document of `fab plan --firewall`: of each host who is let in where, and the rules."""
    return {
        "schema_version": SCHEMA_VERSION,
        "stack": plan.stack,
        "hosts": {
            host: {
                "openings": [
                    {
                        "first": one.first,
                        "last": one.last,
                        "name": one.name,
                        "hosts": list(one.hosts),
                        "networks": list(one.networks),
                    }
                    for one in openings(plan, host)
                ],
                "rules": firewall_text(plan, host),
            }
            for host in hosts
        },
    }


def _is_ours(one: Opening) -> bool:
    """Whether nobody else of a host has a reason to listen there: the stager's block belongs to stacks alone."""
    return one.is_own or (one.first, one.last) == (STAGING_BLOCK.first, STAGING_BLOCK.last)


def _accepts(plan: Plan, one: Opening) -> Iterator[str]:
    """A rule for each family that may dial."""
    allowed = [
        *(ipaddress.ip_network(plan.host(name).address) for name in one.hosts),
        *map(ipaddress.ip_network, one.networks),
    ]
    port = f"tcp dport {_span(one.first, one.last)} meta mark set meta mark | {MARK:#010x}"
    for version, family in ((4, "ip"), (6, "ip6")):
        networks = [each for each in allowed if each.version == version]
        # nft refuses networks of a set that overlap
        shown = ", ".join(map(_source, ipaddress.collapse_addresses(networks)))  # type: ignore[type-var]
        if shown:
            yield f'{family} saddr {{ {shown} }} {port} accept comment "{_plain(one.name)}"'


def _plain(name: str) -> str:
    """A name without what would end a comment: binds are named by whoever wrote the plan."""
    return NOT_PLAIN.sub("_", name)[:LONGEST_COMMENT]


def _source(network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
    is_host = network.num_addresses == 1
    return str(network.network_address) if is_host else str(network)


def _chain(name: str, priority: int, rules: Sequence[str]) -> list[str]:
    """A chain that looks at first packets of connections from elsewhere, at ports on which nobody else listens."""
    return [
        f"\tchain {name} {{",
        f"\t\ttype filter hook input priority {priority}; policy accept;",
        "\t\tmeta l4proto != tcp accept",
        "\t\ttcp flags & (fin | syn | rst | ack) != syn accept",
        '\t\tiif "lo" accept',
        "\t\ttcp dport @spared accept",
        *(f"\t\t{rule}" for rule in rules),
        "\t}",
    ]


def _drops(table: str, ports: str) -> list[str]:
    """Two rules: of one with a limit what is above it would be let through."""
    return [
        f'tcp dport @{ports} {LOGGED} log prefix "{table} drops: "',
        f"tcp dport @{ports} counter drop",
    ]


def _set(name: str, elements: str) -> list[str]:
    filled = [f"\t\telements = {{ {elements} }}"] if elements else []
    return [f"\tset {name} {{", "\t\ttype inet_service", "\t\tflags interval", *filled, "\t}"]


def _elements(found: Iterable[Opening]) -> str:
    return ", ".join(_span(first, last) for first, last in _spans(found))


def _spans(found: Iterable[Opening]) -> list[list[int]]:
    spans: list[list[int]] = []
    for one in sorted(found, key=lambda each: each.first):
        if spans and one.first <= spans[-1][1] + 1:
            spans[-1][1] = max(spans[-1][1], one.last)
        else:
            spans.append([one.first, one.last])
    return spans


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
