from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.catalog.load import Catalog
from infra.catalog.schema import ContainerAccess, Mount
from infra.engines.credentials import Credential
from infra.plan.compile import compile_file
from infra.plan.process import Process
from infra.render.container import DeviceAccess, device_options, label_options, mount_options
from infra.render.environment_file import environment_file
from infra.render.host_paths import process_folder
from infra.render.host_state import host_state
from infra.render.launch_script import ContainerLaunch, NativeLaunch, launch_script
from infra.render.wanted_tuning import Tuning
from tests.render.fake_runtime import FakeRuntime, Said

KEY = Credential(name="api_key", variable="VLLM_API_KEY", holds="value")
TOKEN = Credential(name="hf_token", variable="HF_TOKEN_PATH", holds="path")

# Anything that a process can be given: no NUL, no half of a surrogate pair.
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
values = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
names = st.from_regex(r"[A-Z][A-Z0-9_]{3,12}", fullmatch=True).filter(
    lambda name: name not in {"PATH", "SAID", "ROOT", "HOME"} and not name.startswith("LC_")
)


def a_process(
    argv: tuple[str, ...],
    env: Mapping[str, str] | None = None,
    prepend: Mapping[str, str] | None = None,
) -> Process:
    return Process(
        id="decode-0/3",
        kind="engine",
        group="decode/0",
        host="decode-0",
        role="decode",
        replica=0,
        dp_ranks=(3,),
        devices=(3,),
        endpoint="http://192.0.2.1:7103",
        binds=(),
        connects=(),
        env=env or {},
        env_prepend=prepend or {},
        mounts=(),
        argv=argv,
        flag_origins={},
        env_origins={},
    )


# What glibc itself brings, so that any program starts with it.
LIBRARY = next(str(path) for path in Path("/lib").glob("*-linux-gnu/libm.so.6"))


def a_container(
    entrypoint: tuple[str, ...] = (), mounts: tuple[Mount, ...] = ()
) -> ContainerLaunch:
    return ContainerLaunch(
        runtime="docker", image="an/image:tag", entrypoint=entrypoint, devices=None, mounts=mounts
    )


def run_container(
    runtime: FakeRuntime,
    process: Process,
    entrypoint: tuple[str, ...] = (),
    image_env: Mapping[str, str] | None = None,
) -> Said:
    launch = a_container(entrypoint)
    path = f"{process_folder('s', process)}/environment"
    return runtime.run(
        launch_script("s", process, launch, ()),
        environment_file=(path, environment_file(process.id, process.env)),
        entrypoint=entrypoint,
        image_env=image_env,
    )


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntime:
    fake = FakeRuntime(tmp_path)
    fake.add_program("vllm")
    return fake


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rest=st.lists(words, max_size=6),
    env=st.dictionaries(names, values, max_size=4),
    prepend=st.dictionaries(names, values.filter(bool), max_size=2),
    entrypoint=st.sampled_from([(), ("vllm",), ("vllm", "serve"), ("/opt/entry.sh",)]),
)
def test_the_process_gets_exactly_its_arguments_and_environment(
    runtime: FakeRuntime,
    rest: list[str],
    env: dict[str, str],
    prepend: dict[str, str],
    entrypoint: tuple[str, ...],
) -> None:
    env = {name: value for name, value in env.items() if name not in prepend}
    process = a_process(("vllm", "serve", *rest), env, prepend)
    said = run_container(runtime, process, entrypoint)
    assert said.argv == process.argv
    assert {name: said.env.get(name) for name in env} == env
    assert {name: said.env.get(name) for name in prepend} == prepend


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rest=st.lists(words, max_size=6), odd=values, prepend=values.filter(bool))
def test_a_native_process_gets_exactly_its_arguments(
    runtime: FakeRuntime, tmp_path: Path, rest: list[str], odd: str, prepend: str
) -> None:
    venv = tmp_path / "a venv"
    runtime.add_program("vllm", venv / "bin")
    process = a_process(("vllm", "serve", *rest), {"ODD": f'"{odd}"'}, {"LD_LIBRARY_PATH": prepend})
    launch = NativeLaunch(environment=str(venv), package="vllm==1")
    said = runtime.run(
        launch_script("s", process, launch, ()), env={"LD_LIBRARY_PATH": "/there/already"}
    )
    assert said.argv == process.argv
    assert said.env["ODD"] == f'"{odd}"'
    assert said.env["LD_LIBRARY_PATH"] == f"{prepend}:/there/already"


