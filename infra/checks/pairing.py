"""Rules about prefill and decode: what must be equal, and what one tells of the other."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int, as_map
from infra.plan.process import Process

# What makes the wheels' routers read their lists of prefill and decode members.
PAIR_SWITCHES = {"vllm-router": "vllm-pd-disaggregation", "sglang-router": "pd-disaggregation"}
KV_ROLES = {"prefill": ("kv_producer", "kv_both"), "decode": ("kv_consumer", "kv_both")}


def model_path_given(view: PlanView) -> Iterator[Finding]:
    """The model is a path, a bucket or a repository, and the same on every rank of a group."""
    flag = "model-path" if view.family == "sglang" else "model"
    for group, members in view.groups.items():
        first = view.flags(members[0]).get(flag)
        if view.are_alike(members) and _is_model(members[0], first):
            continue
        for process in members:
            model = view.flags(process).get(flag)
            if not _is_model(process, model):
                what = f"{process.id} serves {model}: neither a path nor a repository."
            elif model != first:
                what = (
                    f"{process.id} serves {model}, and {members[0].id} of {group} serves {first}."
                )
            else:
                continue
            fix = "Give every rank of a group the path of one checkpoint."
            yield Finding(field="checkpoint", what=what, fix=fix, process=process.id)


def _is_model(process: Process, named: object) -> bool:
    # a bare name is a folder here, or a repository without an owner, unless nothing may be downloaded
    is_offline = process.env.get("HF_HUB_OFFLINE") == "1"
    return named is not None and ("/" in str(named) or not is_offline)


def prefill_blocks_smaller(view: PlanView) -> Iterator[Finding]:
    """Prefill's KV blocks are no larger than decode's: NIXL splits blocks, and never joins them."""
    sizes = {
        process.role: as_int(view.flags(process).get("block-size"), 0)
        for process in view.leaders
        if view.kv_config(process).get("kv_connector") == "NixlConnector"
    }
    # the attention back end chooses where none is given, on both sides alike
    if sizes.get("prefill", 0) > sizes.get("decode", 0) > 0:
        what = f"block-size is {sizes['prefill']} on prefill and {sizes['decode']} on decode."
        fix = f"Use at most {sizes['decode']} on prefill."
        yield Finding(field="roles.prefill.flags.block-size", what=what, fix=fix)


def kv_role_current(view: PlanView) -> Iterator[Finding]:
    """Since vLLM 0.33.0 NIXL wants a role to produce or to consume, not both."""
    for process in view.variants:
        config = view.kv_config(process)
        if config.get("kv_connector") == "NixlConnector" and config.get("kv_role") == "kv_both":
            what = f"kv_both is deprecated since vLLM 0.33.0; {process.role} has it."
            fix = f"Use {KV_ROLES.get(process.role, ('kv_producer or kv_consumer',))[0]}."
            yield Finding(field="kv_transfer", what=what, fix=fix, process=process.id)


def side_channel_base_shared(view: PlanView) -> Iterator[Finding]:
    """All ranks of a group name one side-channel base: vLLM adds the rank itself.

    The scheduler listens there, so followers of a rank that spans hosts may name what they like.
    """
    for group, members in view.groups.items():
        if view.are_alike(members):
            continue
        bases = {
            process.env.get("VLLM_NIXL_SIDE_CHANNEL_PORT"): process
            for process in reversed(members)
            if view.kv_connector(process) == "NixlConnector" and view.readings[process.id].dp_ranks
        }
        if len(bases) > 1:
            listed = ", ".join(sorted(str(base) for base in bases)[:4])
            other = next(iter(bases.values()))
            what = f"{group} has several side-channel bases ({listed}), and vLLM adds the rank to each."
            fix = "Give every rank of a group the same VLLM_NIXL_SIDE_CHANNEL_PORT."
            yield Finding(field="kv_transfer", what=what, fix=fix, process=other.id)


def kv_role_matches(view: PlanView) -> Iterator[Finding]:
    """Prefill produces KV, decode consumes it; a unified role does both (a cache beside the engine) or neither."""

    def is_other(process: Process) -> bool:
        config = view.kv_config(process)
        # a unified role has none, or a cache beside the engine; a connector has one (config/kv_transfer.py@0.22.1)
        alone = ("kv_both",) if config.get("kv_connector") else (None, "kv_both")
        return config.get("kv_role") not in KV_ROLES.get(process.role, alone)

    for process in view.where(is_other):
        wanted = KV_ROLES.get(process.role)
        what = f"{process.id} is {process.role} and its kv_role is {view.kv_config(process).get('kv_role')}."
        fix = f"Use {wanted[0]}." if wanted else "Use kv_both, or remove --kv-transfer-config."
        yield Finding(field="kv_transfer", what=what, fix=fix, process=process.id)


def instance_sizes_told(view: PlanView) -> Iterator[Finding]:
    """MooncakeConnectorV1 is told the sizes of one instance of each role, and its own rightly."""
    for process, role, given, actual in _told_sizes(view):
        is_own = view.kv_config(process).get("kv_role") in KV_ROLES[role]
        if given != actual and (is_own or 0 in given):
            yield _wrong_sizes(process, role, given, actual)
            return
    yield from _distinct_engine_ids(view)


def peer_sizes_told(view: PlanView) -> Iterator[Finding]:
    """MooncakeConnectorV1 is told the other role's sizes rightly: blocks are fetched by them, and no engine checks."""
    for process, role, given, actual in _told_sizes(view):
        is_own = view.kv_config(process).get("kv_role") in KV_ROLES[role]
        if given != actual and not is_own and 0 not in given:
            yield _wrong_sizes(process, role, given, actual)
            return


