"""Compose files: what their services run, as Compose would start them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ProblemsFound
from infra.plan.foreign.assumed import Told
from tests.plan.foreign.importing import argvs, imported, judged

NAME = "compose.yaml"
HEAD = "services:\n  vllm:\n    image: vllm/vllm-openai:v0.22.1\n"


def test_a_text_is_cut_into_words_and_a_list_stands_as_it_is(tmp_path: Path) -> None:
    text = f"""{HEAD}    command: >
      --model 'a model'
      --port 8100
  other:
    image: vllm/vllm-openai:v0.22.1
    command: [--model, "b c", --port, 8200]
"""
    assert argvs(imported(tmp_path, text, NAME)) == [
        ("vllm", "serve", "--model", "a model", "--port", "8100"),
        ("vllm", "serve", "--model", "b c", "--port", "8200"),
    ]


def test_findings_stand_at_the_lines_of_a_folded_command(tmp_path: Path) -> None:
    text = f"""{HEAD}    command: >
      --model m/n

      --no-such-flag 1
      --port 8100
"""
    found = judged(tmp_path, text, NAME)
    assert [(p.rule, p.line) for p in found.problems if p.rule == "unknown-flag"] == [
        ("unknown-flag", 7)
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${A}", "one"),
        ("$A", "one"),
        ("$$A", "$A"),
        ("${A:-two}", "one"),
        ("${NONE:-two}", "two"),
        ("${EMPTY:-two}", "two"),
        ("${EMPTY-two}", ""),
        ("${A:+two}", "two"),
        ("${NONE:+two}", ""),
        ("${NONE:-${A}}", "one"),
        ("${NONE:?tell me}", "$NONE"),
        ("$NONE", "$NONE"),
    ],
)
def test_variables_are_filled_in_as_compose_does(tmp_path: Path, written: str, read: str) -> None:
    text = f"{HEAD}    command: [--model, m/n, --served-model-name, 'x{written}']\n"
    settings = {"A": "one", "EMPTY": ""}
    assert argvs(imported(tmp_path, text, NAME, settings=settings))[0][-1] == f"x{read}"


def test_what_nothing_settles_is_said_at_its_line(tmp_path: Path) -> None:
    text = f"{HEAD}    command:\n      - --model\n      - m/n\n      - --port\n      - ${{PORT}}\n"
    rows = [(row.line, row.text) for row in imported(tmp_path, text, NAME).not_understood]
    assert rows == [(8, "$PORT")]


def test_variables_beside_the_file_are_read_and_the_operators_come_first(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MODEL=m/n\nPORT=1\n")
    (tmp_path / "more.env").write_text("NCCL_DEBUG=INFO\nUCX_TLS=rc\n")
    text = f"""{HEAD}    env_file: [{{path: more.env}}]
    environment: {{UCX_TLS: tcp, HF_TOKEN: abc, VLLM_X: true, VLLM_Y: null}}
    command: --model $MODEL --port $PORT
"""
    recipe = imported(tmp_path, text, NAME, settings={"PORT": "8100"})
    process = recipe.assembled.plan.processes[0]
    assert process.argv[2:] == ("--model", "m/n", "--port", "8100")
    assert process.env == {
        "NCCL_DEBUG": "INFO",
        "UCX_TLS": "tcp",
        "HF_TOKEN": "***",
        "VLLM_X": "true",
    }
    assert [row.text for row in recipe.not_understood] == ["VLLM_Y"]


def test_a_variable_that_the_caller_hands_on_is_taken_for_unset(tmp_path: Path) -> None:
    text = f"{HEAD}    environment: [CUDA_VISIBLE_DEVICES]\n    command: --model m/n\n"
    assert imported(tmp_path, text, NAME).assembled.plan.processes[0].env == {}
    told = imported(tmp_path, text, NAME, settings={"CUDA_VISIBLE_DEVICES": "1"})
    assert told.assembled.plan.processes[0].env == {"CUDA_VISIBLE_DEVICES": "1"}


def test_no_file_elsewhere_is_opened(tmp_path: Path) -> None:
    text = f"{HEAD}    env_file: /etc/passwd\n    command: --model m/n\n"
    recipe = imported(tmp_path, text, NAME)
    assert recipe.assembled.plan.processes[0].env == {}
    assert [row.text for row in recipe.not_understood] == ["variables of /etc/passwd"]


@pytest.mark.parametrize(
    ("keys", "devices"),
    [
        ("gpus: [{count: 2}]", 2),
        ("gpus: [{device_ids: ['0', '1', '2']}]", 3),
        ("deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 4}]}}}", 4),
        ("deploy: {resources: {reservations: {devices: [{count: all}]}}}", 8),
        ("devices: [/dev/davinci0, '/dev/davinci1:/dev/davinci1', /dev/davinci_manager]", 2),
    ],
)
def test_devices_are_those_that_a_service_reserves(tmp_path: Path, keys: str, devices: int) -> None:
    text = f"{HEAD}    {keys}\n    command: --model m/n\n"
    recipe = imported(tmp_path, text, NAME, told=Told(accelerator="h200"))
    assert [host.num_devices for host in recipe.assembled.plan.hosts] == [devices]


def test_an_entry_point_takes_the_place_of_the_images(tmp_path: Path) -> None:
    text = f"""{HEAD}    entrypoint: ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    command: --model m/n
"""
    argv = argvs(imported(tmp_path, text, NAME))[0]
    assert argv == ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m/n")


def test_a_script_in_a_service_is_followed_with_its_variables(tmp_path: Path) -> None:
    text = f"""{HEAD}    environment: [PORT=8100]
    entrypoint: bash -c
    command:
      - |
        MODEL=m/n
        exec vllm serve $$MODEL --port $$PORT
