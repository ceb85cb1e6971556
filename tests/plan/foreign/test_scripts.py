"""Scripts and guides imported: processes, containers, hosts, groups, what was assumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ProblemsFound, StackError
from infra.plan.foreign.assumed import Told
from infra.plan.foreign.imported_recipe import import_recipe
from tests.plan.foreign.importing import CATALOG, argvs, imported, judged


def test_a_container_command_becomes_what_runs_inside_it(tmp_path: Path) -> None:
    recipe = imported(
        tmp_path,
        "docker run --gpus all -e NCCL_DEBUG=INFO -v /m:/models:ro --ipc=host --net=host \\\n"
        "  vllm/vllm-openai:v0.22.1 moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n",
    )
    (process,) = recipe.assembled.plan.processes
    assert process.argv == ("vllm", "serve", "moonshotai/Kimi-K2.5", "--tensor-parallel-size", "8")
    assert process.env == {"NCCL_DEBUG": "INFO"}
    assert [(m.source, m.target, m.read_only) for m in process.mounts] == [("/m", "/models", True)]
    assert recipe.assembled.plan.engine.version == "0.22.1"
    assert recipe.assembled.plan.checkpoint == "kimi-k2.5-int4"
    assert recipe.facts.unknown == {"accelerator"}


@pytest.mark.parametrize(
    "wrapped",
    [
        "srun --nodes=2 bash -c '{}'",
        "mpirun -np 2 -H a,b /bin/bash -lc '{}'",
        "kubectl exec -it pod-0 -- sh -c '{}'",
        "ssh -p 22 node0 'cd /w && {}'",
        "sudo ssh node0 bash -c '{}'",
    ],
)
def test_a_script_behind_a_wrapper_is_followed(tmp_path: Path, wrapped: str) -> None:
    command = "vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size 8"
    recipe = imported(tmp_path, f"{wrapped.format(command)}\n")
    assert argvs(recipe) == [tuple(command.split())]
    assert "read once" in recipe.not_understood[0].why


def test_words_behind_ssh_that_start_no_engine_stay_unread(tmp_path: Path) -> None:
    text = "ssh node0 'rm -rf /tmp/x'\nvllm serve m/n\n"
    recipe = imported(tmp_path, text)
    assert [row.why for row in recipe.not_understood] == ["ssh is not followed"]


@pytest.mark.parametrize(
    ("head", "program"),
    [
        ("podman run vllm/vllm-openai:v0.22.1 --model m/n", ("vllm", "serve")),
        ("docker run --entrypoint vllm any/image:1 serve m/n", ("vllm", "serve")),
        (
            "docker run --entrypoint=python3 x:1 -m sglang.launch_server --model m/n",
            ("python3", "-m"),
        ),
        (
            "sudo docker run --rm -it x:1 python3 -m vllm.entrypoints.openai.api_server --model m/n",
            ("python3", "-m"),
        ),
        ("docker run -d x:1 sglang serve --model-path m/n", ("sglang", "serve")),
        ("docker run -it x:1 bash\nvllm serve m/n", ("vllm", "serve")),
        (
            "docker run -d --name c x:1 sleep inf\ndocker exec -it c vllm serve m/n",
            ("vllm", "serve"),
        ),
    ],
)
def test_every_way_to_start_an_engine_is_known(
    tmp_path: Path, head: str, program: tuple[str, ...]
) -> None:
    (argv,) = argvs(imported(tmp_path, head))
    assert argv[:2] == program


def test_environment_of_a_container_is_its_own(tmp_path: Path) -> None:
    text = "export A=1 B=2\ndocker run -e A -e C=3 x:1 vllm serve m/n"
    (process,) = imported(tmp_path, text).assembled.plan.processes
    assert process.env == {"A": "1", "C": "3"}


def test_a_variable_file_is_read_when_it_lies_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "environment").write_text("A=1\n# no\nB=x y\n")
    text = "docker run --env-file /etc/x/environment -e B=2 x:1 vllm serve m/n"
    (process,) = imported(tmp_path, text).assembled.plan.processes
    assert process.env == {"A": "1", "B": "2"}


def test_a_variable_file_elsewhere_is_listed(tmp_path: Path) -> None:
    recipe = imported(tmp_path, "docker run --env-file /etc/passwd x:1 vllm serve m/n")
    assert recipe.assembled.plan.processes[0].env == {}
    assert [row.text for row in recipe.not_understood] == ["variables of /etc/passwd"]


def test_what_is_put_before_the_surroundings_own_is_prepended(tmp_path: Path) -> None:
    text = "export LD_LIBRARY_PATH=/opt/x:$LD_LIBRARY_PATH\nvllm serve m/n"
    (process,) = imported(tmp_path, text).assembled.plan.processes
    assert process.env_prepend == {"LD_LIBRARY_PATH": "/opt/x"}
    assert not process.env


def test_ranks_in_the_background_share_a_host_and_a_group(tmp_path: Path) -> None:
    text = (
        "for i in 0 1 2 3; do\n"
        "CUDA_VISIBLE_DEVICES=$i vllm serve moonshotai/Kimi-K2.5 --data-parallel-size 4 --data-parallel-rank $i \\\n"
        "  --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 13345 --port $((8000+i)) &\ndone\nwait\n"
    )
    plan = imported(tmp_path, text).assembled.plan
    assert [(p.id, p.group, p.dp_ranks, p.devices) for p in plan.processes] == [
        (f"unified-0/{i}", "unified/0", (i,), (i,)) for i in range(4)
    ]
    assert plan.hosts[0].address == "10.0.0.1"
    assert [c.to for p in plan.processes for c in p.connects] == ["unified-0/0"] * 3


def test_nodes_of_one_model_are_hosts_of_one_group(tmp_path: Path) -> None:
    text = "".join(
        "python3 -m sglang.launch_server --model-path m/n --tp 16 --nnodes 2 "
        f"--node-rank {rank} --dist-init-addr 10.0.0.1:5000\n"
        for rank in (0, 1)
    )
    plan = imported(tmp_path, text).assembled.plan
    assert [(p.host, p.group) for p in plan.processes] == [
        ("unified-0", "unified/0"),
        ("unified-1", "unified/0"),
    ]
    assert not imported(tmp_path, text).assembled.incomplete


def test_commands_that_wait_are_alternatives(tmp_path: Path) -> None:
    plan = imported(tmp_path, "vllm serve m/n\nvllm serve m/o\n").assembled.plan
    assert [p.group for p in plan.processes] == ["unified/0", "unified/1"]
    assert len(plan.hosts) == 2


def test_what_was_killed_does_not_run_beside_what_follows(tmp_path: Path) -> None:
    plan = imported(
        tmp_path, "vllm serve m/n &\nkill $!\nvllm serve m/n --seed 1 &\n"
    ).assembled.plan
    assert len(plan.hosts) == 2


def test_roles_follow_from_the_command_line(tmp_path: Path) -> None:
    text = "".join(
        f"vllm serve m/n --port {port} --kv-transfer-config "
        f'\'{{"kv_connector": "NixlConnector", "kv_role": "{role}"}}\' &\n'
        for port, role in ((8100, "kv_producer"), (8200, "kv_consumer"))
    )
    router = "vllm-router --prefill http://h:8100 --decode http://h:8200 --vllm-pd-disaggregation\n"
    plan = imported(tmp_path, text + router).assembled.plan
    assert [p.role for p in plan.processes] == ["prefill", "decode", "router"]
    assert plan.processes[-1].id == "router/0"


def test_a_guide_has_one_part_per_block(tmp_path: Path) -> None:
    text = (
        "# Serve\n```bash\nexport A=1\n```\ntext\n```bash\nexport B=2\nvllm serve m/n\n```\n"
        "```python\nvllm serve m/never\n```\n```shell\nvllm serve m/o\n```\n"
    )
    recipe = imported(tmp_path, text, "guide.md")
    assert [(p.argv[2], p.env) for p in recipe.assembled.plan.processes] == [
        ("m/n", {"A": "1", "B": "2"}),
        ("m/o", {"A": "1"}),
    ]
    assert [recipe.assembled.seats[p.id].launch.line for p in recipe.assembled.plan.processes] == [
        8,
        14,
    ]


def test_a_flag_of_no_known_release_is_listed(tmp_path: Path) -> None:
    recipe = imported(tmp_path, "vllm serve m/n \\\n --tensor-paralel-size 8 --max-model-len 1")
    (row,) = recipe.not_understood
    assert (row.line, row.text) == (2, "--tensor-paralel-size")
    assert "--tensor-parallel-size" in row.why


def test_secrets_of_a_file_stay_there(tmp_path: Path) -> None:
    text = "docker run -e HF_TOKEN=hf_abc -e VLLM_API_KEY=$KEY x:1 vllm serve m/n --api-key sk-1 --port 1"
    recipe = imported(tmp_path, text)
    (process,) = recipe.assembled.plan.processes
    assert process.env == {"HF_TOKEN": "***", "VLLM_API_KEY": "***"}
    assert process.argv[3:5] == ("--api-key", "***")
    assert not recipe.not_understood


def test_another_engine_is_listed(tmp_path: Path) -> None:
    recipe = imported(tmp_path, "vllm serve m/n\nsglang serve --model-path m/n\n")
    assert len(recipe.assembled.plan.processes) == 1
    assert [row.line for row in recipe.not_understood] == [2]


def test_open_words_that_fit_nowhere_leave_the_command_line(tmp_path: Path) -> None:
    recipe = imported(tmp_path, 'vllm serve m/n --port 1 $EXTRA "$@"\n')
    assert argvs(recipe) == [("vllm", "serve", "m/n", "--port", "1")]
    assert [row.text for row in recipe.not_understood] == ["$EXTRA"]


@pytest.mark.parametrize(
    ("text", "name", "told", "expected"),
    [
        ("docker run vllm/vllm-openai:v0.17.0 m/n", "a.sh", Told(), "vllm 0.17.0"),
        (
            "docker run lmsysorg/sglang:v0.5.9-rocm700-mi30x sglang serve --model m/n",
            "a.sh",
            Told(),
            "sglang 0.5.9",
        ),
        ("pip install vllm==0.22.1\nvllm serve m/n", "a.sh", Told(), "vllm 0.22.1"),
        (
            "export HCCL_BUFFSIZE=1\nvllm serve m/n",
            "a.sh",
            Told(engine="vllm-ascend:0.18.0"),
            "vllm-ascend 0.18.0",
        ),
        ("vllm serve m/n", "a.sh", Told(engine="vllm 0.17.0"), "vllm 0.17.0"),
    ],
)
def test_the_release_is_read_off_where_it_is_certain(
    tmp_path: Path, text: str, name: str, told: Told, expected: str
) -> None:
    recipe = imported(tmp_path, text, name, told)
    engine = recipe.assembled.plan.engine
    assert f"{engine.name} {engine.version}" == expected
    assert "release" not in recipe.facts.unknown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("docker run vllm/vllm-openai:v0.12.0 m/n", "0.12.0, which the catalogue lacks"),
        ("docker run vllm/vllm-openai:latest m/n", "nothing names one"),
        (
            "docker run nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.8.0 vllm serve m/n",
            "nothing names one",
        ),
        ("docker run vllm/vllm-openai:v0.18.1.dev7 m/n", "0.18.1.dev7, a build between releases"),
        ("pip install vllm==0.17.2rc1.dev2746\nvllm serve m/n", "a build between releases"),
    ],
)
def test_a_release_that_is_not_known_is_said_to_be_assumed(
    tmp_path: Path, text: str, said: str
) -> None:
    recipe = imported(tmp_path, text)
    assert "release" in recipe.facts.unknown
    assert said in next(a.why for a in recipe.facts.assumptions if a.what == "engine")


@pytest.mark.parametrize(
    "version", ["0.17.2rc1.dev2746+g20bafcab5", "0.18.1.dev3", "0.22.1+g1234567", "0.1.dev17492"]
)
def test_a_development_build_is_not_judged_by_its_number(tmp_path: Path, version: str) -> None:
    config = '{"no_such_key": 1}'
    text = f"vllm serve moonshotai/Kimi-K2.5 -tp 8 --attention-config '{config}' --no-such-flag 1\n"
    told = Told(engine=f"vllm:{version}", accelerator="h200")
    problems = judged(tmp_path, text, told=told).problems
    found = [p for p in problems if p.rule in ("json-flag-value", "unknown-flag")]
    assert {p.rule for p in found} == {"json-flag-value", "unknown-flag"}
    assert {p.severity for p in problems} == {"warning"}
    assert all(f"{version} is a build between releases" in p.what for p in found)


def test_a_release_is_judged_by_its_number(tmp_path: Path) -> None:
    text = "vllm serve moonshotai/Kimi-K2.5 -tp 8 --no-such-flag 1\n"
    for version in ("0.22.1", "0.20.1"):
        told = Told(engine=f"vllm:{version}", accelerator="h200")
        problems = judged(tmp_path, text, told=told).problems
        assert [p.severity for p in problems if p.rule == "unknown-flag"] == ["error"]


def test_alternatives_of_a_guide_name_something_together_or_not_at_all(tmp_path: Path) -> None:
    def guide(*images: str) -> str:
        return "\n".join(f"```bash\ndocker run {image} m/n\n```" for image in images)

    grace = "vllm/vllm-openai:v0.17.0-aarch64-cu130"
    one = imported(tmp_path, guide(grace, grace), "one.md").facts
    assert (one.release_named, "accelerator" in one.unknown) == ("0.17.0", False)
    two = imported(tmp_path, guide("vllm/vllm-openai:v0.22.1", grace), "two.md").facts
    assert (two.release_named, "accelerator" in two.unknown) == (None, True)


def test_what_a_part_of_a_guide_sets_ends_with_the_section_around_it(tmp_path: Path) -> None:
    text = (
        "## P/D\n#### Environment\n```bash\nexport A=1\n```\n#### Command\n```bash\nvllm serve m/n\n```\n"
        "### AMD\n```bash\nvllm serve m/o\n```\n"
    )
    processes = imported(tmp_path, text, "guide.md").assembled.plan.processes
    assert [dict(process.env) for process in processes] == [{"A": "1"}, {}]


def test_a_value_inside_json_may_be_left_to_the_reader(tmp_path: Path) -> None:
    text = (
        """vllm serve m/n --speculative-config '{"model": <draft>, "num_speculative_tokens": 3}'"""
    )
    (row,) = imported(tmp_path, text).not_understood
    assert "<draft>" in row.why


@pytest.mark.parametrize(
    ("text", "name", "accelerator"),
    [
        ("docker run quay.io/ascend/vllm-ascend:v0.22.1rc1-a3 vllm serve m/n", "a.sh", "ascend-a3"),
        ("docker run quay.io/ascend/vllm-ascend:v0.22.1rc1 vllm serve m/n", "a.sh", "ascend-a2"),
        ("vllm serve m/n", "kimi_fp4_gb200.sh", "gb200"),
        ("docker run x/y:mi355x vllm serve m/n", "a.sh", "mi355x"),
    ],
)
def test_the_accelerator_is_read_off_where_it_is_certain(
    tmp_path: Path, text: str, name: str, accelerator: str
) -> None:
    assert imported(tmp_path, text, name).facts.accelerator.id == accelerator


@pytest.mark.parametrize(
    "told",
    [
        Told(engine="tgi"),
        Told(engine="vllm:9.9.9"),
        Told(accelerator="h20x"),
        Told(checkpoint="kimi"),
    ],
)
def test_what_the_operator_says_wrongly_is_refused(tmp_path: Path, told: Told) -> None:
    with pytest.raises(StackError) as caught:
        imported(tmp_path, "vllm serve m/n", told=told)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"vllm serve m/n\n\0", "NUL"),
        (b"vllm serve m/n\n\xff", "UTF-8"),
        (b"#\n" * 10_000 + b"vllm serve m/n", "lines"),
        (b"x" * 1_000_001, "larger"),
        (b"echo nothing", "no engine"),
        (b"", "no engine"),
        (b"A=x\n" + b"A=$A$A\n" * 60 + b"vllm serve $A", "longer than"),
    ],
)
def test_a_hostile_file_is_one_error(tmp_path: Path, data: bytes, what: str) -> None:
    (tmp_path / "x.sh").write_bytes(data)

    with pytest.raises(ProblemsFound) as caught:
        import_recipe(tmp_path / "x.sh", Told(), {}, CATALOG)
    assert what in caught.value.what
