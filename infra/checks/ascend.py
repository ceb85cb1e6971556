"""Rules about what vllm-ascend checks on top of vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.checks.rule_releases import releases_of
from infra.checks.speculation import captured_sizes
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_int, as_map
from infra.plan.process import Process

# vllm_ascend/platform.py@0.22.1rc1: what is on for these words.
TRUE_WORDS = ("1", "true", "True", "TRUE", "on", "yes")
FLASH_COMM = "VLLM_ASCEND_ENABLE_FLASHCOMM1"
SCHEDULER = "scheduler_config"
BALANCE = "VLLM_ASCEND_BALANCE_SCHEDULING"
# The recompute scheduler is taken on decode alone, and ignored on prefill.
DECODE_ALONE = releases_of("vllm-ascend", since="0.23.0")
# No prefill contexts but with the second model runner.
WITHOUT_CONTEXTS = releases_of("vllm-ascend", since="0.26.0")
V2_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
# FLASHCOMM1 refuses models with vision.
WITHOUT_VISION = releases_of("vllm-ascend", before="0.18.0")
# layer_sharding is held against the role; 0.26 reads it no more.
SHARDED_LAYERS = releases_of("vllm-ascend", since="0.18.0")
# Read by int() whenever the plugin is configured: vllm_ascend/envs.py, ascend_config.py@0.22.1rc1, 0.23.0, 0.26.0rc1;
# by 0.18.0 where each is used (platform.py, utils.py, ascend_forward_context.py, worker/worker.py, attention/).
NUMBER_VARIABLES = (
    "MSMONITOR_USE_DAEMON",
    "VLLM_ASCEND_BALANCE_SCHEDULING",
    "VLLM_ASCEND_ENABLE_FLASHCOMM1",
    "VLLM_ASCEND_ENABLE_FUSED_MC2",
    "VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE",
    "VLLM_ASCEND_ENABLE_MLAPO",
    "VLLM_ASCEND_ENABLE_NZ",
    "VLLM_ASCEND_FLASHCOMM2_PARALLEL_SIZE",
    "VLLM_ASCEND_FUSION_OP_TRANSPOSE_KV_CACHE_BY_BLOCK",
)
DEFAULT_BLOCK = 128
# Mooncake takes its rpc ports at random from here (MC_MIN_RPC_PORT, MC_MAX_RPC_PORT).
MOONCAKE_RPC = (15000, 17000)
# AscendDirectTransport's first port, and how many each device draws from: Mooncake 0.3.8 and later, and before.
DIRECT_FIRST, DIRECT_WIDTH, DIRECT_OLD_WIDTH = 20000, 100, 1000


def additional_keys_known(view: PlanView) -> Iterator[Finding]:
    """Keys of `additional-config` are ones that the plugin's release reads there: others have no effect."""
    known = _known_keys(view)
    if not known:
        return
    for process in view.variants:
        keys = sorted(_additional(view, process).keys() - known)
        if keys:
            listed = (
                f"key {keys[0]}: it has" if len(keys) == 1 else f"keys {', '.join(keys)}: they have"
            )
            what = (
                f"vllm-ascend {view.release.version} reads no additional-config {listed} no effect."
            )
            fix = "Remove what was meant for another release, or write it in the map that it belongs to."
            yield _about(process, "additional-config", what, fix)


