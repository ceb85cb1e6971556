"""Other people's files are data: what is no name, no image, no path is refused at its line, in every format."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import Problem, ProblemsFound
from infra.plan.foreign.assumed import Told
from infra.spec.load import PROJECT
from tests.plan.foreign.importing import imported, judged

CASES = PROJECT / "tests" / "cases" / "hostile"
SERVE = "vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n"
DOCKER = (
    "docker run --net=host --ipc=host {options} vllm/vllm-openai:v0.22.1 "
    "moonshotai/Kimi-K2.5 --tensor-parallel-size 8\n"
)
COMPOSE = """\
services:
  engine:
    image: {image}
    network_mode: host
    command: --model moonshotai/Kimi-K2.5 --tensor-parallel-size 8
{rest}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: engine}}
spec:
  hostPID: {pid}
  containers:
    - name: engine
      image: {image}
      command: [vllm, serve, moonshotai/Kimi-K2.5]
      securityContext: {{privileged: {pid}}}
      env:
        - {{name: {name}, value: "1"}}
      volumeMounts: [{{name: v, mountPath: {target}, subPath: {below}}}]
  volumes: [{{name: v, hostPath: {{path: {source}}}}}]
"""
SLURM = """\
name: x
model: {{path: "hf:moonshotai/Kimi-K2.5", container: "{image}", precision: int4}}
resources: {{gpu_type: h200, gpus_per_node: 8, agg_nodes: 1, agg_workers: 1}}
environment:
  "{name}": "1"
backend:
  type: vllm
  aggregated_environment: {{"{own}": "1"}}
  vllm_config:
    aggregated: {{tensor-parallel-size: 8}}
frontend: {{type: vllm}}
"""
ASCEND = """\
test_name: x
model: Eco-Tech/Kimi-K2.5-W4A8
num_nodes: 1
npu_per_node: 16
cluster_hosts: ["{address}"]
deployment:
  - envs:
      "{name}": "1"
    server_cmd: vllm serve Eco-Tech/Kimi-K2.5-W4A8 --tensor-parallel-size 16
