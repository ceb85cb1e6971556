"""The renderer refuses what the gate of plans should have stopped: nothing hostile becomes text that a host runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from infra.catalog.load import Catalog
from infra.catalog.schema import Mount
from infra.engines.credentials import Credential
from infra.errors import StackError
from infra.plan.compile import compile_file
from infra.plan.process import Process
from infra.render.environment_file import environment_file, is_plain
from infra.render.host_paths import credential_path, process_index, stack_folder
from infra.render.launch_script import ContainerLaunch, NativeLaunch, launch_script
from infra.render.units import cleanup_unit_text, process_unit, watch_unit_text

HOSTILE = ["A=1; id > /etc/x; B", "A B", "1A", "", "A\nB=1", "A*", "A$(id)", "A\0", "É"]
STACKS = ["a'b", "a b", "../x", "%i", "a\nb", "", "-x", "x" * 65]
NATIVE = NativeLaunch(environment="/opt/moe-infra/engines/x", package="vllm==1")


@pytest.fixture
def process(catalog: Catalog) -> Process:
    return compile_file("h200-tp8", catalog=catalog).plan.processes[0]


def a_container(image: str = "an/image:tag", *mounts: Mount) -> ContainerLaunch:
    return ContainerLaunch(
        runtime="docker", image=image, entrypoint=(), devices=None, mounts=mounts
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_none_is_written_nowhere(name: str, process: Process) -> None:
    with pytest.raises(StackError, match="no name of a variable"):
        environment_file(process.id, {name: "x"})
    for edited in (
        dataclasses.replace(process, env={name: "x"}),
        dataclasses.replace(process, env_prepend={name: "x"}),
    ):
        for launch in (a_container(), NATIVE):
            with pytest.raises(StackError, match="no name of a variable"):
                launch_script("s", edited, launch, ())


@pytest.mark.parametrize("name", ["a/0\nid", "a/../b", "a", "a/01", "a b/0"])
def test_an_id_that_is_none_ends_no_comment(name: str, process: Process) -> None:
    edited = dataclasses.replace(process, id=name)
    with pytest.raises(StackError):
        environment_file(name, {})
    with pytest.raises(StackError):
        launch_script("s", edited, NATIVE, ())
    with pytest.raises(StackError):
        process_index(edited)


@pytest.mark.parametrize("argv", [("-c", "id"), ("",), (), ("a\0b",), ("a\nb",)])
def test_a_program_that_is_none_is_not_started(argv: tuple[str, ...], process: Process) -> None:
    with pytest.raises(StackError):
        launch_script("s", dataclasses.replace(process, argv=argv), NATIVE, ())


@pytest.mark.parametrize("image", ["-v", "--privileged", "a b", "a\nb", "$(id)", "a;b"])
def test_an_image_that_is_an_option_is_not_run(image: str) -> None:
    with pytest.raises(StackError, match="no image's reference"):
        a_container(image)


@pytest.mark.parametrize("source", ["/", "/etc", "/run/docker.sock", "/a/..", "x", "/a\n", "//"])
def test_a_mount_that_gives_the_host_away_is_not_made(source: str) -> None:
    with pytest.raises(StackError, match="is not mounted"):
        a_container("an/image:tag", Mount(source=source, target="/x"))
    if not source.startswith("/run") and source not in ("/", "/etc"):
        with pytest.raises(StackError, match="is not mounted"):
            a_container("an/image:tag", Mount(source="/models", target=source))


@pytest.mark.parametrize(
    "write",
    [
        stack_folder,
        lambda stack: process_unit(stack, "engine", "docker", (), binds_low_port=False),
        lambda stack: cleanup_unit_text(stack, "docker", ["x"]),
        watch_unit_text,
    ],
)
@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_whose_name_is_none_has_no_units(write: Callable[[str], str], stack: str) -> None:
    with pytest.raises(StackError, match="stack"):
        write(stack)


@pytest.mark.parametrize("secret", ["../x", "a b", "a\nb", "a:b"])
def test_a_secret_whose_name_is_none_has_no_file(secret: str) -> None:
    with pytest.raises(StackError, match="no name of a secret"):
        credential_path("s", secret)
    with pytest.raises(StackError, match="no name of a secret"):
        process_unit("s", "engine", "docker", [secret], binds_low_port=False)


def test_what_passes_is_written(process: Process) -> None:
    key = Credential(name="api_key", variable="VLLM_API_KEY", holds="value")
    mounted = a_container("an/image:tag", Mount(source="/models", target="/models"))
    assert "an/image:tag" in launch_script("s", process, mounted, (key,))


@pytest.mark.parametrize("value", ["a\x1bb", "a\x00", "a\nb", "a'b", ' "', "a\x7f", "x" * 20_000])
def test_what_a_reader_would_drop_is_left_to_the_script(value: str) -> None:
    assert not is_plain("A", value)


def test_a_tab_is_kept_by_all_readers() -> None:
    assert is_plain("A", "a\tb")
