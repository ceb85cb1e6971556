"""Archives of images on the operator's machine: what they hold, and what is refused before a byte is sent."""

from __future__ import annotations

import gzip
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.launch.images.archive import plain_name, read_archive
from infra.launch.images.sending import plan_sending
from tests.cli.saved_image import save_image
from tests.launch.scripted_fleet import make_deployment


@pytest.mark.parametrize("tag", ["a/b:1", "docker.io/a/b:1"])
def test_it_is_known_by_name_and_id(tmp_path: Path, tag: str) -> None:
    identity = save_image(tmp_path / "i.tar", tag)
    archive = read_archive(tmp_path / "i.tar")
    assert archive.images == {"a/b:1": identity}
    assert archive.size_bytes == (tmp_path / "i.tar").stat().st_size
    packed = tmp_path / "i.tar.gz"
    packed.write_bytes(gzip.compress((tmp_path / "i.tar").read_bytes()))
    assert read_archive(packed).images == archive.images


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("docker.io/library/ubuntu", "ubuntu:latest"),
        ("quay.io/a/b:1@sha256:0", "quay.io/a/b:1"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
    ],
)
def test_names_are_compared_as_docker_means_them(written: str, plain: str) -> None:
    assert plain_name(written) == plain


def test_what_is_none_is_refused_with_the_way_to_write_one(tmp_path: Path) -> None:
    path = tmp_path / "i.tar"
    with pytest.raises(StackError, match="No such file"):
        read_archive(path)
    path.write_bytes(b"")
    with pytest.raises(StackError, match="no archive of images"):
        read_archive(path)
    save_image(path, "a:1")
    path.write_bytes(path.read_bytes()[: 1 << 19])
    with pytest.raises(StackError, match="docker save -o FILE IMAGE"):
        read_archive(path)
    with tarfile.open(path, "w"):
        pass
    with pytest.raises(StackError, match=r"it has no manifest\.json"):
        read_archive(path)


def test_a_changed_configuration_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "i.tar"
    save_image(path, "a:1")
    path.write_bytes(path.read_bytes().replace(b'"amd64"', b'"arm64"'))
    with pytest.raises(StackError, match="is damaged"):
        read_archive(path)


def test_hosts_are_told_the_archive_and_the_id(tmp_path: Path, catalog: Catalog) -> None:
    deployment, _, _ = make_deployment("gb200-tp4", catalog)
    reference = next(i.target for s in deployment.states.values() for i in s.of_groups("images"))
    identity = save_image(tmp_path / "i.tar", reference)
    archive = read_archive(tmp_path / "i.tar")
    sending, states = plan_sending(archive, deployment.states, "/models", is_shared=False)
    (item,) = (item for state in states.values() for item in state.of_groups("images"))
    assert sending.folder == f"/models/.moe-received/{archive.sha256[:12]}"
    assert item.details["archive"] == f"{sending.folder}/image.tar"
    assert item.details["digest"] == identity
    named = replace(archive, images={"other:1": identity})
    with pytest.raises(StackError, match=f"holds other:1, and not {reference}"):
        plan_sending(named, deployment.states, "/models", is_shared=False)
    states = {
        host: replace(
            state,
            items=tuple(
                replace(one, details={**one.details, "digest": "sha256:1"})
                if one.kind == "image"
                else one
                for one in state.items
            ),
        )
        for host, state in deployment.states.items()
    }
    with pytest.raises(StackError, match="pinned to sha256:1"):
        plan_sending(archive, states, "/models", is_shared=False)
