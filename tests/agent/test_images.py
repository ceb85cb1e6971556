"""Images from a mirror or an archive, known by their own ids; virtual environments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

DIGEST, ID = "sha256:" + "a" * 64, "sha256:" + "c" * 64
REFERENCE = "quay.io/ascend/vllm-ascend:v1"
DOCKER = """\
echo "$*" >> {folder}/said
case "$1" in
image) [ -e {folder}/present ] && {{ cat {folder}/present; exit 0; }}
  echo "Error response from daemon: No such image: $3" >&2; exit 1;;
pull) printf '%s' '[{{"Id": "{id}", "RepoDigests": ["mirror/ascend/vllm-ascend@{digest}"]}}]' > {folder}/present;;
load) printf '%s' '[{{"Id": "{id}", "RepoDigests": []}}]' > {folder}/present;;
esac
"""
ENVIRONMENT = "/opt/moe-infra/engines/vllm-0.22.1"


@pytest.fixture
def docker(tmp_path: Path, stand_in: Callable[[str, str], None]) -> Path:
    stand_in("docker", DOCKER.format(folder=tmp_path, digest=DIGEST, id=ID))
    return tmp_path


def bring(host: StubbornHost, **keys: object) -> dict[str, object]:
    item: dict[str, object] = {"id": "image", "group": "images", "kind": "image"}
    common = {"runtime": "docker", "reference": REFERENCE}
    return host.state("apply", [{**item, **common, **keys}])["image"]


def said(docker: Path) -> list[str]:
    lines = (docker / "said").read_text().splitlines()
    return [line for line in lines if not line.startswith("image ")]


def test_a_mirror_stands_in_for_the_registry_and_the_image_keeps_its_name(
    host: StubbornHost, docker: Path
) -> None:
    row = bring(host, mirror="mirror:5000", digest=DIGEST)
    assert (row["state"], row["after"]) == ("changed", DIGEST)
    place = f"mirror:5000/ascend/vllm-ascend@{DIGEST}"
    assert said(docker) == [f"pull --quiet {place}", f"tag {place} {REFERENCE}"]


def test_an_image_of_the_hub_keeps_its_whole_name_at_a_mirror(
    host: StubbornHost, docker: Path
) -> None:
    bring(host, mirror="mirror:5000/", reference="vllm/vllm-openai:v1")
    assert said(docker)[0] == "pull --quiet mirror:5000/vllm/vllm-openai:v1"


def test_an_archive_is_loaded_and_known_by_its_id(host: StubbornHost, docker: Path) -> None:
    host.put("/srv/image.tar", b"tar")
    row = bring(host, archive="/srv/image.tar", digest=ID)
    assert (row["state"], row["after"]) == ("changed", ID)
    assert said(docker) == [f"load --input {host.path('/srv/image.tar')}"]


def test_an_archive_of_another_image_fails(host: StubbornHost, docker: Path) -> None:
    host.put("/srv/image.tar", b"tar")
    row = bring(host, archive="/srv/image.tar", digest=DIGEST)
    assert (row["state"], row["after"]) == ("failed", ID)


def test_an_archive_that_is_not_there_is_named(host: StubbornHost, docker: Path) -> None:
    row = bring(host, archive="/srv/image.tar")
    assert row["state"] == "failed"
    assert "/srv/image.tar is not on this host" in str(row["why"])


def environment(host: StubbornHost) -> dict[str, object]:
    item: dict[str, object] = {"id": "e", "group": "images", "kind": "environment"}
    make = "python3 -m venv X && X/bin/pip install vllm==0.22.1"
    keys = {"want": "vllm==0.22.1", "package": "vllm==0.22.1", "program": "vllm", "fix": make}
    return host.state("apply", [{**item, **keys, "target": ENVIRONMENT}])["e"]


def test_a_missing_environment_fails_with_the_command_that_makes_it(host: StubbornHost) -> None:
    row = environment(host)
    assert row["state"] == "failed"
    assert "pip install vllm==0.22.1" in str(row["why"])


def test_an_environment_with_another_version_fails(host: StubbornHost) -> None:
    host.put(f"{ENVIRONMENT}/bin/vllm", b"")
    records = f"{ENVIRONMENT}/lib/python3.12/site-packages"
    host.put(f"{records}/vllm-0.21.0.dist-info/METADATA", b"")
    assert "it holds vllm 0.21.0, wanted 0.22.1" in str(environment(host)["why"])
    host.put(f"{records}/vllm-0.22.1.dist-info/METADATA", b"")
    assert environment(host)["state"] == "ok"


def test_a_build_of_the_wanted_version_is_taken(host: StubbornHost) -> None:
    host.put(f"{ENVIRONMENT}/bin/vllm", b"")
    records = f"{ENVIRONMENT}/lib/python3.12/site-packages"
    host.put(f"{records}/vllm-0.22.1+cu129.dist-info/METADATA", b"")
    assert environment(host)["state"] == "ok"


def test_an_environment_that_tells_no_version_is_taken(host: StubbornHost) -> None:
    host.put(f"{ENVIRONMENT}/bin/vllm", b"")
    row = environment(host)
    assert (row["state"], "cannot be told" in str(row["why"])) == ("ok", True)