def flash_comm_layout(view: PlanView) -> Iterator[Finding]:
    """FLASHCOMM1 needs tensor parallelism, expert parallelism, and a captured size that it divides."""
    for process in view.variants:
        if not _is_on(view, process, "enable_flashcomm1", FLASH_COMM):
            continue
        tensor = view.size(process, "tensor-parallel-size")
        sizes = captured_sizes(view, process)
        is_eager = bool(view.flags(process).get("enforce-eager"))
        has_vision = bool(
            view.checkpoint and view.checkpoint.shape and view.checkpoint.shape.vision
        )
        what, other = "", ""
        if has_vision and view.is_among(WITHOUT_VISION):
            what = f"FLASHCOMM1 of vllm-ascend {view.release.version} refuses models with vision."
        elif tensor <= 1:
            what = (
                f"FLASHCOMM1 needs tensor parallelism above 1; --tensor-parallel-size is {tensor}."
            )
        elif not view.flags(process).get("enable-expert-parallel"):
            what, other = (
                "FLASHCOMM1 needs expert parallelism.",
                "Set expert_parallel: true, or add",
            )
        elif sizes and not is_eager and not any(size % tensor == 0 for size in sizes):
            what = f"FLASHCOMM1 drops captured sizes that are no multiples of {tensor}, and none is left."
            other = f"Capture a multiple of {tensor} in compilation-config, or add"
        if what:
            fix = f'{other or "Add"} env: {{{FLASH_COMM}: "0"}} there.'
            field = f"roles.{process.role}.env.{FLASH_COMM}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def numbers_are_numbers(view: PlanView) -> Iterator[Finding]:
    """Variables that vllm-ascend reads as numbers hold whole numbers: `1`, and not `true`."""
    known = view.environment.names
    for process in view.variants:
        for name in NUMBER_VARIABLES:
            value = process.env.get(name)
            if value is not None and name in known and not _is_whole(value):
                what = f"{name} is {value!r}, and no whole number."
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix="Write 0 or 1.", process=process.id)


def balance_scheduling_mixed(view: PlanView) -> Iterator[Finding]:
    """Balance scheduling is for a role that both prefills and decodes."""
    for process in view.variants:
        is_on = _is_on(view, process, "enable_balance_scheduling", BALANCE)
        if is_on and _kv_role(view, process) not in (None, "kv_both"):
            what = f"Balance scheduling is on, and {process.role} does not both prefill and decode."
            yield _about_balance(process, what, "Switch it off there")


def recompute_scheduler_role(view: PlanView) -> Iterator[Finding]:
    """The recompute scheduler is for prefill and decode; since 0.23.0 for decode alone, and ignored on prefill."""
    decode_alone = view.is_among(DECODE_ALONE)
    for process in view.variants:
        role = _kv_role(view, process)
        if not _is_on(view, process, "recompute_scheduler_enable", ""):
            continue
        if decode_alone and role not in ("kv_consumer", "kv_producer"):
            what = f"recompute_scheduler_enable is for decode since vllm-ascend 0.23.0, not for {process.role}."
        elif role in (None, "kv_both"):
            what = "recompute_scheduler_enable is for prefill and decode, not for a role that does both."
        else:
            continue
        yield _about(process, "additional-config", what, "Remove it there.")


def recompute_on_decode_alone(view: PlanView) -> Iterator[Finding]:
    """The recompute scheduler belongs to decode: on prefill it led to wrong answers, and later releases ignore it."""
    ignored = view.is_among(DECODE_ALONE)
    for process in view.variants:
        is_on = _is_on(view, process, "recompute_scheduler_enable", "")
        if is_on and _kv_role(view, process) == "kv_producer":
            then = "it is ignored" if ignored else "answers may be wrong (vllm-ascend#11265)"
            what = f"recompute_scheduler_enable is on for prefill: {then}."
            yield _about(process, "additional-config", what, "Remove it there; decode keeps it.")


def decode_has_no_stages(view: PlanView) -> Iterator[Finding]:
    """MooncakeConnectorV1 hands over to a decode of one pipeline stage, and splits stages or contexts, not both."""
    for process in view.variants:
        if view.kv_config(process).get("kv_connector") != "MooncakeConnectorV1":
            continue
        stages = view.size(process, "pipeline-parallel-size")
        contexts = view.size(process, "prefill-context-parallel-size")
        if stages > 1 and _kv_role(view, process) == "kv_consumer":
            what = f"decode has {stages} pipeline stages; MooncakeConnectorV1 takes one."
        elif stages > 1 and contexts > 1:
            what = f"{process.role} has {stages} pipeline stages and {contexts} context-parallel ranks."
        else:
            continue
        field = f"roles.{process.role}.pipeline_parallel"
        fix = "Use pipeline_parallel: 1."
        if contexts > 1:
            fix = "Use pipeline_parallel: 1, or remove prefill-context-parallel-size."
        yield Finding(field=field, what=what, fix=fix, process=process.id)


