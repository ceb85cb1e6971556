"""Rules about what prefill and decode must have alike: what NIXL's compatibility hash holds, and how KV is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from infra.checks.attention_choice import chosen_backend, named_backend
from infra.checks.rule_releases import releases_of
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.plan.process import Process

# NIXL's compatibility hash (vllm nixl_connector.py@0.17.0, nixl/*@0.33.0): a difference refuses every transfer.
HASHED = ("model", "dtype", "kv-cache-dtype", "attention-backend")
# What KV is read as; that stays where an operator has NIXL compare no hashes (`enforce_handshake_compat`).
READ_AS = ("dtype", "kv-cache-dtype")
# SGLang's transfer copies pages as they lie: their type and size (sglang srt/disaggregation@0.5.9, 0.5.23).
SGLANG_SHARED = ("model-path", "kv-cache-dtype", "page-size")
# Each back end has messages of its own (srt/disaggregation/{mooncake,nixl,mori}/conn.py@0.5.9, 0.5.16, 0.5.23); of
# these, one moves nothing and answers everybody.
TRANSFER = "disaggregation-transfer-backend"
MOVES_NOTHING = "fake"
# The hash holds whether the hybrid KV cache manager is on: nixl/metadata.py@0.22.1, and not nixl_connector.py@0.17.0,
# which has it off beside every connector. Releases between them were not read.
HASHES_MANAGER = releases_of("vllm", since="0.22.0")
MANAGER = "disable-hybrid-kv-cache-manager"
# Connectors beside which it stays on (`SupportsHMA` in vllm distributed/kv_transfer/kv_connector/v1@0.22.1), and one
# that has it off (ai-dynamo/dynamo#12821); a connector around others is as all of them are.
WITH_MANAGER = frozenset(
    {
        "NixlConnector",
        "NixlPullConnector",
        "NixlPushConnector",
        "MooncakeConnector",
        "MooncakeStoreConnector",
        "OffloadingConnector",
        "SimpleCPUOffloadConnector",
    }
)
WITHOUT_MANAGER = frozenset({"DynamoConnector"})
# Read by NixlConnector beside a plain attention back end alone: with latents it changes nothing
# (nixl/connector.py@0.22.1, `prefer_cross_layer_blocks`).
CROSS_LAYERS = "enable_cross_layers_blocks"


def roles_agree(view: PlanView) -> Iterator[Finding]:
    """Model string, dtype, KV dtype, back end, cache manager and layout are equal on prefill and decode."""
    for prefill, decode in _pairs(view):
        yield from _flags_agree(view, prefill, decode)
        yield from _transfers_meet(view, prefill, decode)
        if not (_is_enforced(view, decode) and _nixl(view.kv_config(decode)) is not None):
            continue
        yield from _releases_agree(view, prefill, decode)
        yield from _backends_agree(view, prefill, decode)
        yield from _managers_agree(view, prefill, decode)
        if not _has_latents(view):
            yield from _layouts_agree(view, prefill, decode)


def layouts_told_alike(view: PlanView) -> Iterator[Finding]:
    """Blocks across layers are told to both roles, or to neither, also where latents leave them unused."""
    for prefill, decode in _pairs(view):
        if _nixl(view.kv_config(decode)) is not None and _has_latents(view):
            yield from _layouts_agree(view, prefill, decode)


def _pairs(view: PlanView) -> Iterator[tuple[Process, Process]]:
    """One process of each kind of prefill, with one of each kind of decode."""
    of_role: dict[str, list[Process]] = {"prefill": [], "decode": []}
    for process in view.variants:
        of_role.get(process.role, []).append(process)
    yield from product(of_role["prefill"], of_role["decode"])


def _is_enforced(view: PlanView, decode: Process) -> bool:
    extra = as_map((_nixl(view.kv_config(decode)) or {}).get("kv_connector_extra_config"))
    return bool(extra.get("enforce_handshake_compat", True))


def _flags_agree(view: PlanView, prefill: Process, decode: Process) -> Iterator[Finding]:
    of_vllm = HASHED if _is_enforced(view, decode) else READ_AS
    for name in of_vllm if view.family == "vllm" else SGLANG_SHARED:
        ours, theirs = view.flags(prefill).get(name), view.flags(decode).get(name)
        if name == "page-size" and None in (ours, theirs):
            continue  # the attention back end chooses where none is given
        if name == "attention-backend" and _have_one_backend(view, prefill, decode):
            continue  # one names what the other takes by itself
        if view.in_effect(prefill, name) != view.in_effect(decode, name):
            what = f"--{name} is {ours} on prefill and {theirs} on decode: the KV handshake would fail."
            yield _finding(decode, f"flags.{name}", what, "Make them equal.")


def _releases_agree(view: PlanView, prefill: Process, decode: Process) -> Iterator[Finding]:
    """NIXL's hash holds vLLM's version (nixl_connector.py@0.17.0, nixl/metadata.py@0.22.1, 0.33.0)."""
    ours, theirs = (view.surroundings.releases.get(each.id) for each in (prefill, decode))
    if ours and theirs and ours != theirs:
        what = f"prefill runs {ours} and decode {theirs}: NIXL's compatibility hash differs, and every transfer fails."
        field = "engine.image"
        yield Finding(field=field, what=what, fix="Give both one image.", process=decode.id)


def _transfers_meet(view: PlanView, prefill: Process, decode: Process) -> Iterator[Finding]:
    """Both move KV by one connector, or one back end of SGLang's: each speaks to its own kind alone."""
    if view.family == "sglang":
        flag = TRANSFER
        ours, theirs = (str(view.in_effect(each, TRANSFER) or "") for each in (prefill, decode))
        meet = ours == theirs or MOVES_NOTHING in (ours, theirs)
    else:
        flag = "kv-transfer-config"
        of_prefill, of_decode = (
            {_kind(name) for name in _leaves(view.kv_config(each))} for each in (prefill, decode)
        )
        ours, theirs = (", ".join(sorted(names)) for names in (of_prefill, of_decode))
        meet = bool(of_prefill & of_decode)
    if ours and theirs and not meet:
        what = f"prefill hands KV over by {ours}, and decode takes it by {theirs} (--{flag}): they do not meet."
        yield _finding(decode, f"flags.{flag}", what, "Give both roles one of them.")