def test_values_are_put_before_what_the_image_has(runtime: FakeRuntime) -> None:
    process = a_process(("vllm", "serve"), prepend={"LD_PRELOAD": LIBRARY, "LD_LIBRARY_PATH": "/x"})
    said = run_container(runtime, process, image_env={"LD_LIBRARY_PATH": "/image/lib"})
    assert said.env["LD_LIBRARY_PATH"] == "/x:/image/lib"
    assert said.env["LD_PRELOAD"] == LIBRARY


@pytest.mark.parametrize("library", ["/nowhere/libjemalloc.so.2", "/bin/sh", "/lib/$(exit) b.so"])
def test_a_library_that_no_program_starts_with_is_left_out(
    runtime: FakeRuntime, library: str
) -> None:
    said = run_container(runtime, a_process(("vllm", "serve"), prepend={"LD_PRELOAD": library}))
    assert "LD_PRELOAD" not in said.env
    assert said.argv == ("vllm", "serve")


@pytest.mark.parametrize(
    ("driver", "parent"),
    [
        ("systemd", "--cgroup-parent=moe_infra-s.slice"),
        ("cgroupfs", "--cgroup-parent=/moe_infra.slice/moe_infra-s.slice"),
    ],
)
def test_a_container_joins_the_stacks_slice_whoever_rules_the_control_groups(
    runtime: FakeRuntime, driver: str, parent: str
) -> None:
    runtime.cgroup_driver = driver
    run_container(runtime, a_process(("vllm", "serve")))
    said = [word for word in runtime.calls()[-1] if word.startswith("--cgroup-parent")]
    assert said == [parent]
    assert "--stop-timeout=100" in runtime.calls()[-1]


@pytest.mark.parametrize("driver", ["", "none"])
def test_no_container_starts_outside_the_stacks_slice(runtime: FakeRuntime, driver: str) -> None:
    """Nothing would keep the container from the metadata service of a cloud there."""
    script = launch_script("s", a_process(("vllm", "serve")), a_container(), ())
    log = str(runtime.folder / "runtime.log")
    code, said = runtime.fail(script, {"CGROUP_DRIVER": driver, "RUNTIME_LOG": log})
    assert code == 69
    assert "not started: `docker info" in said
    assert said.endswith(f"but says: {driver}\n")
    assert "run" not in [call[0] for call in runtime.calls()]


def test_a_left_over_container_is_removed_first(runtime: FakeRuntime) -> None:
    run_container(runtime, a_process(("vllm", "serve")))
    first, second = [call for call in runtime.calls() if call[0] != "info"]
    assert first == ["rm", "--force", "moe-s-engine-3"]
    assert second[:2] == ["run", "--name=moe-s-engine-3"]
    assert "--rm" not in second


def test_every_shipped_command_survives_its_script(runtime: FakeRuntime, catalog: Catalog) -> None:
    for stack in ("a3-2p1d", "gb200-2p1d", "mi355x-tp8"):
        compiled = compile_file(stack, catalog=catalog)
        tuning = Tuning(profile=catalog.tuning(compiled.plan.tuning))
        process = [p for p in compiled.plan.processes if p.kind == "engine"][-1]
        state = host_state(compiled.plan, process.host, tuning=tuning, catalog=catalog)
        texts = {item.target: str(item.details.get("content")) for item in state.of_groups("files")}
        folder = process_folder(stack, process)
        said = runtime.run(
            texts[f"{folder}/launch"],
            environment_file=(f"{folder}/environment", texts[f"{folder}/environment"]),
            entrypoint=compiled.plan.engine.entrypoint,
        )
        assert said.argv == process.argv
        assert {name: said.env.get(name) for name in process.env} == dict(process.env)