"""
    assert argvs(imported(tmp_path, text, NAME)) == [("vllm", "serve", "m/n", "--port", "8100")]


def test_arguments_go_to_the_script_that_is_the_entry_point(tmp_path: Path) -> None:
    text = f"""{HEAD}    entrypoint:
      - bash
      - -c
      - |
        if [ "$${{FAST:-0}}" = 1 ]; then
          exec vllm serve --enforce-eager "$$@"
        else
          exec vllm serve "$$@"
        fi
      - --
    command: [--model, m/n, --hf-overrides, '{{"a":${{A:-${{B:-0.5}}}}}}']
"""
    assert argvs(imported(tmp_path, text, NAME)) == [
        ("vllm", "serve", "--model", "m/n", "--hf-overrides", '{"a":0.5}')
    ]


def test_services_with_networks_of_their_own_may_bind_the_same_port(tmp_path: Path) -> None:
    both = f"{HEAD}    command: --model m/n\n  other:\n    image: vllm/vllm-openai:v0.22.1\n    command: --model m/n\n"
    apart = [p.rule for p in judged(tmp_path, both, NAME).problems]
    shared = both.replace("    command", "    network_mode: host\n    command")
    together = [p.rule for p in judged(tmp_path, shared, NAME).problems]
    assert "port-twice" not in apart
    assert "port-twice" in together
    chosen = shared.replace("    command", "    profiles: [one]\n    command")
    assert "port-twice" not in [p.rule for p in judged(tmp_path, chosen, NAME).problems]


def test_what_changes_a_service_and_is_not_followed_is_listed(tmp_path: Path) -> None:
    text = f"""include: [other.yaml]
{HEAD}    command: --model m/n 'open
    deploy: {{replicas: 3}}
    extends: {{service: base}}
  metrics:
    image: prom/prometheus
"""
    texts = [row.text for row in imported(tmp_path, text, NAME).not_understood]
    assert texts == [
        "include",
        "'open",
        "services.vllm.deploy.replicas",
        "services.vllm.extends",
        "services.metrics",
    ]


def test_a_file_whose_services_run_no_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match="engine"):
        imported(tmp_path, "services:\n  a:\n    image: nginx\n  b: text\n", NAME)


ALTERNATIVES = """\
x-base: &base
  image: vllm/vllm-openai:v0.22.1
  container_name: vllm
  network_mode: host
  shm_size: 16gb
  environment: [VLLM_HOST_IP=192.0.2.1]
services:
  short:
    <<: *base
    command: --model moonshotai/Kimi-K2.5 --tensor-parallel-size 8 --port 8000 --max-model-len 32768
  two-nodes:
    <<: *base
    command: --model moonshotai/Kimi-K2.5 -tp 16 --port 8000 --nnodes 2 --node-rank 0 --master-addr 192.0.2.1
  long:
    <<: *base
    profiles: [long]
    command: --model moonshotai/Kimi-K2.5 --tensor-parallel-size 8 --port 8000 --max-model-len 262144
"""


@pytest.mark.parametrize(
    "text",
    [
        ALTERNATIVES,
        ALTERNATIVES.replace("  container_name: vllm\n", "")
        .replace("    command", "    profiles: [a]\n    command", 1)
        .replace(
            "  two-nodes:\n    <<: *base\n", "  two-nodes:\n    <<: *base\n    profiles: [b]\n"
        ),
    ],
    ids=["one container name", "profiles"],
)
def test_services_that_are_never_up_together_are_deployments_of_their_own(
    text: str, tmp_path: Path
) -> None:
    recipe = imported(tmp_path, text, NAME)
    every = (recipe, *recipe.others)
    assert [each.choice["variant"] for each in every] == ["short", "two-nodes", "long"]
    assert [len(each.assembled.plan.processes) for each in every] == [1, 1, 1]
    assert [p for p in judged(tmp_path, text, NAME).problems if p.blocks] == []
    chosen = imported(tmp_path, text, NAME, settings={"variant": "long"})
    assert chosen.others == ()
    assert argvs(chosen)[0][-1] == "262144"


def test_a_mistake_of_one_variant_refuses_the_file_and_names_it(tmp_path: Path) -> None:
    text = ALTERNATIVES.replace("--max-model-len 262144", "--max-model-len 262144 --no-such-flag")
    (problem,) = (p for p in judged(tmp_path, text, NAME).problems if p.blocks)
    assert problem.rule == "unknown-flag"
    assert "So with variant=long of the 3 combinations of the file." in problem.what


def test_one_container_name_on_two_hosts_is_one_deployment(tmp_path: Path) -> None:
    text = ALTERNATIVES[: ALTERNATIVES.index("  long:")].replace(
        "    command: --model moonshotai/Kimi-K2.5 --tensor-parallel-size 8",
        "    environment: [VLLM_HOST_IP=192.0.2.2]\n"
        "    command: --model moonshotai/Kimi-K2.5 -tp 16 --nnodes 2 --node-rank 1 --headless --master-addr 192.0.2.1",
    )
    recipe = imported(tmp_path, text, NAME)
    assert recipe.others == ()
    assert {p.group for p in recipe.assembled.plan.processes} == {"unified/0"}


def test_services_that_are_up_together_still_clash(tmp_path: Path) -> None:
    text = ALTERNATIVES[: ALTERNATIVES.index("  two-nodes:")].replace(
        "  container_name: vllm\n", ""
    )
    text += text[text.index("  short:") :].replace("short:", "other:")
    assert "port-twice" in {p.rule for p in judged(tmp_path, text, NAME).problems}
