"""Images against a runtime's stand-in, weights against their manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

DIGEST = "sha256:" + "a" * 64
REFERENCE = "vllm/vllm-openai:v0.22.1"
DOCKER = """\
case "$1" in
image) [ -e {folder}/present ] && {{ cat {folder}/present; exit 0; }}
  echo "[]"; echo "Error response from daemon: No such image: $3" >&2; exit 1;;
pull) echo "$3" > {folder}/pulled; [ -e {folder}/offline ] && {{ echo "no route to host" >&2; exit 1; }}
  printf '%s' '[{{"RepoDigests": ["vllm/vllm-openai@{digest}"]}}]' > {folder}/present;;
esac
"""
FOLDER = "/models/kimi/abc"
FILES = {"model-00001.safetensors": 12, "config.json": 0}


@pytest.fixture
def docker(tmp_path: Path, stand_in: Callable[[str, str], None]) -> Path:
    stand_in("docker", DOCKER.format(folder=tmp_path, digest=DIGEST))
    return tmp_path


def image(**keys: object) -> list[dict[str, object]]:
    item: dict[str, object] = {"id": "image", "group": "images", "kind": "image"}
    return [{**item, "runtime": "docker", "reference": REFERENCE, **keys}]


def test_a_missing_image_is_pulled(host: StubbornHost, docker: Path) -> None:
    row = host.state("check", image())["image"]
    assert (row["state"], row["before"], row["wanted"]) == ("changed", None, REFERENCE)
    row = host.state("apply", image())["image"]
    assert (row["state"], row["after"]) == ("changed", DIGEST)
    assert host.state("apply", image())["image"]["state"] == "ok"
    assert (docker / "pulled").read_text() == REFERENCE + "\n"


def test_a_wanted_digest_is_what_is_pulled(host: StubbornHost, docker: Path) -> None:
    row = host.state("apply", image(digest=DIGEST))["image"]
    assert (row["state"], row["after"]) == ("changed", DIGEST)
    assert (docker / "pulled").read_text() == f"vllm/vllm-openai@{DIGEST}\n"


def test_another_digest_is_a_difference(host: StubbornHost, docker: Path) -> None:
    host.state("apply", image())
    row = host.state("check", image(digest="sha256:" + "b" * 64))["image"]
    assert (row["state"], row["before"]) == ("changed", DIGEST)


def test_a_pull_that_fails_is_quoted(host: StubbornHost, docker: Path) -> None:
    (docker / "offline").touch()
    row = host.state("apply", image())["image"]
    assert row["state"] == "failed"
    assert "no route to host" in str(row["why"])


def test_a_known_digest_is_what_is_pulled_and_no_demand_on_what_is_there(
    host: StubbornHost, docker: Path
) -> None:
    """What an operator has loaded or built stays; what its own registry gave is compared, and told."""
    known = {"known_digest": DIGEST}
    row = host.state("apply", image(**known))["image"]
    assert (row["state"], (docker / "pulled").read_text().strip()) == (
        "changed",
        f"vllm/vllm-openai@{DIGEST}",
    )
    assert host.state("check", image(**known))["image"]["why"] == "already so"
    other = "sha256:" + "b" * 64
    for whose, said in (("vllm/vllm-openai", True), ("mirror.example.com/vllm", False)):
        (docker / "present").write_text(json.dumps([{"RepoDigests": [f"{whose}@{other}"]}]))
        row = host.state("check", image(**known))["image"]
        assert row["state"] == "ok"
        assert (f"its digest is {other}; the catalogue knows {DIGEST}" in str(row["why"])) is said


def test_a_mirror_is_asked_for_the_tag(host: StubbornHost, docker: Path) -> None:
    host.state("apply", image(known_digest=DIGEST, mirror="mirror:5000"))
    assert (docker / "pulled").read_text().strip() == f"mirror:5000/{REFERENCE}"


def test_a_runtime_that_is_not_there_fails(
    host: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    row = host.state("check", image())["image"]
    assert (row["state"], row["why"]) == ("failed", "docker: No such file or directory")


def test_garbage_of_a_runtime_fails(host: StubbornHost, docker: Path) -> None:
    (docker / "present").write_text("Emulate Docker CLI")
    row = host.state("check", image())["image"]
    assert (row["state"], "not JSON" in str(row["why"])) == ("failed", True)


def test_without_a_runtime_there_are_no_images(host: StubbornHost) -> None:
    assert host.state("check", image(runtime="native"))["image"]["state"] == "not_applicable"


def weights(**keys: object) -> list[dict[str, object]]:
    item: dict[str, object] = {"id": "weights", "group": "weights", "kind": "weights"}
    return [{**item, "target": FOLDER, "size_bytes": 12, **keys}]


@pytest.fixture
def staged(host: StubbornHost) -> StubbornHost:
    files = [{"name": name, "size_bytes": size} for name, size in FILES.items()]
    host.put(f"{FOLDER}/manifest.json", json.dumps({"files": files}))
    for name, size in FILES.items():
        host.put(f"{FOLDER}/{name}", b"x" * size)
    return host


def test_whole_weights_are_ok(staged: StubbornHost) -> None:
    row = staged.state("apply", weights())["weights"]
    assert (row["state"], row["before"]) == ("ok", "complete")
    assert "2 files" in str(row["why"])


@pytest.mark.parametrize(
    ("mode", "reader", "state"),
    [(0o640, "container", "failed"), (0o640, None, "ok"), (0o644, "container", "ok")],
)
def test_weights_of_another_user_are_closed_to_a_container_that_may_not_override(
    staged: StubbornHost, mode: int, reader: str | None, state: str
) -> None:
    staged.owner = (staged.owner[0] + 1, staged.owner[1] + 1)  # root reads what root may: not these
    Path(staged.path(f"{FOLDER}/config.json")).chmod(mode)
    row = staged.state("check", weights(**({"reader": reader} if reader else {})))["weights"]
    assert row["state"] == state
    if state == "failed":
        assert f"{FOLDER}/config.json is closed to containers: chmod o+r" in str(row["why"])


def test_a_folder_that_nobody_else_may_enter_is_named(staged: StubbornHost) -> None:
    staged.owner = (staged.owner[0] + 1, staged.owner[1] + 1)
    above = str(Path(FOLDER).parent)
    Path(staged.path(above)).chmod(0o700)
    row = staged.state("check", weights(reader="container"))["weights"]
    assert f"{above} is closed to containers: chmod o+x" in str(row["why"])


def test_a_missing_folder_fails(host: StubbornHost) -> None:
    row = host.state("check", weights())["weights"]
    assert (row["state"], row["before"], row["why"]) == ("failed", None, f"{FOLDER} does not exist")


def test_a_missing_manifest_fails(staged: StubbornHost) -> None:
    Path(staged.path(f"{FOLDER}/manifest.json")).unlink()
    assert "has no manifest.json" in str(staged.state("check", weights())["weights"]["why"])


def test_a_short_shard_is_named_with_its_sizes(staged: StubbornHost) -> None:
    staged.put(f"{FOLDER}/model-00001.safetensors", b"x" * 11)
    row = staged.state("apply", weights())["weights"]
    assert (row["state"], row["before"]) == ("failed", "damaged")
    assert "model-00001.safetensors has 11 bytes, wanted 12" in str(row["why"])


def test_a_missing_shard_is_named(staged: StubbornHost) -> None:
    Path(staged.path(f"{FOLDER}/config.json")).unlink()
    assert "config.json: No such file" in str(staged.state("check", weights())["weights"]["why"])


def test_a_manifest_of_another_checkpoint_is_noticed(staged: StubbornHost) -> None:
    files = [{"name": name, "size_bytes": size} for name, size in FILES.items()]
    document = json.dumps({"files": files, "repository": "a/one"})
    staged.put(f"{FOLDER}/manifest.json", document)
    row = staged.state("check", weights(repository="b/two"))["weights"]
    assert (row["state"], "is of a/one, wanted b/two" in str(row["why"])) == ("failed", True)
    assert staged.state("check", weights(repository="a/one"))["weights"]["state"] == "ok"


def test_a_size_far_from_the_catalogues_is_said_and_does_not_block(staged: StubbornHost) -> None:
    row = staged.state("check", weights(size_bytes=14))["weights"]
    assert (row["state"], "about 14 bytes" in str(row["why"])) == ("ok", True)
    row = staged.state("check", weights(size_bytes=0))["weights"]
    assert "catalogue" not in str(row["why"])


def test_a_file_written_to_after_it_was_verified_is_named(staged: StubbornHost) -> None:
    stamp = Path(staged.path(f"{FOLDER}/model-00001.safetensors")).stat().st_mtime_ns
    record = {"changed_ns": {"model-00001.safetensors": stamp}}
    staged.put(f"{FOLDER}/.verified.json", json.dumps(record))
    assert staged.state("check", weights())["weights"]["state"] == "ok"
    staged.put(f"{FOLDER}/model-00001.safetensors", b"y" * 12)
    row = staged.state("check", weights())["weights"]
    assert "model-00001.safetensors was written to" in str(row["why"])


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{}", b"\xff", b'{"files": [{"name": "../../etc/shadow", "size_bytes": 1}]}'],
)
def test_a_garbage_manifest_fails(staged: StubbornHost, manifest: bytes) -> None:
    staged.put(f"{FOLDER}/manifest.json", manifest)
    assert staged.state("check", weights())["weights"]["state"] == "failed"


LIBRARY = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"


def preload() -> list[dict[str, object]]:
    item: dict[str, object] = {"id": "jemalloc", "kind": "preload", "target": LIBRARY}
    place = {"runtime": "docker", "reference": REFERENCE, "tolerate_absent": True}
    return [{**item, **place, "want": "usable"}]


@pytest.mark.parametrize(
    ("says", "state", "why"),
    [
        ("exit 0", "ok", "usable in vllm/vllm-openai:v0.22.1 with"),
        # glibc's own words of a library that is not there; the program runs all the same.
        (
            "echo \"ERROR: ld.so: object '/x' from LD_PRELOAD cannot be preloaded: ignored.\" >&2",
            "blocked",
            "cannot be preloaded: ignored.; engines start without it",
        ),
        (
            'echo "<jemalloc>: Unsupported system page size" >&2; exit 134',
            "blocked",
            "Unsupported system page size",
        ),
        ('echo "docker: No such image: x" >&2; exit 125', "not_applicable", "not on this host yet"),
        ('echo "docker: permission denied" >&2; exit 126', "blocked", "permission denied"),
    ],
)
def test_a_library_is_proven_inside_the_image_that_uses_it(
    host: StubbornHost, stand_in: Callable[[str, str], None], says: str, state: str, why: str
) -> None:
    place = Path(host.path("/words"))
    stand_in("docker", f'mkdir -p {place.parent}; echo "$@" > {place}; {says}')
    row = host.state("check", preload())["jemalloc"]
    assert (row["state"], why in str(row["why"])) == (state, True), row
    words = place.read_text().split()
    assert words[:2] == ["run", "--rm"]
    assert words[2].startswith("--name=moe-infra-preload-")
    assert words[3:5] == ["--pull=never", "--network=none"]
    assert words[-3:] == ["--env", f"LD_PRELOAD={LIBRARY}", REFERENCE]


@pytest.mark.parametrize(
    ("said", "state", "why"),
    [
        (
            "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/",
            "ok",
            "it is 2.6.12",
        ),
        ("HAProxy version 3.0.5-8e879a5 2024/09/19", "ok", "it is 3.0.5"),
        ("HAProxy version 2.4.30-0ubuntu0.22.04.1", "failed", "2.6 is the oldest that will do"),
        ("", "failed", "is not there"),
    ],
)
def test_a_program_of_the_distribution_is_there_and_new_enough(
    host: StubbornHost, stand_in: Callable[[str, str], None], said: str, state: str, why: str
) -> None:
    stand_in("haproxy", f'test "$1" = -v && echo "{said}"')
    item: dict[str, object] = {"id": "program:haproxy", "group": "images", "kind": "program"}
    asked = {
        **item,
        "target": "haproxy",
        "want": "2.6",
        "flag": "-v",
        "fix": "apt-get install haproxy",
    }
    row = host.state("check", [asked])["program:haproxy"]
    assert row["state"] == state
    assert why in str(row["why"])
    assert state == "ok" or "apt-get install haproxy" in str(row["why"])