_Sizes = tuple[int, int]


def _told_sizes(view: PlanView) -> Iterator[tuple[Process, str, _Sizes, _Sizes]]:
    """(process, role, what it is told of an instance of that role as data and tensor parallel sizes, what they are)."""
    actual = {
        process.role: (
            view.readings[process.id].group_size,
            view.size(process, "tensor-parallel-size"),
        )
        for process in view.leaders
        if process.role in KV_ROLES
    }
    for process in view.variants:
        if view.kv_connector(process) != "MooncakeConnectorV1":
            continue
        extra = view.kv_extra(process)
        for role, sizes in actual.items():
            told = as_map(extra.get(role))
            given = (as_int(told.get("dp_size"), 0), as_int(told.get("tp_size"), 0))
            yield process, role, given, sizes


def _wrong_sizes(process: Process, role: str, given: _Sizes, actual: _Sizes) -> Finding:
    what = f"{role}.dp_size, tp_size are {given[0]}, {given[1]}; one {role} instance has {actual[0]}, {actual[1]}."
    fix = "They are per instance (--data-parallel-size, --tensor-parallel-size), not totals."
    return Finding(field="kv_transfer", what=what, fix=fix, process=process.id)


def _distinct_engine_ids(view: PlanView) -> Iterator[Finding]:
    """One finding per group whose id an earlier group has."""
    owners: dict[object, str] = {}
    for group, members in view.groups.items():
        config = view.kv_config(members[0])
        if config.get("kv_connector") != "MooncakeConnectorV1":
            continue
        own = config.get("engine_id")
        if own is None:  # the engine draws one at random
            continue
        other = owners.setdefault(own, group)
        if other != group:
            what = f"{group} and {other} share engine_id {own}."
            yield Finding(
                field="kv_transfer",
                what=what,
                fix="Give each group its own.",
                process=members[0].id,
            )


