"""Containers that really run, each test on a freshly booted simulated host in its own namespaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = pytest.mark.lab

HostShell = Callable[..., CompletedProcess[str]]
HostRuns = Callable[[str, list[str]], list[CompletedProcess[str]]]

IMAGE = "vllm/vllm-openai:v0.22.1"
JEMALLOC = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"
DIGEST = "sha256:" + "1a" * 32
RUN = "docker run --rm --network host --ipc=host"
HELP = "\n\nRun 'docker run --help' for more information\n"
DAEMON = "docker: Error response from daemon: "
ASCEND_DEVICES = "--device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc"
ASCEND_DRIVER = "-v /usr/local/Ascend/driver/lib64/:/usr/local/Ascend/driver/lib64/"


def view(result: CompletedProcess[str]) -> dict[str, Any]:
    """Return what the fake engine saw."""
    assert result.stdout, result.stderr
    seen: dict[str, Any] = json.loads(result.stdout.splitlines()[0])
    return seen


def test_the_engine_gets_argv_variables_devices_and_mounts(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        "mkdir -p /models/kimi; printf 'A=1\\nB=\"q\"\\n' > /tmp/engine.env\n"
        f"{RUN} --gpus all --env-file /tmp/engine.env -e B=2 -e LD_PRELOAD=/nope.so"
        " --device /dev/infiniband --device /dev/nvidia-caps-imex-channels/channel0"
        f" -v /models:/models:ro --ulimit memlock=-1 {IMAGE} /models --tensor-parallel-size 4",
    )
    seen = view(result)
    assert result.returncode == 0
    assert seen["argv"] == ["vllm", "serve", "/models", "--tensor-parallel-size", "4"]
    assert seen["listed"]["/models"] == ["kimi"]
    expected = {
        "A": "1",
        "B": "2",
        "VLLM_USAGE_SOURCE": "image",
        "MOE_REHEARSAL_ENGINE": "vllm",
        "MOE_REHEARSAL_ENGINE_VERSION": "0.22.1",
        "MOE_REHEARSAL_PLUGIN_VERSION": "",
        "MOE_REHEARSAL_DEVICES": "0,1,2,3",
        "MOE_REHEARSAL_LD_PRELOAD": "/nope.so",
        "LD_PRELOAD": "",
        "HOME": "/root",
    }
    assert {name: seen["env"][name] for name in expected} == expected
    assert {"nvidia0", "nvidia3", "nvidiactl", "infiniband", "nvidia-caps-imex-channels"} <= set(
        seen["dev"]
    )
    assert seen["stdin"] == ""
    assert "object '/nope.so' from LD_PRELOAD cannot be preloaded" in result.stderr
    assert "engine says" in result.stderr


def test_a_container_sees_nothing_of_the_host_that_it_was_not_given(host_shell: HostShell) -> None:
    seen = view(
        host_shell(
            "nvidia", f"mkdir /models; {RUN} {IMAGE} /models /usr/local /etc /opt/moe-rehearsal"
        )
    )
    assert seen["listed"]["/models"] == "FileNotFoundError"
    assert seen["listed"]["/usr/local"] == ["bin"]
    assert "shadow" not in seen["listed"]["/etc"]
    assert seen["listed"]["/opt/moe-rehearsal"] == ["catalogues", "engine", "standins"]
    assert not [name for name in seen["dev"] if name.startswith(("nvidia", "infiniband"))]
    assert seen["env"]["MOE_REHEARSAL_DEVICES"] == ""


def test_files_of_the_image_lie_where_the_machine_has_none(host_shell: HostShell) -> None:
    seen = view(host_shell("nvidia", f"{RUN} {IMAGE} /usr/lib/aarch64-linux-gnu"))
    assert seen["listed"]["/usr/lib/aarch64-linux-gnu"] == ["libjemalloc.so.2"]


@pytest.mark.parametrize(
    "options",
    [
        f"-e LD_PRELOAD={JEMALLOC} {IMAGE} x",
        f"--entrypoint /bin/sh {IMAGE} -c 'export LD_PRELOAD={JEMALLOC}; exec \"$@\"' sh vllm serve x",
    ],
)
def test_a_library_of_the_image_is_really_preloaded(host_shell: HostShell, options: str) -> None:
    result = host_shell("nvidia", f"{RUN} {options}")
    seen = view(result)
    assert seen["argv"] == ["vllm", "serve", "x"]
    assert JEMALLOC in seen["libraries"]
    assert seen["env"]["MOE_REHEARSAL_LD_PRELOAD"] == JEMALLOC
    assert "ld.so" not in result.stderr


LOCKED = {
    "": str(8 << 20),
    "--ulimit memlock=65536": "65536",
    "--ulimit memlock=-1:-1": "unlimited",
    "--cap-add IPC_LOCK": "unlimited",
    "--privileged": "unlimited",
}


def test_the_engine_is_told_what_its_container_may_lock(host_runs: HostRuns) -> None:
    runs = host_runs("nvidia", [f"{RUN} {options} {IMAGE}" for options in LOCKED])
    locked = [view(run)["env"]["MOE_REHEARSAL_LOCKED_MEMORY"] for run in runs]
    assert dict(zip(LOCKED, locked, strict=True)) == LOCKED


DEVICES = {
    "nvidia": {
        "--gpus all": "0,1,2,3",
        "--gpus '\"device=1,2\"'": "1,2",
        "--gpus 2": "0,1",
        "--device nvidia.com/gpu=3": "3",
        "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0,2": "0,2",
        "--privileged": "",
    },
    "amd": {
        "--device /dev/kfd --device /dev/dri": "0,1,2,3,4,5,6,7",
        "--device /dev/kfd --device /dev/dri/renderD129": "1",
        "--device /dev/dri": "",
    },
    "ascend": {
        f"--device /dev/davinci3 {ASCEND_DEVICES} {ASCEND_DRIVER}": "3",
        f"--device /dev/davinci3 {ASCEND_DEVICES}": "",
        f"--device /dev/davinci3 {ASCEND_DRIVER}": "",
    },
}


@pytest.mark.parametrize("vendor", DEVICES)
def test_each_vendor_needs_its_own_arguments(host_runs: HostRuns, vendor: str) -> None:
    runs = host_runs(vendor, [f"{RUN} {options} {IMAGE}" for options in DEVICES[vendor]])
    devices = [view(run)["env"]["MOE_REHEARSAL_DEVICES"] for run in runs]
    assert dict(zip(DEVICES[vendor], devices, strict=True)) == DEVICES[vendor]


# Options → the daemon's text and the exit code
REFUSALS = {
    "--gpus device=0,1": ("cannot set both Count and DeviceIDs on device request", 125),
    "--device nvidia.com/gpu=9": (
        "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=9",
        125,
    ),
    "--device /dev/kfd": (
        (
            'error gathering device information while adding custom device "/dev/kfd": '
            "no such file or directory"
        ),
        127,
    ),
    "--device /etc/passwd": (
        (
            'error gathering device information while adding custom device "/etc/passwd": '
            "not a device node"
        ),
        125,
    ),
    "--runtime foo": ("unknown or invalid runtime name: foo", 125),
    "--cap-add FOO": ('invalid CapAdd: unknown capability: "FOO"', 125),
    "--log-driver foo": ("logger: no log driver named 'foo' is registered", 125),
    "--group-add render": (
        "Unable to find group render: no matching entries in group file",
        125,
    ),
    "--net foo": ("network foo not found", 125),
    "--security-opt colour=disable": ('invalid --security-opt 2: "colour=disable"', 125),
    "--user nobody-here": (
        "unable to find user nobody-here: no matching entries in passwd file",
        125,
    ),
}


def test_the_daemon_refuses_in_the_real_words(host_runs: HostRuns) -> None:
    runs = host_runs("nvidia", [f"docker run --rm {options} {IMAGE}" for options in REFUSALS])
    for run, (text, exit_code) in zip(runs, REFUSALS.values(), strict=True):
        assert (run.stderr, run.returncode) == (f"{DAEMON}{text}{HELP}", exit_code)


KEPT = {
    "docker run": 0xA80425FB,
    "podman run": 0x800405FB,
    "docker run --cap-drop ALL": 0,
    "docker run --cap-drop all --cap-add cap_sys_nice": 0x800000,
    "docker run --cap-drop NET_RAW --cap-add SYS_PTRACE": 0xA80C05FB,
    "docker run --cap-add ALL --cap-drop SYS_ADMIN": 0x1FFFFDFFFFF,
    "docker run --cap-drop ALL --user 65534:65534": 0,
    "docker run --privileged": 0x1FFFFFFFFFF,
}
BOUND = "grep ^CapBnd /proc/self/status"


def test_the_first_process_keeps_the_capabilities_that_the_real_runtimes_leave_it(
    host_runs: HostRuns,
) -> None:
    """The numbers are what docker 28 and podman 4.3 leave; a machine may lack some for all that runs on it."""
    words = [f"{each} --rm --entrypoint /bin/sh {IMAGE} -c '{BOUND}'" for each in KEPT]
    machine, *runs = (
        int(run.stdout.split()[1], 16) for run in host_runs("nvidia", [BOUND, *words])
    )
    assert runs == [kept & machine for kept in KEPT.values()]


def test_without_its_override_root_reads_no_file_of_another_user(host_runs: HostRuns) -> None:
    made = "echo x > /m; chown 1000 /m; chmod 600 /m"
    read = f"-v /m:/m:ro --entrypoint /bin/cat {IMAGE} /m"
    plain, limited = host_runs(
        "nvidia", [f"{made}; docker run --rm {more} {read}" for more in ("", "--cap-drop ALL")]
    )
    assert (plain.stdout, limited.stdout) == ("x\n", "")
    assert "Permission denied" in limited.stderr


def test_a_filter_that_is_not_known_is_refused_where_there_is_no_container(
    host_runs: HostRuns,
) -> None:
    runs = host_runs(
        "nvidia",
        [f"{program} ps --all --filter colour=x" for program in ("docker", "podman")]
        + ["docker ps --all --filter name=x --format '{{.ID}}'"],
    )
    assert [(run.stderr, run.returncode) for run in runs] == [
        ("Error response from daemon: invalid filter 'colour'\n", 1),
        ("Error: colour is an invalid filter\n", 125),
        ("", 0),
    ]


def test_a_host_without_the_nvidia_driver_has_no_gpus(host_shell: HostShell) -> None:
    result = host_shell("amd", f"{RUN} --gpus all {IMAGE}")
    text = 'could not select device driver "" with capabilities: [[gpu]]'
    assert (result.stderr, result.returncode) == (f"{DAEMON}{text}{HELP}", 125)


def test_an_unknown_image_is_looked_for_in_a_registry_that_does_not_answer(
    host_shell: HostShell,
) -> None:
    result = host_shell(
        "nvidia",
        "docker run --pull never vllm/other:v1; echo $?; docker run vllm/other; echo $?; docker pull a/b; "
        "echo $?; podman run --pull never vllm/other:v1; echo $?",
    )
    lookup = 'Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io: no such host'
    assert result.stderr == (
        f"{DAEMON}No such image: vllm/other:v1{HELP}"
        f"Unable to find image 'vllm/other:latest' locally\n{DAEMON}{lookup}{HELP}"
        f"Error response from daemon: {lookup}\n"
        "Error: vllm/other:v1: image not known\n"
    )
    assert result.stdout.split("\n")[:5] == ["125", "125", "Using default tag: latest", "1", "125"]


def test_a_program_that_the_image_lacks_is_not_found(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        f"docker run --entrypoint foo {IMAGE} --network host; echo $?; docker ps -a --format "
        "'{{.Status}}'; docker run --entrypoint /opt/none "
        f"{IMAGE}; echo $?",
    )
    assert 'exec: "foo": executable file not found in $PATH: unknown' in result.stderr
    assert 'exec: "/opt/none": stat /opt/none: no such file or directory: unknown' in result.stderr
    assert result.stdout.split() == ["127", "Created", "127"]


def test_an_image_of_another_architecture_does_not_execute(host_shell: HostShell) -> None:
    result = host_shell("nvidia", f"{RUN} {IMAGE}", architecture="x86_64")
    assert result.returncode == 255
    assert result.stderr == (
        "WARNING: The requested image's platform (linux/arm64/v8) does not match the detected host "
        "platform (linux/amd64) and no specific platform was requested\n"
        "exec /usr/local/bin/vllm: exec format error\n"
    )


def test_a_missing_source_of_v_becomes_a_folder_and_of_mount_an_error(
    host_shell: HostShell,
) -> None:
    result = host_shell(
        "nvidia",
        f"{RUN} -v /etc/hccn.conf:/etc/hccn.conf {IMAGE} /etc/hccn.conf; test -d /etc/hccn.conf && echo folder\n"
        f"{RUN} --mount type=bind,source=/etc/other.conf,target=/x {IMAGE}; echo $?; "
        f"podman run --rm --network host -v /etc/other.conf:/x {IMAGE}; echo $?",
    )
    assert view(result)["listed"]["/etc/hccn.conf"] == []
    assert result.stdout.splitlines()[1:] == ["folder", "125", "125"]
    assert "bind source path does not exist: /etc/other.conf" in result.stderr
    assert "Error: statfs /etc/other.conf: no such file or directory" in result.stderr


def test_a_folder_does_not_go_onto_a_file(host_shell: HostShell) -> None:
    result = host_shell("nvidia", f"mkdir /d; {RUN} -v /d:/etc/passwd {IMAGE}")
    assert result.returncode == 125
    assert "Are you trying to mount a directory onto a file (or vice-versa)?" in result.stderr


def test_a_read_only_mount_is_read_only(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        f"mkdir /d; {RUN} -v /d:/d:ro -v /d:/w --entrypoint bash {IMAGE} -c 'touch /d/a; touch /w/b'; ls /d",
    )
    assert "touch: cannot touch '/d/a': Read-only file system" in result.stderr
    assert result.stdout == "b\n"


def test_a_shell_in_the_container_finds_the_engine(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia", f"{RUN} --entrypoint bash {IMAGE} -c 'cd /tmp; exec vllm serve x'"
    )
    assert view(result)["argv"] == ["vllm", "serve", "x"]
    assert view(result)["cwd"] == "/tmp"


def test_python_in_the_container_runs_a_program_that_was_mounted(host_shell: HostShell) -> None:
    program = 'import subprocess; print(1, flush=True); subprocess.run(["vllm", "serve", "x"])'
    result = host_shell(
        "nvidia",
        f"echo '{program}' > /tmp/run.py\n"
        f"{RUN} -v /tmp/run.py:/launch/run.py --entrypoint python3 {IMAGE} /launch/run.py",
    )
    first, *rest = result.stdout.splitlines()
    assert first == "1", result.stderr
    assert json.loads(rest[0])["argv"] == ["vllm", "serve", "x"]


def test_only_the_hosts_network_reaches_anything(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        f"docker run --rm -p 8000:8000 --entrypoint cat {IMAGE} /proc/net/dev; {RUN} -p 8000:8000 {IMAGE}",
    )
    container_interfaces = [line.split(":")[0].strip() for line in result.stdout.splitlines()[2:-1]]
    assert container_interfaces == ["lo"]
    assert "-p is accepted and not forwarded" in result.stderr
    assert "WARNING: Published ports are discarded when using host network mode" in result.stderr


def test_a_name_is_taken_until_its_container_is_removed(host_shell: HostShell) -> None:
    run = f"docker run --name engine --network host {IMAGE}"
    result = host_shell(
        "nvidia",
        f"{run} fail >/dev/null 2>&1; echo $?; docker ps -aq --no-trunc --filter name=engine; {run}; echo $?; "
        "docker inspect -f '{{.State.ExitCode}} {{.State.Status}}' engine; docker rm engine; docker rm engine; "
        "echo $?; docker rm -f engine; echo $?",
    )
    codes = result.stdout.split()
    identifier = codes[1]
    assert codes == ["3", identifier, "125", "3", "exited", "engine", "1", "0"]
    assert result.stderr == (
        f'{DAEMON}Conflict. The container name "/engine" is already in use by container '
        f'"{identifier}". You have to remove (or rename) that container to be able to reuse that name.{HELP}'
        + "Error response from daemon: No such container: engine\n"
        * 2
    )


# `docker` that is killed at a certain step of its work on a container that it is to make.
KILLED_CLIENT = """\
import os, sys
step = sys.argv[1]
def kill(event, arguments):
    if event == step and "/containers/" in str(arguments[0]):
        os.kill(os.getpid(), 9)
