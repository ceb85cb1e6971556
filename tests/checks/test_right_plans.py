"""What a rule once refused and the engines and routers take."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from infra.checks.judge import judge_stack
from infra.plan.compile import compile_file
from tests.checks.rule_cases import CATALOG, judged, right_document
from tests.plan_edits import Document, PlanEdit, apply_edits, process_row

GB200, MOONCAKE = "gb200-2p1d", "sglang-pd-mooncake"
NAME = "--served-model-name"


def rules_of(stack: str, *edits: PlanEdit) -> dict[str, str]:
    document = right_document(stack)
    apply_edits(document, edits)
    return rules_in(document)


def rules_in(document: Document) -> dict[str, str]:
    return {problem.rule: problem.what for problem in judged(document)}


def flag(process: str, option: str, value: str | None) -> PlanEdit:
    return PlanEdit(process=process, flag=option, value=value)


@pytest.mark.parametrize(
    "option", ["--max-concurrent-requests", "--rate-limit-tokens-per-second", "--redis-pool-max"]
)
def test_a_router_takes_the_negative_numbers_that_its_release_takes(option: str) -> None:
    assert "router-number" not in rules_of(MOONCAKE, flag("router/0", option, "-1"))
    assert "router-number" in rules_of(GB200, flag("router/0", "--queue-size", "-1"))


def test_a_router_that_passes_clients_keys_on_needs_none_of_its_own() -> None:
    assert "router-key" not in rules_of("sglang-pd-nixl", flag("prefill/*", "--api-key", "$KEY"))
    assert "router-key" in rules_of(GB200, flag("prefill/*", "--api-key", "$KEY"))


def test_the_proxy_of_vllm_ascend_is_no_wheel() -> None:
    assert "router-number" not in rules_of("a3-2p1d", flag("router/0", "--max-retries", "-1"))


@pytest.mark.parametrize(
    "template",
    ["tool_chat_template_kimi.txt", "kimi.j2", "template_basic.jinja", "templates/kimi", "{{ x }}"],
)
def test_vllm_takes_what_may_be_a_file(template: str) -> None:
    found = rules_of("h200-tp8", flag("unified-0/0", "--chat-template", template))
    assert "chat-template" not in found


@pytest.mark.parametrize("template", ["kimi.j2", "kimi_k2.txt"])
def test_sglang_takes_two_kinds_of_files_alone(template: str) -> None:
    found = rules_of("h200-sglang-tp8", flag("unified-0/0", "--chat-template", template))
    assert "chat-template" in found


@pytest.mark.parametrize(("tensor", "data"), [("96", "96"), ("48", "12"), ("192", "3")])
def test_sglangs_attention_ranks_have_all_heads_of_their_own(tensor: str, data: str) -> None:
    edits = (flag("unified-0/0", "--tp-size", tensor), flag("unified-0/0", "--dp-size", data))
    assert "heads-divisible" not in rules_of("sglang-dp-attention", *edits)
    alone = rules_of(
        "sglang-dp-attention", *edits, flag("unified-0/0", "--enable-dp-attention", None)
    )
    assert "heads-divisible" in alone


def test_aiter_counts_the_heads_of_an_attention_rank() -> None:
    on_amd = PlanEdit(host="unified-0", field="accelerator", value="mi355x")
    assert "aiter-heads" not in rules_of("sglang-dp-attention", on_amd)
    alone = flag("unified-0/0", "--enable-dp-attention", None)
    assert "aiter-heads" in rules_of("sglang-dp-attention@0.5.9", on_amd, alone)
    # 0.5.11 and later take 4 and 8 heads, too
    assert "aiter-heads" not in rules_of("sglang-dp-attention@0.5.16", on_amd, alone)


def test_the_plugin_chooses_its_attention_itself() -> None:
    named = flag("unified-0/0", "--attention-backend", "ROCM_AITER_MLA")
    on_nvidia = PlanEdit(host="*", field="accelerator", value="h200")
    found = rules_of("a3-dp4tp4", named, on_nvidia)
    assert "engine-vendor" in found
    assert not {"attention-accelerator", "attention-model", "attention-settings"} & found.keys()


def test_a_stack_names_the_cache_beside_an_engine() -> None:
    config = "{kv_connector: LMCacheConnectorV1, kv_role: kv_both}"
    sets = (f"roles.unified.flags.kv-transfer-config={config}",)
    compiled = compile_file("h200-tp8", catalog=CATALOG, sets=sets)
    words = compiled.plan.processes[0].argv
    assert '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}' in words
    assert not [p for p in judge_stack(compiled.plan, compiled.stack, CATALOG) if p.blocks]


@pytest.mark.parametrize("value", ["0.0.0.0", "192.0.2.1", "engine.example.com"])
def test_an_engine_that_listens_where_it_is_dialled_is_reached(value: str) -> None:
    assert "loopback-endpoint" not in rules_of(GB200, flag("prefill-0/0", "--host", value))


@pytest.mark.parametrize(
    "words", [["-O3"], ["-O", "1"], ["-cc.cudagraph_mode=NONE"], ["-cc.mode", "3", "-O=0"]]
)
def test_short_flags_are_taken_as_vllms_parser_takes_them(words: list[str]) -> None:
    document = right_document("h200-tp8")
    process_row(document, "unified-0/0")["argv"] += words
    assert "unknown-flag" not in rules_in(document)


@pytest.mark.parametrize("mode", ["3", '"VLLM_COMPILE"', '"none"', "null"])
def test_a_compilation_mode_is_a_number_or_a_name(mode: str) -> None:
    edit = flag("unified-0/0", "--compilation-config", f'{{"mode": {mode}}}')
    assert "json-flag-value" not in rules_of("h200-tp8", edit)


@pytest.mark.parametrize(
    "config",
    [
        (
            '{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":['
            '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"},'
            '{"kv_connector":"OffloadingConnector","kv_role":"kv_both",'
            '"kv_connector_extra_config":{"cpu_bytes_to_use":1e11}}]}}'
        ),
        '{"kv_connector":"Own","kv_connector_module_path":"own.connector","kv_role":"kv_both"}',
        '{"kv_connector":"P2pNcclConnector","kv_role":"kv_both"}',
    ],
)
def test_caches_beside_an_engine_are_connectors_too(config: str) -> None:
    found = rules_of("h200-tp8", flag("unified-0/0", "--kv-transfer-config", config))
    assert not found.keys() & {"kv-connector", "kv-role", "flag-combination", "json-flag-value"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_ROCM_USE_AITER", "True"),  # compared with words, and not read as a number
        ("VLLM_USE_DEEP_GEMM", " 1 "),
        ("VLLM_LOG_STATS_INTERVAL", "2.5"),
        ("VLLM_MM_HASHER_ALGORITHM", "SHA256"),
        ("VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS", "container, web_search_preview,"),
    ],
)
def test_a_variable_may_be_what_its_reader_takes(name: str, value: str) -> None:
    edit = PlanEdit(process="unified-0/0", env=name, value=value)
    assert "variable-value" not in rules_of("h200-tp8", edit)


def served(role: str, *names: str) -> PlanEdit:
    """Names of every process of a role; none removes the flag."""
    return PlanEdit(process=f"{role}/*", flag=NAME, value=list(names) or None)


def weights(role: str, path: str) -> PlanEdit:
    return PlanEdit(process=f"{role}/*", model=path)


@pytest.mark.parametrize(
    "edits",
    [
        (
            weights("prefill", "/m/x"),
            weights("decode", "/m/x"),
            served("prefill"),
            served("decode", "/m/x"),
        ),
        (served("prefill", "a", "b"), served("decode", "a")),
        (served("prefill", "b", "a"), served("decode", "a", "b")),
        (served("prefill", "$NAME"), served("decode", "a")),
    ],
)
def test_processes_with_a_common_name_serve_one_model(edits: Iterable[PlanEdit]) -> None:
    assert "served-name-differs" not in rules_of(GB200, *edits)


def test_a_name_that_only_some_share_is_not_common() -> None:
    edits = (served("prefill", "a", "b"), served("decode", "b"))
    assert "served-name-differs" not in rules_of(GB200, *edits)
    one_of_them = rules_of(GB200, *edits, flag("prefill-1/0", NAME, "a"))
    assert "serves" in one_of_them["served-name-differs"]


def test_the_model_is_the_name_where_no_flag_gives_one() -> None:
    found = rules_of(GB200, served("prefill"), served("decode", "a"))
    assert "None" not in found["served-name-differs"]
    assert "/models/" in found["served-name-differs"]


def two_routers() -> Document:
    """The first prefill group is a deployment with another name, behind a router of its own."""
    document = right_document(GB200)
    first = process_row(document, "router/0")
    pairs = list(zip(first["argv"], first["argv"][1:], strict=False))
    urls = [url for word, url in pairs if word == "--prefill" and "192.0.2.1:" in url]
    words = ["vllm-router", "--host", "0.0.0.0", "--port", "8001", "--worker-urls", *urls]
    document["processes"].append(first | {"id": "router/1", "argv": words})
    for url in urls:
        at = first["argv"].index(url)
        first["argv"][at - 1 : at + 1] = []
    group = [row["id"] for row in document["processes"] if row["group"] == "prefill/0"]
    apply_edits(document, [flag(name, NAME, "other") for name in group])
    return document


def test_each_router_has_a_name_of_its_own() -> None:
    document = two_routers()
    assert "served-name-differs" not in rules_in(document)
    apply_edits(document, [flag("prefill-0/3", NAME, "x")])
    assert rules_in(document)["served-name-differs"].startswith(
        "prefill-0/3 serves x, and prefill-0/0 serves other"
    )


def test_a_gateway_of_several_models_may_list_different_names() -> None:
    named = served("decode", "x")
    assert "served-name-differs" not in rules_of(GB200, named, flag("router/0", "--enable-igw", ""))
    assert "served-name-differs" in rules_of(GB200, named)


def test_without_a_router_groups_are_deployments_of_their_own() -> None:
    no_router = PlanEdit(process="router/0", is_left_out=True)
    assert "served-name-differs" not in rules_of(GB200, served("decode", "x"), no_router)


@pytest.mark.parametrize(
    ("stack", "follower"),
    [
        ("h200-2n-tp16", "unified-1/0"),
        ("vllm-internal-2n", "unified-1/0"),
        ("sglang-2n-tp16", "unified-1/0"),
    ],
)
def test_a_follower_may_call_the_model_what_it_likes(stack: str, follower: str) -> None:
    assert rules_of(stack, flag(follower, NAME, "x")) == rules_of(stack)


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ("h200-tp8", "flashmla"),
        ("h200-tp8", "auto"),
        ("h200-tp8", "CUSTOM"),
        ("h200-tp8", "TRITON_MLA"),
        ("gb200-tp4", "CUTLASS_MLA"),
        ("mi300x-tp8", "ROCM_AITER_MLA"),
        ("a3-dp4tp4", "FLASH_ATTN"),
        ("b200-sglang-tp8", "trtllm_mla"),
    ],
)
def test_an_attention_back_end_that_runs_is_taken(stack: str, name: str) -> None:
    assert rules_of(stack, flag("unified-0/0", "--attention-backend", name)) == rules_of(stack)


def test_a_switch_that_a_shell_fills_in_chooses_no_back_end() -> None:
    edit = PlanEdit(process="unified-0/0", env="VLLM_ROCM_USE_AITER", value="$AITER")
    assert "attention-settings" not in rules_of("mi300x-tp8", edit)


@pytest.mark.parametrize(
    ("stack", "name", "flags"),
    [
        ("mi300x-tp8", "TRITON_MLA", {"--block-size": "64"}),
        ("gb200-tp4", "CUTLASS_MLA", {"--block-size": "256", "--kv-cache-dtype": "fp8"}),
        ("gb200-tp4", "TRITON_MLA", {"--decode-context-parallel-size": "4"}),
        ("gb200-tp4@0.33.0", "FLASHINFER_MLA", {"--decode-context-parallel-size": "4"}),
        ("h200-tp8@0.17.0", "FLASHMLA", {"--block-size": "16"}),  # 0.17.0 takes 64 instead
        ("mi300x-tp8@0.33.0", "ROCM_AITER_MLA", {"--decode-context-parallel-size": "8"}),
        # not held against a back end that nobody knows
        ("h200-tp8", "CUSTOM", {"--decode-context-parallel-size": "8", "--block-size": "7"}),
        ("h200-tp8", "auto", {"--kv-cache-dtype": "fp8", "--decode-context-parallel-size": "8"}),
    ],
)
def test_settings_that_an_attention_back_end_takes_are_not_refused(
    stack: str, name: str, flags: dict[str, str]
) -> None:
    more = [flag("unified-0/0", option, value) for option, value in flags.items()]
    found = rules_of(stack, flag("unified-0/0", "--attention-backend", name), *more)
    assert "attention-settings" not in found


@pytest.mark.parametrize(
    ("version", "decode", "is_refused"),
    [
        ("0.25.1", "4", False),
        ("0.25.1", "16", True),
        ("0.27.1", "4", True),
        ("0.27.1", "16", False),
    ],
)
def test_decode_contexts_span_what_the_release_lets_them(
    version: str, decode: str, is_refused: bool
) -> None:
    """With tensor parallel 8 and 2 prefill contexts: of tensor ranks a part, or all axes as a whole."""
    found = rules_of(
        "k2-thinking-h200-dcp8",
        PlanEdit(field="engine.version", value=version),
        flag("unified-0/0", "--prefill-context-parallel-size", "2"),
        flag("unified-0/0", "--decode-context-parallel-size", decode),
    )
    assert ("context-parallel-size" in found) is is_refused


@pytest.mark.parametrize(
    ("version", "options", "is_refused"),
    [
        ("0.5.9", {"decode": "trtllm_mha"}, True),
        ("0.5.10", {"decode": "trtllm_mha"}, False),
        ("0.5.16", {"decode": "trtllm_mha"}, False),
        ("0.5.16", {"": "trtllm_mha"}, True),
        ("0.5.16", {"": "trtllm_mha", "prefill": "fa3"}, False),
        ("0.5.16", {"prefill": "trtllm_mha"}, True),
        ("0.5.23", {"prefill": "trtllm_mha"}, False),
        ("0.5.23", {"": "trtllm_mha"}, False),
        ("0.5.23", {"": "trtllm_mla"}, True),
        ("0.5.16", {"prefill": "cutedsl_mla"}, True),
    ],
)
def test_hopper_has_the_attention_kernels_that_the_release_gave_it(
    version: str, options: dict[str, str], is_refused: bool
) -> None:
    edits = [
        flag("unified-0/0", f"--{role}-attention-backend".replace("---", "--"), name)
        for role, name in options.items()
    ]
    release = PlanEdit(field="engine.version", value=version)
    found = rules_of("h200-sglang-tp8", release, *edits)
    assert ("attention-accelerator" in found) is is_refused


SPECULATION = "--speculative-draft-attention-backend"


@pytest.mark.parametrize(
    ("stack", "version", "name", "value", "is_refused"),
    [
        # 0.5.9 has no table entry of fa4 for drafts, 0.5.10 has
        ("sglang-2n-tp16", "0.5.9", SPECULATION, "fa4", True),
        ("sglang-2n-tp16", "0.5.10", SPECULATION, "fa4", False),
        ("sglang-2n-tp16", "0.5.9", SPECULATION, "triton", False),
        # nothing drafts
        ("h200-sglang-tp8", "0.5.9", SPECULATION, "none-such", False),
        # with this cache SGLang takes another back end by itself
        ("b200-sglang-tp8", "0.5.9", "--attention-backend", "fa3", True),
        ("h200-sglang-tp8", "0.5.9", "--attention-backend", "fa3", False),
        ("sglang-rocm-tp4", "0.5.9", "--attention-backend", "fa3", False),
        ("b200-sglang-tp8", "0.5.9", "--decode-attention-backend", "trtllm_mla", False),
    ],
)
def test_sglangs_drafts_and_targets_attend_through_what_the_release_gave_them(
    stack: str, version: str, name: str, value: str, is_refused: bool
) -> None:
    found = rules_of(
        stack, PlanEdit(field="engine.version", value=version), flag("unified/*", name, value)
    )
    assert bool({"attention-backend", "attention-accelerator", "attention-model"} & {*found}) is (
        is_refused
    )


@pytest.mark.parametrize(
    ("stack", "version", "name", "is_refused"),
    [
        ("h200-tp8", "0.22.1", "FLASH_ATTN", False),
        ("h200-tp8", "0.22.1", "flashinfer", True),
        ("gb200-tp4", "0.22.1", "FLASHINFER", False),
        ("gb200-tp4", "0.22.1", "ROCM_AITER_FA", True),
        ("mi300x-tp8", "0.25.1", "ROCM_AITER_FA", False),
        ("mi300x-tp8", "0.25.1", "TOKENSPEED_MLA", True),
        ("h200-tp8", "0.26.0", "CUSTOM", False),
    ],
)
def test_latents_are_prefilled_with_what_the_release_has_for_the_device(
    stack: str, version: str, name: str, is_refused: bool
) -> None:
    config = PlanEdit(
        process="unified-0/0", flag="--attention-config", value={"mla_prefill_backend": name}
    )
    found = rules_of(stack, PlanEdit(field="engine.version", value=version), config)
    assert bool({"attention-backend", "attention-accelerator"} & {*found}) is is_refused


def variable(process: str, name: str, value: str) -> PlanEdit:
    return PlanEdit(process=process, env=name, value=value)


@pytest.mark.parametrize(
    ("rule", "stack", "edit"),
    [
        # what is left out has its default
        ("group-flags-differ", "a3-2p1d", flag("decode-0/0", "--tensor-parallel-size", None)),
        ("roles-disagree", GB200, flag("decode/*", "--dtype", "auto")),
        # one names what the other takes by itself
        ("roles-disagree", GB200, flag("decode/*", "--attention-backend", "FLASHINFER_MLA")),
        # NIXL hashes how KV lies, and weights have no part in that
        ("roles-disagree", GB200, flag("decode/*", "--quantization", "modelopt_fp4")),
        # no answer is parsed where no client asks
        ("parser-name", "h200-2n-tp16", flag("unified-1/0", "--tool-call-parser", "none-such")),
        # vLLM reads the rank of a node only among several
        ("router-endpoints", GB200, flag("decode-0/1", "--node-rank", "1")),
        # vllm-ascend switches it off
        ("overlap-transport", "a3-dp4tp4", flag("unified-0/0", "--enable-dbo", "")),
        # nothing of the process reads it
        ("port-variable", MOONCAKE, variable("prefill-0/0", "VLLM_MOONCAKE_BOOTSTRAP_PORT", "x")),
        (
            "server-arguments",
            "sglang-replicas",
            flag("unified-0/0", "--disaggregation-decode-tp", "3"),
        ),
        (
            "server-arguments",
            "sglang-pd-nixl",
            flag("decode-0/0", "--disaggregation-ib-device", "a,a"),
        ),
        # a shell fills it in
        ("server-arguments", "sglang-2n-tp16", flag("unified-0/0", "--dist-init-addr", "$HEAD")),
    ],
)
def test_what_the_pinned_releases_take_is_not_refused(
    rule: str, stack: str, edit: PlanEdit
) -> None:
    assert rule not in rules_of(stack, edit)


@pytest.mark.parametrize(
    ("edit", "is_refused"),
    [
        (flag("decode/*", "--attention-backend", "CUTLASS_MLA"), False),
        (flag("decode/*", "--kv-cache-dtype", "fp8"), True),
    ],
)
def test_hashes_that_an_operator_has_nobody_compare_may_differ(
    edit: PlanEdit, is_refused: bool
) -> None:
    extra = {"kv_connector_extra_config": {"enforce_handshake_compat": False}}
    uncompared = PlanEdit(process="decode/*", flag="--kv-transfer-config", value=extra)
    assert ("roles-disagree" in rules_of(GB200, edit)) is True
    assert ("roles-disagree" in rules_of(GB200, uncompared, edit)) is is_refused