"""
HOSTILE_NAME = "A=1; touch /etc/x; B"


def pod(**values: str) -> str:
    given = {"pid": "false", "image": "vllm/vllm-openai:v0.22.1", "name": "A"}
    return POD.format(**{**given, "target": "/m", "below": '""', "source": "/m", **values})


def compose(rest: str = "", image: str = "vllm/vllm-openai:v0.22.1") -> str:
    return COMPOSE.format(image=image, rest=rest)


def slurm(**values: str) -> str:
    given = {"image": "vllm/vllm-openai:v0.22.1", "name": "A", "own": "B"}
    return SLURM.format(**{**given, **values})


def docker(options: str) -> str:
    return DOCKER.format(options=options)


def problems(folder: Path, text: str, name: str, told: Told = Told()) -> list[Problem]:  # noqa: B008 - frozen
    """What refuses a file, whether it is imported or not."""
    try:
        return [p for p in judged(folder, text, name, told).problems if p.blocks]
    except ProblemsFound as error:
        return list(error.problems)


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (f'# one\nenv "A B=1" {SERVE}', "a.sh", 2),
        (f"env 'A;id=1' {SERVE}", "a.sh", 1),
        (f'\nexport "A B=1"\n{SERVE}', "a.sh", 2),
        (f"export 'F;id'=1 C=2\n{SERVE}", "a.sh", 1),
        (f'declare -x "1A=2"\n{SERVE}', "a.sh", 1),
        (docker('-e "A B=1"'), "a.sh", 1),
        (docker('--env "A;id"'), "a.sh", 1),
        (docker("--env='1A=2'"), "a.sh", 1),
        (docker("--env-file bad.env"), "a.sh", 1),
        (f"# A page\n\n```bash\n{docker('-e 1A=2')}```\n", "a.md", 4),
        (compose(f'    environment:\n      "{HOSTILE_NAME}": "2"'), "a.yaml", 7),
        (compose('    environment:\n      - "A B=2"'), "a.yaml", 7),
        (compose('    environment:\n      - "A B"'), "a.yaml", 7),
        (compose('    environment:\n      "A B":'), "a.yaml", 7),
        (compose("    env_file: bad.env"), "a.yaml", 6),
        (pod(name=f'"{HOSTILE_NAME}"'), "a.yaml", 12),
        (pod(name="A-B"), "a.yaml", 12),
        (slurm(name=HOSTILE_NAME), "a.yaml", 5),
        (slurm(own="A B"), "a.yaml", 8),
        (ASCEND.format(name=HOSTILE_NAME, address="192.0.2.1"), "a.yaml", 8),
    ],
)
def test_a_variable_that_is_none_is_refused_at_its_line(
    text: str, name: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / "bad.env").write_text("A B=1\n")
    found = problems(tmp_path, text, name)
    assert [(p.rule, p.line) for p in found] == [("plan-value", line)]
    assert found[0].file == str(tmp_path / name)
    assert "no name of a variable" in found[0].what
    assert str(found[0]).isprintable()


@pytest.mark.parametrize("image", ["-v", "--privileged", "a b", "x;id", "$$(id)"])
def test_an_image_that_is_none_is_refused_at_its_line(image: str, tmp_path: Path) -> None:
    for text, line in (
        (compose(image=f'"{image}"'), 3),
        (slurm(image=image), 2),
        (pod(image=f'"{image}"'), 8),
    ):
        found = problems(
            tmp_path, text.replace("command: --model", "command: vllm serve --model"), "a.yaml"
        )
        assert ("plan-value", line) in [(p.rule, p.line) for p in found], text


@pytest.mark.parametrize(
    "image",
    ["/images/vllm.sqsh", "nvcr.io#nvidia/x:1", "docker://vllm/vllm-openai:v0.22.1", "Some-Alias"],
)
def test_an_image_of_another_tool_is_no_error_and_is_told(image: str, tmp_path: Path) -> None:
    recipe = imported(tmp_path, slurm(image=image), "a.yaml")
    assert recipe.assembled.plan.engine.image == ""
    (told,) = [note for note in recipe.not_understood if note.text.startswith("image ")]
    assert (told.line, told.text) == (2, f"image {image!r}")
    plain = imported(tmp_path, slurm(image="vllm/vllm-openai:v0.22.1"), "a.yaml")
    assert [note for note in plain.not_understood if note.text.startswith("image ")] == []


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    text = ASCEND.format(name="A", address="192.0.2.1;id")
    assert "plan-value" in [p.rule for p in problems(tmp_path, text, "a.yaml")]


@pytest.mark.parametrize(
    "text",
    [
        'export "A=1" B=2 "C=x y"',
        "export A=1 A+=2",
        "set -a; declare -A M; M[k]=1; N=(1 2); N[1]=3; set +a",
        "export -n A; export -p; export A; f() { :; }; export -f f",
        "export $(cat .env | xargs) A=1",
        'export "$NAME=1" ${OTHER}=2',
        "declare -x A=1; readonly B=2; typeset -x C=3",
        "env -i A=1 B=2 true",
    ],
)
def test_a_variable_that_is_one_is_taken(text: str, tmp_path: Path) -> None:
    assert problems(tmp_path, f"{text}\n{SERVE}", "a.sh") == []


def test_what_quotes_stand_around_is_exported(tmp_path: Path) -> None:
    recipe = imported(tmp_path, f'export "VLLM_LOGGING_LEVEL=DEBUG"\n{SERVE}')
    assert recipe.assembled.plan.processes[0].env == {"VLLM_LOGGING_LEVEL": "DEBUG"}


HOST_PATHS = [
    "/",
    "//",
    "/./",
    "/host/../",
    "/etc",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/proc",
]


@pytest.mark.parametrize("source", HOST_PATHS)
@pytest.mark.parametrize(
    ("write", "name", "line"),
    [
        (lambda p: docker(f"-v {p}:/x"), "a.sh", 1),
        (lambda p: docker(f"-v {p}:/x:ro"), "a.sh", 1),
        (lambda p: docker(f"--volume={p}:/x"), "a.sh", 1),
        (lambda p: docker(f"-v={p}:/x"), "a.sh", 1),
        (lambda p: docker(f"-v{p}:/x"), "a.sh", 1),
        (lambda p: docker(f"-ditv {p}:/x"), "a.sh", 1),
        (lambda p: docker(f"--mount type=bind,src={p},dst=/x"), "a.sh", 1),
        (lambda p: docker(f"--mount=type=bind,source={p},target=/x,readonly"), "a.sh", 1),
        (lambda p: docker(f"--mount 'type=bind,\"source={p}\",target=/x'"), "a.sh", 1),
        (lambda p: docker(f"--mount Type=bind,SOURCE={p},Dst=/x"), "a.sh", 1),
        (lambda p: f"P={p}\n" + docker("-v $P:/x"), "a.sh", 1),
        (lambda p: compose(f'    volumes:\n      - "{p}:/x"'), "a.yaml", 7),
        (lambda p: compose(f'    volumes:\n      - "${{P:-{p}}}:/x:ro"'), "a.yaml", 7),
        (lambda p: compose(f"    volumes: [{{type: bind, source: {p}, target: /x}}]"), "a.yaml", 6),
        (lambda p: pod(source=p), "a.yaml", 13),
    ],
)  # fmt: skip
def test_a_mount_that_gives_the_host_away_is_refused_at_its_line(
    write: object, name: str, line: int, source: str, tmp_path: Path
) -> None:
    assert callable(write)
    found = problems(tmp_path, write(source), name)
    assert ("host-mount", line) in [(p.rule, p.line) for p in found]


def test_a_path_below_a_volume_counts(tmp_path: Path) -> None:
    found = problems(tmp_path, pod(source="/var", below="run/docker.sock"), "a.yaml")
    assert [p.rule for p in found] == ["host-mount"]


@pytest.mark.parametrize(
    "options",
    [
        "-v $HOME/.cache/huggingface:/root/.cache/huggingface",
        "-v ~/.cache:/root/.cache",
        "-v /root/.cache:/root/.cache",
        "-v /mnt/models:/models -v /etc/localtime:/etc/localtime:ro -v /dev/shm:/dev/shm",
        "-v /usr/local/Ascend/driver/lib64/:/usr/local/Ascend/driver/lib64/ -v /etc/hccn.conf:/etc/hccn.conf",
        "-v models:/models",
        "--privileged --pid=host --device /dev/mem",
    ],
)
def test_what_published_commands_mount_is_no_error(options: str, tmp_path: Path) -> None:
    assert problems(tmp_path, docker(options), "a.sh") == []


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (docker("--privileged"), "a.sh", "privileged true"),
        (docker("--pid=host"), "a.sh", "pid host"),
        (docker("--userns host"), "a.sh", "userns host"),
        (docker("--device /dev/mem"), "a.sh", "device /dev/mem"),
        (docker("--device=/dev/sda:/dev/x:rw"), "a.sh", "device /dev/sda:/dev/x:rw"),
        (docker("--cap-add SYS_ADMIN"), "a.sh", "cap-add SYS_ADMIN"),
        (compose("    privileged: true"), "a.yaml", "privileged true"),
        (compose('    devices: ["/dev/kmem:/dev/kmem"]'), "a.yaml", "device /dev/kmem:/dev/kmem"),
        (compose("    cap_add: [ALL]"), "a.yaml", "cap-add ALL"),
        (pod(pid="true"), "a.yaml", "pid host"),
        (pod(pid="true"), "a.yaml", "privileged true"),
        (docker("-v ../x:/y"), "a.sh", "mount '../x' on '/y'"),
    ],
)
def test_what_would_open_the_host_is_left_out_and_said(
    text: str, name: str, said: str, tmp_path: Path
) -> None:
    recipe = imported(tmp_path, text, name)
    assert said in [row.text for row in recipe.not_understood]
    assert not any(
        mount.source == "../x" for p in recipe.assembled.plan.processes for mount in p.mounts
    )


@pytest.mark.parametrize(
    ("case", "told", "rules"),
    [
        ("compose.yaml", Told(), ["plan-value", "plan-value", "host-mount"]),
        ("slurm.yaml", Told(engine="vllm:0.22.1", accelerator="h200", checkpoint="kimi-k2.5-int4"), ["plan-value"]),
    ],
)  # fmt: skip
def test_the_attacks_that_were_tried_are_refused(
    case: str, told: Told, rules: list[str], tmp_path: Path
) -> None:
    text = (CASES / case).read_text(encoding="utf-8")
    assert [p.rule for p in problems(tmp_path, text, case, told)] == rules


SGLANG = "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp 8\n"
ASCEND_SERVE = f"export HCCL_IF_IP=192.0.2.1\n{SERVE}"


@pytest.mark.parametrize(
    ("text", "name", "told", "place"),
    [
        (SERVE, "a.sh", Told(engine="sglang:0.5.9"), ("--engine", 1)),
        (SERVE, "a.sh", Told(engine="sglang"), ("--engine", 1)),
        (SGLANG, "a.sh", Told(engine="vllm:0.22.1"), ("--engine", 1)),
        (f"\n{SGLANG}", "a.sh", Told(engine="vllm-ascend"), ("--engine", 2)),
        (ASCEND_SERVE, "a.sh", Told(engine="vllm:0.22.1"), ("--engine", 2)),
        (f"export VLLM_ROCM_USE_AITER=1\n{SERVE}", "a.sh", Told(engine="vllm-ascend"), ("--engine", 2)),
        (ASCEND_SERVE, "a.sh", Told(accelerator="h200"), ("--accelerator", 2)),
        (slurm(), "a.yaml", Told(accelerator="gb200"), ("--accelerator", None)),
        (SERVE, "a.sh", Told(engine="vllm-ascend", accelerator="h200"), ("--accelerator", None)),
        (SERVE, "a.sh", Told(checkpoint="kimi-k2.5-nvfp4"), ("--checkpoint", 1)),
    ],
)  # fmt: skip
def test_an_option_that_contradicts_the_file_is_refused(
    text: str, name: str, told: Told, place: tuple[str, int | None], tmp_path: Path
) -> None:
    (found,) = problems(tmp_path, text, name, told)
    assert (found.rule, found.field, found.line) == ("option-contradicts", *place)
    assert found.fix


@pytest.mark.parametrize(
    "told",
    [
        Told(engine="vllm-ascend:0.22.1rc1", accelerator="ascend-a3"),
        Told(accelerator="gb200"),
        Told(checkpoint="kimi-k2.5-int4"),
    ],
)
def test_an_option_that_completes_the_file_is_taken(told: Told, tmp_path: Path) -> None:
    facts = imported(tmp_path, SERVE, told=told).facts
    assert facts.accelerator.id == (told.accelerator or facts.accelerator.id)
    assert facts.release.engine == (told.engine or "vllm").partition(":")[0]