def _kind(connector: str) -> str:
    """A connector's name; NIXL's are one kind."""
    return "NixlConnector" if connector.startswith("Nixl") else connector


def _backends_agree(view: PlanView, prefill: Process, decode: Process) -> Iterator[Finding]:
    """What vLLM takes by itself on both, of a plan that names none."""
    mine, other = chosen_backend(view, prefill), chosen_backend(view, decode)
    if mine and other and mine.name and other.name and mine.name != other.name:
        what = (
            f"vLLM chooses {mine.name} on prefill ({mine.why}) and {other.name} on decode ({other.why}): the KV "
            "handshake would fail."
        )
        fix = "Name one back end that both have as attention-backend in the flags of both roles."
        yield _finding(decode, "flags.attention-backend", what, fix)


def _managers_agree(view: PlanView, prefill: Process, decode: Process) -> Iterator[Finding]:
    ours, theirs = (_has_manager(view, each) for each in (prefill, decode))
    if not view.is_among(HASHES_MANAGER) or None in (ours, theirs) or ours == theirs:
        return
    words = {True: "on", False: "off"}
    what = (
        f"The hybrid KV cache manager is {words[bool(ours)]} for prefill and {words[bool(theirs)]} for decode "
        f"(--{MANAGER}, or the connector): NIXL's compatibility hash differs, and every transfer fails."
    )
    yield _finding(decode, f"flags.{MANAGER}", what, f"Give --{MANAGER} to both, or to neither.")


def _has_manager(view: PlanView, process: Process) -> bool | None:
    """Whether the hybrid KV cache manager is on; None where nothing says."""
    given = view.flags(process).get(MANAGER)
    if given is not None:
        return not given
    names = set(_leaves(view.kv_config(process)))
    if names & WITHOUT_MANAGER:
        return False
    return True if names and names <= WITH_MANAGER else None


def _layouts_agree(view: PlanView, prefill: Process, decode: Process) -> Iterator[Finding]:
    ours, theirs = (_crosses_layers(view, each) for each in (prefill, decode))
    if ours != theirs:
        what = (
            f"{CROSS_LAYERS} is {str(ours).lower()} on prefill and {str(theirs).lower()} on decode: NIXL's "
            "compatibility hash holds the layout of blocks."
        )
        field = f"flags.kv-transfer-config.{CROSS_LAYERS}"
        yield _finding(decode, field, what, "Give it to both, or to neither.")


def _crosses_layers(view: PlanView, process: Process) -> bool:
    """Whether blocks hold all layers; a connector around others has that where each of them has it."""
    config = view.kv_config(process)
    nixl = _nixl(config) or {}
    is_asked = (
        str(as_map(nixl.get("kv_connector_extra_config")).get(CROSS_LAYERS)).lower() == "true"
    )
    return is_asked and len(list(_leaves(config))) == 1


def _has_latents(view: PlanView) -> bool:
    return view.checkpoint is not None and view.checkpoint.shape is not None


def _nixl(config: Mapping[str, object]) -> Mapping[str, object] | None:
    """The map of a NIXL connector: the flag's own, or one inside of it."""
    if str(config.get("kv_connector")).startswith("Nixl"):
        return config
    inner = as_map(config.get("kv_connector_extra_config")).get("connectors")
    found = (_nixl(as_map(each)) for each in (inner if isinstance(inner, list) else ()))
    return next((each for each in found if each is not None), None)


def _leaves(config: Mapping[str, object]) -> Iterator[str]:
    """Names of the connectors that hold no others."""
    inner = as_map(config.get("kv_connector_extra_config")).get("connectors")
    if isinstance(inner, list):
        for each in inner:
            yield from _leaves(as_map(each))
    elif config.get("kv_connector") is not None:
        yield str(config["kv_connector"])


def _finding(decode: Process, field: str, what: str, fix: str) -> Finding:
    return Finding(field=f"roles.decode.{field}", what=what, fix=fix, process=decode.id)


def _have_one_backend(view: PlanView, prefill: Process, decode: Process) -> bool:
    """Whether both are known to have the same attention back end, named or chosen."""
    names = set()
    for process in (prefill, decode):
        choice = chosen_backend(view, process)
        names.add(named_backend(view, process) or (choice.name if choice else ""))
    return len(names) == 1 and "" not in names
