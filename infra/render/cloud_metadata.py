"""The metadata service of a cloud, closed to a stack: nftables rules for what runs in its slice, and for nothing else.

A client may have an engine fetch an address, and these give away the host's credentials. Containers share the host's
network, so neither a hop limit nor a rule by user tells them from the host's own programs: their control group does.
That needs the unified control groups, Linux 5.13 and nft 0.9.9 (nftables' and the kernel's change logs).

Port 53 and UDP stay open: some of these addresses resolve names and tell the time, too (Microsoft Learn, "What is IP
address 168.63.129.16"; Google Compute Engine, "Internal DNS"; checked 2026-11-26).
"""

from __future__ import annotations

from infra.catalog.metadata_services import metadata_addresses
from infra.render.host_paths import metadata_rules, slice_path, stack_folder
from infra.render.items import Item

# For one connection to an address where nobody may answer; all addresses are dialled at once.
DIAL_S = 2
# A control group that every host of systemd has while nothing of a stack runs (systemd.special(7)).
ALWAYS_THERE = "/init.scope"
NEEDS = "nft 0.9.9, Linux 5.13 and unified control groups"


def metadata_table(stack: str) -> str:
    """The table of a stack, as `nft` names it."""
    return f"inet {_name(stack)}"


def metadata_rules_text(stack: str) -> str:
    """The table, loaded anew over what may be there of it."""
    return f"# Written by moe-infra for stack {stack}; `fab down` removes it.\n" + _rules(
        stack, slice_path(stack)
    )


def metadata_guard_text(stack: str) -> str:
    """A script that loads the table; where the host cannot, it fails unless no metadata service answers there."""
    folder = stack_folder(stack)  # a name that is none would be more than a name in every line
    return f"""\
#!/bin/sh
# Keeps stack {stack} from the metadata service of a cloud; written by moe-infra: `fab down` removes it.
said=$(nft -f {metadata_rules(stack)} 2>&1) && exit 0
said=$(printf '%s\\n' "$said" | head -n 1)
there=$({_dialling()})
if [ -z "$there" ]; then
  echo "moe-infra: {folder} has no table against a metadata service, and none answers here ($said)"
  exit 0
fi
echo "moe-infra: not started: the cloud's metadata service at" $there "gives the host's credentials away, and\
 nft cannot close it to engines ($said). That needs {NEEDS}; or switch the service off" >&2
exit 1
"""


def metadata_item(stack: str) -> Item:
    """The table as it is loaded while anything of the stack runs; whether it could be, while nothing does."""
    name = _name(stack)
    return Item(
        id=f"metadata:{name}",
        group="files",
        kind="metadata",
        target=name,
        why="engines fetch what clients name, and not the host's own credentials",
        details={
            "rules": metadata_rules_text(stack),
            "trial": _rules(stack, ALWAYS_THERE),
            "control_group": slice_path(stack),
            "dialling": _dialling(),
            "stack": stack,
            "needs_of_host": NEEDS,
        },
    )


def _name(stack: str) -> str:
    return f"moe_infra_metadata_{stack}"


def _rules(stack: str, control_group: str) -> str:
    """What `nft -f` loads: control groups are named by their path, and by its depth."""
    table, group = metadata_table(stack), control_group.lstrip("/")
    whose = f'socket cgroupv2 level {group.count("/") + 1} "{group}"'
    addresses = metadata_addresses()
    v4 = ", ".join(each for each in addresses if ":" not in each)
    v6 = ", ".join(each for each in addresses if ":" in each)
    return f"""\
table {table}
delete table {table}
table {table} {{
  chain output {{
    type filter hook output priority filter; policy accept;
    {whose} ip daddr {{ {v4} }} tcp dport != 53 reject
    {whose} ip6 daddr {{ {v6} }} tcp dport != 53 reject
  }}
}}
"""


def _dialling() -> str:
    """Shell words that print the addresses at which somebody takes a connection, or of which that is not known.

    bash leaves with 1 where nobody does, `timeout` with 124; whatever else goes wrong is no proof.
    """
    dial = f'timeout {DIAL_S} bash -c \': < "/dev/tcp/$1/80"\' bash "$address"'
    return (
        f"for address in {' '.join(metadata_addresses())}; do "
        f'{{ {dial} 2>/dev/null; case $? in 1|124) ;; *) echo "$address";; esac; }} & done; wait'
    )