def prefill_contexts_possible(view: PlanView) -> Iterator[Finding]:
    """Prefill contexts of vllm-ascend run without data parallelism since 0.22, and not at all since 0.26."""
    has_none = view.is_among(WITHOUT_CONTEXTS)
    for process in view.variants:
        contexts = view.size(process, "prefill-context-parallel-size")
        ranks = view.readings[process.id].group_size
        if contexts <= 1:
            continue
        if has_none and process.env.get(V2_RUNNER) not in TRUE_WORDS:
            release = f"vllm-ascend {view.release.version}"
            what = (
                f"{release} has no prefill context parallelism; {process.role} asks for {contexts}."
            )
        elif ranks > 1:
            what = f"{contexts} prefill context-parallel ranks exclude {ranks} data-parallel ones."
        else:
            continue
        yield _about(process, "prefill-context-parallel-size", what, "Remove it there.")


def balance_scheduling_unchecked(view: PlanView) -> Iterator[Finding]:
    """Before vllm-ascend 0.18 nothing keeps balance scheduling off a role that it is not for."""
    for process in view.variants:
        is_on = _is_on(view, process, "enable_balance_scheduling", BALANCE)
        if is_on and _kv_role(view, process) not in (None, "kv_both"):
            what = f"Balance scheduling is on for {process.role}, and is for a role that both prefills and decodes."
            yield _about_balance(process, what, "Switch it off there, for 0.18 refuses it")


def interleave_equals_block(view: PlanView) -> Iterator[Finding]:
    """With context parallelism and a KV connector, blocks are as large as the interleave."""
    for process in view.variants:
        flags = view.flags(process)
        block = as_int(flags.get("block-size"), DEFAULT_BLOCK)
        interleave = as_int(flags.get("cp-kv-cache-interleave-size"), 1)
        context = view.size(process, "decode-context-parallel-size")
        if context > 1 and _kv_role(view, process) is not None and block != interleave:
            what = (
                f"With decode-context-parallel-size {context} and a KV connector, "
                f"cp-kv-cache-interleave-size {interleave} differs from block-size {block}."
            )
            fix = f"Add flags: {{cp-kv-cache-interleave-size: {block}}}."
            yield _about(process, "cp-kv-cache-interleave-size", what, fix)


def decode_only_settings(view: PlanView) -> Iterator[Finding]:
    """What vllm-ascend takes on one side of prefill/decode alone stands there."""
    is_asked = view.is_among(SHARDED_LAYERS) and "layer_sharding" in _known_keys(view)
    for process in view.variants:
        additional, role = _additional(view, process), _kv_role(view, process)
        decodes = role in ("kv_consumer", "kv_both")
        fine = as_map(additional.get("finegrained_tp_config"))
        is_eager = bool(view.flags(process).get("enforce-eager"))
        shards = is_asked and bool(additional.get("layer_sharding"))
        wrong = (
            ("enable_kv_nz", bool(additional.get("enable_kv_nz")) and not decodes, "decode"),
            ("layer_sharding", shards and role != "kv_producer", "prefill"),
            (
                "oproj_tensor_parallel_size",
                as_int(fine.get("oproj_tensor_parallel_size"), 0) > 0 and (not decodes or is_eager),
                "decode with graphs",
            ),
        )  # fmt: skip
        for key, is_wrong, where in wrong:
            if is_wrong:
                what = f"{key} is for {where} alone, not for {process.role}."
                yield _about(process, "additional-config", what, "Remove it there.")


def graphs_not_blocked(view: PlanView) -> Iterator[Finding]:
    """Graphs and ASCEND_LAUNCH_BLOCKING=1 exclude each other."""
    for process in view.variants:
        flags = view.flags(process)
        mode = str(as_map(flags.get("compilation-config")).get("cudagraph_mode", "")).upper()
        captures = not flags.get("enforce-eager") and mode != "NONE"
        if captures and process.env.get("ASCEND_LAUNCH_BLOCKING") == "1":
            what = "ASCEND_LAUNCH_BLOCKING=1 does not work with graphs."
            fix = "Remove it, or add flags: {enforce-eager: true} while debugging."
            yield Finding(field=f"roles.{process.role}.env", what=what, fix=fix, process=process.id)