def test_a_missing_virtual_environment_says_what_to_install(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    (runtime.bin / "vllm").unlink()
    launch = NativeLaunch(environment=str(tmp_path / "none"), package="vllm==0.22.1")
    code, said = runtime.fail(launch_script("s", a_process(("vllm", "serve")), launch, ()))
    assert code == 127
    assert f"vllm is not in {tmp_path}/none: install vllm==0.22.1 there" in said


def test_nothing_starts_without_a_declared_credential(runtime: FakeRuntime, tmp_path: Path) -> None:
    script = launch_script("s", a_process(("vllm", "serve")), a_container(), (KEY,))
    code, said = runtime.fail(script, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert code == 78
    assert "the credential api_key is missing" in said
    assert runtime.fail(script)[0] == 78


def test_without_systemds_credentials_root_reads_the_file_itself(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    process = a_process(("vllm", "serve"))
    script = launch_script("s", process, a_container(), (KEY,))
    assert ': "${CREDENTIALS_DIRECTORY:=/etc/moe-infra/s/credentials}"' in script
    (tmp_path / "api_key").write_text("from the file")
    path = f"{process_folder('s', process)}/environment"
    said = runtime.run(
        script.replace("/etc/moe-infra/s/credentials", str(tmp_path)),
        environment_file=(path, environment_file(process.id, process.env)),
    )
    assert said.env["VLLM_API_KEY"] == "from the file"


def test_a_key_reaches_the_process_and_no_argument(runtime: FakeRuntime, tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text("hunter2\n")
    (tmp_path / "hf_token").write_text("token\n")
    process = a_process(("vllm", "serve"))
    said = runtime.run(
        launch_script("s", process, a_container(), (TOKEN, KEY)),
        environment_file=(f"{process_folder('s', process)}/environment", ""),
        env={"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    assert said.env["VLLM_API_KEY"] == "hunter2"
    assert said.env["HF_TOKEN_PATH"] == "/run/secrets/hf_token"
    run = runtime.calls()[-1]
    assert "hunter2" not in " ".join(run)
    for name in ("hf_token", "api_key"):
        assert f"type=bind,source={tmp_path}/{name},target=/run/secrets/{name},readonly" in run
    # a variable of the container, with or without a value here, is what `docker inspect` shows
    assert [word for word in run if "VLLM_API_KEY" in word] == [run[run.index("-c") + 1]]


def test_a_runtimes_client_has_no_key_in_its_environment(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    (tmp_path / "api_key").write_text("hunter2\n")
    process = a_process(("vllm", "serve"))
    script = launch_script("s", process, a_container(), (KEY,))
    client = f'#!/bin/sh\nenv > {tmp_path}/seen\nexec {runtime.bin}/docker "$@"\n'
    (tmp_path / "podman").write_text(client)
    (tmp_path / "podman").chmod(0o755)
    said = runtime.run(
        script.replace("exec docker", f"exec {tmp_path}/podman"),
        environment_file=(f"{process_folder('s', process)}/environment", ""),
        env={"CREDENTIALS_DIRECTORY": str(tmp_path)},
    )
    assert said.env["VLLM_API_KEY"] == "hunter2"
    assert "hunter2" not in (tmp_path / "seen").read_text()


def test_a_native_process_takes_the_key_from_the_credential(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    (tmp_path / "api_key").write_text("hunter2\n")
    venv = tmp_path / "venv"
    runtime.add_program("vllm", venv / "bin")
    launch = NativeLaunch(environment=str(venv), package="vllm==1")
    script = launch_script("s", a_process(("vllm", "serve")), launch, (KEY,))
    said = runtime.run(script, env={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert said.env["VLLM_API_KEY"] == "hunter2"


def test_devices_follow_the_vendor() -> None:
    nvidia = ContainerAccess(
        gpus="all", capabilities=("SYS_NICE",), fabric_devices=("/dev/infiniband",)
    )
    alone = DeviceAccess(access=nvidia, num_devices=8, spans_hosts=False)
    assert device_options("docker", alone) == [
        "--ipc=host",
        "--gpus",
        "all",
        "--cap-add",
        "SYS_NICE",
    ]
    several = dataclasses.replace(alone, spans_hosts=True)
    assert device_options("docker", several)[3:5] == ["--device", "/dev/infiniband"]
    assert "nvidia.com/gpu=all" in device_options("podman", alone)
    ascend = ContainerAccess(per_device=("/dev/davinci{index}",), shm_size="1g", ipc_host=False)
    shown = device_options("docker", DeviceAccess(access=ascend, num_devices=2, spans_hosts=False))
    assert shown == ["--shm-size=1g", "--device", "/dev/davinci0", "--device", "/dev/davinci1"]


def test_a_container_that_shares_no_ipc_reads_what_it_is_given_where_selinux_enforces() -> None:
    """The runtimes leave one alone that shares it; a router's, without devices, they would confine."""
    shared = DeviceAccess(access=ContainerAccess(gpus="all"), num_devices=8, spans_hosts=False)
    own = dataclasses.replace(shared, access=ContainerAccess(ipc_host=False))
    disabled = ["--security-opt", "label=disable"]
    assert [label_options(each) for each in (shared, own, None)] == [[], disabled, disabled]
    script = launch_script("s", a_process(("vllm", "serve")), a_container(), (KEY,))
    assert "--security-opt label=disable" in script


def test_mounts_are_written_as_csv_and_once_per_target() -> None:
    plain = Mount(source="/models", target="/models")
    odd = Mount(source='/a,"b', target="/c", read_only=False)
    assert mount_options([plain, odd, plain]) == [
        "--mount",
        "type=bind,source=/models,target=/models,readonly",
        "--mount",
        'type=bind,"source=/a,""b",target=/c',
    ]
