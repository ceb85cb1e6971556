"""The metadata service of a cloud, closed to a stack: nftables rules for what runs in its slice, and for nothing else.

A client may have an engine fetch an address, and these give away the host's credentials. Containers share the host's
network, so neither a hop limit nor a rule by user tells them from the host's own programs: their control group does.
That needs the unified control groups, Linux 5.13 and nft 0.9.9 (nftables' and the kernel's change logs).
"""

from __future__ import annotations

from infra.render.host_paths import slice_path

# AWS (also by IPv6), Azure, Google (also by IPv6), Oracle, Huawei; Alibaba. (AWS EC2 User Guide, "Access instance
# metadata"; Google Compute Engine, "View and query VM metadata"; Alibaba ECS, "Instance metadata"; checked 2026-11-26.)
ADDRESSES = ("169.254.169.254", "100.100.100.200")
ADDRESSES_V6 = ("fd00:ec2::254", "fd20:ce::254")


def metadata_table(stack: str) -> str:
    """The table of a stack, as `nft` names it."""
    return f"inet moe_infra_metadata_{stack}"


def metadata_rules_text(stack: str) -> str:
    """The table, loaded anew over what may be there of it."""
    table, group = metadata_table(stack), slice_path(stack).lstrip("/")
    level = group.count("/") + 1
    whose = f'socket cgroupv2 level {level} "{group}"'
    return f"""\
# Written by moe-infra for stack {stack}; `fab down` removes it.
table {table}
delete table {table}
table {table} {{
  chain output {{
    type filter hook output priority filter; policy accept;
    {whose} ip daddr {{ {", ".join(ADDRESSES)} }} reject
    {whose} ip6 daddr {{ {", ".join(ADDRESSES_V6)} }} reject
  }}
}}
"""