def kv_ports_clear(view: PlanView) -> Iterator[Finding]:
    """Mooncake's listeners lie outside of the ports that it takes at random."""
    for process, first, last, num_devices in _kv_listeners(view):
        drawn = (
            MOONCAKE_RPC,
            (_direct_first(process), _direct_first(process) + num_devices * DIRECT_WIDTH),
        )
        for low, high in drawn:
            if first <= high and last >= low:
                what = f"kv ports {first}-{last} of {process.id} lie in {low}-{high}, from which Mooncake draws."
                yield _about(process, "kv-transfer-config", what, "Use 36000 or above.")


def kv_ports_recommended(view: PlanView) -> Iterator[Finding]:
    """Mooncake's listeners also lie outside of what older Mooncake releases take at random."""
    for process, first, last, num_devices in _kv_listeners(view):
        base = _direct_first(process)
        low, high = base + num_devices * DIRECT_WIDTH, base + num_devices * DIRECT_OLD_WIDTH
        if low < first < high or low < last < high:
            what = f"kv ports {first}-{last} of {process.id} lie below {high}: Mooncake before 0.3.8 draws from there."
            yield _about(process, "kv-transfer-config", what, f"Use {high} or above.")


def decode_has_hosts_of_its_own(view: PlanView) -> Iterator[Finding]:
    """Prefill and decode of a large model are on more than one host each way: the guide advises against 1P1D."""
    hosts = {
        role: {p.host for p in view.engines if p.role == role} for role in ("prefill", "decode")
    }
    if view.checkpoint is None or view.checkpoint.shape is None:
        return
    if [len(found) for found in hosts.values()] == [1, 1]:
        what = (
            f"One prefill host and one decode host: beside {view.checkpoint.id} their memory is too small for many "
            "requests, and its guide advises against 1P1D."
        )
        fix = "Use two prefill replicas, and one decode replica over two hosts, as a3-2p1d does."
        yield Finding(field="roles.decode.data_parallel", what=what, fix=fix)


def _kv_listeners(view: PlanView) -> Iterator[tuple[Process, int, int, int]]:
    """(process, first port, last port, devices of its host) of every Mooncake listener on Ascend."""
    devices = {host.name: host.num_devices for host in view.plan.hosts}
    for process in view.engines:
        for bind in view.readings[process.id].binds:
            if bind.name == "kv":
                yield process, bind.port, bind.port + bind.count - 1, devices[process.host]


def _direct_first(process: Process) -> int:
    """Where AscendDirectTransport begins to draw: ASCEND_BASE_PORT moves it."""
    return as_int(process.env.get("ASCEND_BASE_PORT"), DIRECT_FIRST)


def _known_keys(view: PlanView) -> frozenset[str]:
    """The keys of `additional-config` that the release reads."""
    return view.environment.additional_config


def _additional(view: PlanView, process: Process) -> Mapping[str, object]:
    return as_map(view.flags(process).get("additional-config"))


def _kv_role(view: PlanView, process: Process) -> object:
    return view.kv_config(process).get("kv_role")


def _is_whole(text: str) -> bool:
    """Whether Python's int() takes a text."""
    try:
        int(text)
    except ValueError:
        return False
    return True


def _is_on(view: PlanView, process: Process, key: str, variable: str) -> bool:
    """Whether a switch is on: a key of the scheduler's, else a key, as the release reads them, else a variable."""
    additional, known = _additional(view, process), _known_keys(view)
    places = [as_map(additional.get(SCHEDULER))] if SCHEDULER in known else []
    if key in known:
        places.append(additional)
    for place in places:
        if key in place:
            return bool(place[key])
    return process.env.get(variable) in TRUE_WORDS


def _about_balance(process: Process, what: str, fix: str) -> Finding:
    """At the variable where that is set, else at the key."""
    if BALANCE in process.env:
        field = f"roles.{process.role}.env.{BALANCE}"
        return Finding(field=field, what=what, fix=f"{fix}: {BALANCE}.", process=process.id)
    return _about(process, "additional-config", what, f"{fix}: enable_balance_scheduling.")


def _about(process: Process, flag: str, what: str, fix: str) -> Finding:
    return Finding(
        field=f"roles.{process.role}.flags.{flag}", what=what, fix=fix, process=process.id
    )
