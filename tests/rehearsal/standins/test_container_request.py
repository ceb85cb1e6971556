"""What `run` refuses by itself, and what it makes of mounts, devices and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.rehearsal.standins.container_request import ContainerRequest, read_request
from infra.rehearsal.standins.failures import CommandFailure, Refusal, run_failure

HELP = "\n\nRun 'docker run --help' for more information"
USAGE = "\n\nUsage:  docker run [OPTIONS] IMAGE [COMMAND] [ARG...]"


def read(*arguments: str) -> ContainerRequest:
    return read_request("docker", [*arguments, "image", "word"])


@pytest.mark.parametrize(
    ("arguments", "text", "exit_code"),
    [
        (["--foo"], f"unknown flag: --foo{USAGE}{HELP}", 125),
        (["--env-file", "/nope"], f"docker: open /nope: no such file or directory{HELP}", 125),
        (["-p", "99999999"], f"docker: invalid containerPort: 99999999{HELP}", 125),
        (
            ["--pull", "sometimes"],
            (
                'docker: invalid pull option: \'sometimes\': must be one of "always", "missing" or '
                f'"never"{HELP}'
            ),
            125,
        ),
        (["--network="], f"docker: no name set for network{HELP}", 125),
        (["--pid", "foo"], f"docker: --pid: invalid PID mode{HELP}", 125),
        (
            ["-d", "-a", "stdout"],
            "conflicting options: cannot specify both --attach and --detach",
            1,
        ),
        (
            ["-d", "--rm", "--restart", "always"],
            f"docker: conflicting options: cannot specify both --restart and --rm{HELP}",
            125,
        ),
        (
            ["--cidfile", "/etc/passwd"],
            (
                "docker: container ID file found, make sure the other container isn't running or delete "
                f"/etc/passwd{HELP}"
            ),
            125,
        ),
        (["--security-opt", "foo"], f'docker: Invalid --security-opt: "foo"{HELP}', 125),
        (
            ["--security-opt", "seccomp=/nope"],
            (
                "docker: opening seccomp profile (/nope) failed: open /nope: no such file or "
                f"directory{HELP}"
            ),
            125,
        ),
    ],
)
def test_the_client_refuses_in_the_real_words(
    arguments: list[str], text: str, exit_code: int
) -> None:
    with pytest.raises(CommandFailure) as failure:
        read(*arguments)
    assert (failure.value.text, failure.value.exit_code) == (text, exit_code)


def test_an_image_is_needed() -> None:
    with pytest.raises(
        CommandFailure, match="'docker run' requires at least 1 argument"
    ) as failure:
        read_request("docker", ["--rm"])
    assert failure.value.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "text", "exit_code"),
    [
        (
            ["--mount", "type=bind,source=/nope,target=/x"],
            'invalid mount config for type "bind": bind source path does not exist: /nope',
            125,
        ),
        (["-v", "/a:/b:zz"], "invalid mode: zz", 125),
        (["-v", "/a:/b:ro:z"], "invalid volume specification: '/a:/b:ro:z'", 125),
        (["-v", "/a:/b", "-v", "/c:/b"], "Duplicate mount point: /b", 125),
        (
            ["-v", "/a:b"],
            (
                "invalid volume specification: '/a:b': invalid mount config for type \"bind\": invalid mount "
                "path: 'b' mount path must be absolute"
            ),
            125,
        ),
    ],
)
def test_the_daemon_refuses_mounts_in_the_real_words(
    arguments: list[str], text: str, exit_code: int
) -> None:
    with pytest.raises(Refusal) as refusal:
        read(*arguments)
    failure = run_failure("docker", refusal.value)
    assert failure.text == f"docker: Error response from daemon: {text}{HELP}"
    assert failure.exit_code == exit_code


def test_a_missing_device_leaves_with_127_as_the_client_derives_it_from_the_text() -> None:
    failure = run_failure("docker", Refusal("device_missing", path="/dev/x"))
    assert failure.exit_code == 127
    assert (
        'error gathering device information while adding custom device "/dev/x": no such file or '
        "directory" in failure.text
    )


def test_podman_says_it_shorter() -> None:
    with pytest.raises(CommandFailure) as failure:
        read_request("podman", ["--foo", "image"])
    assert failure.value.text == "Error: unknown flag: --foo\nSee 'podman run --help'"
    failure_text = run_failure("podman", Refusal("device_missing", path="/dev/x")).text
    assert failure_text == "Error: stat /dev/x: no such file or directory"


def test_env_files_are_read_without_quotes_and_with_the_clients_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_CLIENT", "here")
    path = tmp_path / "engine.env"
    path.write_text('# comment\n\n  A="quoted" # kept\nB=\nFROM_CLIENT\nNOT_SET\n')
    request = read("--env-file", str(path), "-e", "B=2", "-e", "FROM_CLIENT")
    assert request.variables == [
        'A="quoted" # kept',
        "B=",
        "FROM_CLIENT=here",
        "B=2",
        "FROM_CLIENT=here",
    ]


def test_a_blank_in_a_variables_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.env"
    path.write_text("export A=1\n")
    with pytest.raises(CommandFailure, match="variable 'export A' contains whitespaces"):
        read("--env-file", str(path))


def test_outer_mounts_come_before_inner_ones(tmp_path: Path) -> None:
    request = read("-v", "/a:/models/inner", "-v", f"{tmp_path}:/models:ro", "--tmpfs", "/scratch")
    targets = [(mount.target, mount.kind, mount.read_only) for mount in request.mounts]
    assert targets == [
        ("/models", "bind", True),
        ("/scratch", "tmpfs", False),
        ("/models/inner", "bind", False),
    ]


def test_cdi_names_are_not_paths() -> None:
    request = read("--device", "nvidia.com/gpu=all", "--device", "/dev/kfd:/dev/kfd:rw")
    assert request.gpus[0].cdi_names == ["nvidia.com/gpu=all"]
    assert request.devices == [("/dev/kfd", "/dev/kfd")]
