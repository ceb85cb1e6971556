"""Roles joined with the catalogue: who says a value, and who wins."""

from __future__ import annotations

from infra.plan.compile import compile_file, compile_stack
from infra.plan.process import Process
from infra.spec.load import load_stack
from tests.plan.generated import CATALOG, loaded


def first(name: str, *sets: str) -> Process:
    return compile_stack(load_stack(name, sets), catalog=CATALOG).plan.processes[0]


def test_the_operator_wins_over_the_recipe_and_is_named() -> None:
    name = "VLLM_USE_FLASHINFER_MOE_FP4"
    plain = first("gb200-2p1d")
    changed = first("gb200-2p1d", f"roles.prefill.env.{name}=false")
    assert plain.env[name] == "1"
    assert plain.env_origins[name].kind == "recipe"
    assert changed.env[name] == "0"
    assert changed.env_origins[name].kind == "operator"


def test_a_role_wins_over_the_defaults_of_every_role() -> None:
    process = first("gb200-2p1d", "defaults.flags.seed=1", "roles.prefill.flags.seed=2")
    assert process.argv[process.argv.index("--seed") + 1] == "2"


def test_flags_that_the_stack_writes_have_the_stack_as_origin() -> None:
    assert first("gb200-2p1d").flag_origins["--enforce-eager"].kind == "role"


def test_sizes_have_the_compiler_as_origin() -> None:
    origin = first("gb200-2p1d").flag_origins["--data-parallel-rank"]
    assert (origin.kind, origin.detail) == ("compiler", "one process per rank")


def test_features_that_are_left_out_leave_no_flag() -> None:
    words = first("h200-tp8", "roles.unified.features=[reasoning]").argv
    assert "--reasoning-parser" in words
    assert "--tool-call-parser" not in words


def test_capabilities_follow_from_the_flags() -> None:
    def capabilities(*sets: str) -> tuple[str, ...]:
        return compile_stack(load_stack("h200-tp8", sets), catalog=CATALOG).plan.capabilities

    assert capabilities() == ("chat", "stream", "vision", "tools", "reasoning")
    assert capabilities("roles.unified.features=[vision]") == ("chat", "stream", "vision")
    assert "vision" not in capabilities("roles.unified.flags.language-model-only=true")


def test_argument_vectors_carry_the_revision_and_the_same_path_on_both_roles() -> None:
    plan = compile_file("gb200-2p1d", catalog=CATALOG).plan
    revision = CATALOG.checkpoint("kimi-k2.5-nvfp4").revision
    models = {process.argv[2] for process in plan.processes if process.kind == "engine"}
    assert models == {f"/models/kimi-k2.5-nvfp4/{revision}"}
    changed = compile_stack(
        load_stack("gb200-2p1d", ("weights.revision=abc", "weights.path=/data")), catalog=CATALOG
    )
    assert changed.plan.processes[0].argv[2] == "/data/kimi-k2.5-nvfp4/abc"


def test_every_engine_process_has_a_served_model_name() -> None:
    for name in ("gb200-2p1d", "a3-2p1d", "h200-sglang-tp8"):
        for process in compile_file(name, catalog=CATALOG).plan.processes:
            assert process.kind == "router" or "--served-model-name" in process.argv


def test_a_role_may_have_another_accelerator() -> None:
    data: dict[str, object] = {
        "checkpoint": "kimi-k2.5-int4",
        "accelerator": "h200",
        "engine": {"name": "vllm", "version": "0.22.1"},
        "platform": "existing-hosts",
        "roles": {
            "prefill": {"tensor_parallel": 8},
            "decode": {"tensor_parallel": 8, "accelerator": "b200"},
        },
        "kv_transfer": "nixl",
        "router": {"name": "vllm-router"},
    }
    plan = compile_stack(loaded(data), catalog=CATALOG).plan
    assert [host.accelerator for host in plan.hosts] == ["h200", "b200"]


def test_secrets_are_references() -> None:
    stack = load_stack("h200-tp8", ("secrets.hf_token={env: HF_TOKEN}",))
    plan = compile_stack(stack, catalog=CATALOG).plan
    assert plan.secrets == {"hf_token": {"env": "HF_TOKEN"}}
    assert not any("HF_TOKEN" in word for process in plan.processes for word in process.argv)


def test_a_switch_that_is_off_is_spelt_for_its_release() -> None:
    sets = ("engine.version=0.33.0", "roles.unified.flags.enable-prefix-caching=false")
    assert "--disable-prefix-caching" in first("gb200-nvfp4-tp4", *sets).argv


def test_an_abbreviated_flag_takes_the_place_of_the_recipes() -> None:
    argv = first("h200-tp8", "roles.unified.flags.mm-encoder-tp=weights").argv
    words = [word for word in argv if word.startswith("--mm-encoder-tp")]
    assert words == ["--mm-encoder-tp-mode"]