def ascend_prefill_wider(view: PlanView) -> Iterator[Finding]:
    """MooncakeConnectorV1 needs prefill tensor parallel at least that of decode."""
    sizes = {process.role: view.size(process, "tensor-parallel-size") for process in view.leaders}
    if sizes.get("decode", 0) > sizes.get("prefill", sizes.get("decode", 0)):
        what = (
            f"decode tensor_parallel {sizes['decode']} is larger than prefill's {sizes['prefill']}."
        )
        fix = f"Use at most {sizes['prefill']} on decode."
        yield Finding(field="roles.decode.tensor_parallel", what=what, fix=fix)


def hccn_mounted(view: PlanView) -> Iterator[Finding]:
    """Mooncake on Ascend parses /etc/hccn.conf: without it transfers are wrong or fail."""
    if view.plan.runtime == "native":
        return
    for process in view.where(lambda each: view.kv_connector(each) == "MooncakeConnectorV1"):
        if not any(mount.target == "/etc/hccn.conf" for mount in process.mounts):
            what = f"{process.id} does not mount /etc/hccn.conf, which Mooncake reads."
            fix = "Mount it read-only (vllm-ascend#7711: starts without, wrong output)."
            yield Finding(field=f"roles.{process.role}", what=what, fix=fix, process=process.id)


def vision_over_nixl(view: PlanView) -> Iterator[Finding]:
    """Image inputs with NIXL prefill/decode are unverified upstream."""
    if "vision" in view.plan.capabilities and any(
        view.kv_config(process).get("kv_connector") == "NixlConnector" for process in view.leaders
    ):
        what = "Image inputs with NIXL prefill/decode are unverified upstream (vLLM's compatibility matrix)."
        yield Finding(
            field="kv_transfer", what=what, fix="Prove them with `fab verify`, or serve text only."
        )


def drafts_agree(view: PlanView) -> Iterator[Finding]:
    """Since vLLM 0.33.0 NIXL's handshake compares the draft of prefill and decode: its model and its method."""
    first = {process.role: process for process in view.leaders}
    prefill, decode = first.get("prefill"), first.get("decode")
    if prefill is None or decode is None:
        return
    if view.kv_config(decode).get("kv_connector") != "NixlConnector":
        return
    ours, theirs = (
        as_map(view.flags(process).get("speculative-config")) for process in (prefill, decode)
    )
    for key in ("model", "method"):
        if ours.get(key) != theirs.get(key):
            what = (
                f"The draft's {key} is {ours.get(key)} on prefill and {theirs.get(key)} on decode."
            )
            fix = "Give both the same draft; the number of tokens may differ."
            yield Finding(field="draft", what=what, fix=fix, process=decode.id)
            return


def router_told_of_pairs(view: PlanView) -> Iterator[Finding]:
    """A router that is given prefill and decode members is told that they are: else it starts without any."""
    for router in view.routers:
        switch = PAIR_SWITCHES.get(view.router_name(router) or "")
        flags = view.flags(router)
        if switch is None or flags.get(switch) or not (flags.get("prefill") or flags.get("decode")):
            continue
        what = f"--prefill and --decode of {router.id} are read with --{switch} alone: it starts with no member and "
        what += "serves nothing."
        fix = f"Add --{switch}."
        yield Finding(field="router", what=what, fix=fix, process=router.id)


def pair_complete(view: PlanView) -> Iterator[Finding]:
    """Prefill has a decode, decode has a prefill, and a router stands before both."""
    roles = {process.role: process for process in reversed(view.engines)}
    ours = [role for role in KV_ROLES if role in roles]
    if not ours:
        return
    missing = [role for role in KV_ROLES if role not in roles]
    missing += [] if view.routers else ["router"]
    for name in missing:
        what = f"The plan has {' and '.join(ours)} and no {name}."
        fix = (
            "A request passes a router, prefill and decode: add it."
            if name == "router"
            else f"Add a {name} role."
        )
        field = "router" if name == "router" else f"roles.{name}"
        yield Finding(field=field, what=what, fix=fix, process=roles[ours[0]].id)