sys.addaudithook(kill)
sys.path.insert(0, "/opt/moe-rehearsal")
from standins.program_table import run
sys.exit(run(["docker", *sys.argv[2:]]))
"""


@pytest.mark.parametrize("step", ["os.mkdir", "os.rename"])
def test_a_client_that_is_killed_before_its_container_is_there_leaves_the_name_free(
    host_shell: HostShell, step: str
) -> None:
    words = f"run --rm --name engine --network host {IMAGE}"
    result = host_shell(
        "nvidia",
        f"cat > /tmp/killed.py <<'END'\n{KILLED_CLIENT}END\n"
        f"python3 -I /tmp/killed.py {step} {words} >/dev/null 2>&1; echo $?; docker ps -aq; "
        f"docker {words} >/dev/null; echo $?",
    )
    assert result.stdout.split() == ["137", "0"], result.stderr


def test_of_clients_that_want_a_name_at_once_one_gets_it(host_shell: HostShell) -> None:
    run = f"docker run -d --name engine --network host {IMAGE} stay"
    result = host_shell(
        "nvidia",
        f"for n in 1 2 3 4; do ( {run} >/dev/null 2>&1; echo $? ) & done; wait; "
        "docker ps --format '{{.Names}}'; docker rm -f engine",
    )
    lines = result.stdout.split()
    assert sorted(lines[:4]) == ["0", "125", "125", "125"]
    assert lines[4:] == ["engine", "engine"]


def test_stopping_passes_the_signal_on_and_then_kills(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        f"docker run -d --name soft --network host {IMAGE} stay >/dev/null\n"
        f"docker run -d --name hard --network host {IMAGE} stay stubborn >/dev/null; sleep 0.2\n"
        "docker ps --format '{{.Names}} {{.State}}'; docker stop -t 1 soft hard\n"
        "docker ps -a -f name=soft -f name=hard --format '{{.Names}} {{.Status}}'\n"
        "docker logs soft 2>&1 | tail -1; docker wait hard\n"
        "docker rm -f soft hard; ls -A /run/moe-rehearsal/containers",
    )
    lines = result.stdout.splitlines()
    assert lines[:4] == ["hard running", "soft running", "soft", "hard"]
    assert lines[4].startswith("hard Exited (137)")
    assert lines[5].startswith("soft Exited (143)")
    assert lines[6:] == ["engine says", "137", "soft", "hard"]


def test_the_client_passes_its_own_signal_on_and_leaves_with_the_engines_code(
    host_shell: HostShell,
) -> None:
    result = host_shell(
        "nvidia",
        f"{RUN} --name a {IMAGE} stay > /tmp/out & sleep 0.4; kill -TERM $!; wait $!; echo $?; docker ps -aq",
    )
    assert result.stdout == "143\n"


def test_a_killed_client_leaves_a_container_that_gives_its_name_back_when_it_was_to_be_removed(
    host_shell: HostShell,
) -> None:
    result = host_shell(
        "nvidia",
        f"{RUN} --name a {IMAGE} stay > /tmp/out & client=$!; "
        "for i in $(seq 100); do test -s /tmp/out && break; sleep 0.1; done; "
        "kill -KILL $client; wait $client; docker ps --format "
        f"'{{{{.Names}}}}'; {RUN} --name a {IMAGE} >/tmp/out2; echo $?; docker kill a; "
        f"{RUN} --name a {IMAGE} >/tmp/out2; echo $?",
    )
    assert result.stdout.split() == ["a", "125", "a", "0"]


def test_host_agents_read_digests_entry_points_and_the_daemon(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        f"docker image inspect -f '{{{{index .RepoDigests 0}}}} {{{{json .Config.Entrypoint}}}} "
        f"{{{{.Architecture}}}}' {IMAGE}; docker info -f '{{{{.CgroupDriver}}}} {{{{.CgroupVersion}}}}'\n"
        f"docker images --digests | tail -1 | tr -s ' '; docker image inspect vllm/vllm-openai@{DIGEST} -f ok\n"
        "docker image inspect nope; echo $?; docker --version; docker frobnicate; echo $?",
    )
    assert result.stdout.splitlines() == [
        f'vllm/vllm-openai@{DIGEST} ["vllm","serve"] arm64',
        "systemd 2",
        f"vllm/vllm-openai v0.22.1 {DIGEST} a1a1a1a1a1a1 2 months ago 20GB",
        "ok",
        "[]",
        "1",
        "Docker version 28.2.2, build e6534b4",
        "1",
    ]
    assert "Error response from daemon: No such image: nope:latest" in result.stderr
    assert "docker: unknown command: docker frobnicate" in result.stderr


def test_podman_tells_of_itself_by_its_own_names(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        "podman info --format '{{.Host.CgroupManager}} {{.Version.Version}}'; podman info | head -3\n"
        "podman info --format json | tr -d ' \\n' | cut -c -17; podman info --format '{{.CgroupDriver}}'; echo $?",
    )
    assert result.stdout.splitlines() == [
        "systemd 4.9.3",
        "host:",
        "  arch: arm64",
        "  cgroupManager: systemd",
        '{"host":{"arch":"',
        "64",
    ]
    assert "template parsing error" in result.stderr


def test_tools_report_what_running_engines_hold(host_shell: HostShell) -> None:
    result = host_shell(
        "nvidia",
        f"docker run -d --name a --network host --gpus '\"device=1,2\"' {IMAGE} stay >/dev/null; sleep 0.2\n"
        "nvidia-smi --query-gpu=index,memory.used --format=csv,noheader,nounits\n"
        "nvidia-smi --query-compute-apps=process_name,gpu_uuid --format=csv,noheader | cut -d, -f1\n"
        f"{RUN} --gpus all {IMAGE}; echo $?; docker stop a >/dev/null; nvidia-smi "
        "--query-compute-apps=pid --format=csv,noheader",
    )
    assert result.stdout.splitlines() == [
        "0, 4",
        "1, 174313",
        "2, 174313",
        "3, 4",
        "VLLM::EngineCore",
        "VLLM::EngineCore",
        "1",
    ]
    assert "BlockingIOError" in result.stderr


def test_a_native_engine_starts_from_its_virtual_environment(host_shell: HostShell) -> None:
    venv = "/opt/moe-infra/venv"
    result = host_shell(
        "nvidia",
        f"{venv}/bin/vllm serve x < /dev/null; {venv}/bin/python -c 'print(6 * 7)'; rm {venv}/pyvenv.cfg; "
        f"{venv}/bin/vllm serve x; echo $?",
        native_engine={"engine": "vllm", "engine_version": "0.22.1"},
    )
    seen = view(result)
    assert seen["argv"] == ["vllm", "serve", "x"]
    assert seen["env"]["MOE_REHEARSAL_DEVICES"] == "0,1,2,3"
    assert seen["env"]["MOE_REHEARSAL_ENGINE_VERSION"] == "0.22.1"
    assert result.stdout.splitlines()[1:] == ["42", "127"]
    assert "is not a virtual environment" in result.stderr
