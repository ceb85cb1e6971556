"""`fab stage-weights --image-archive` on simulated hosts: sent once, handed on, loaded, proven by its id."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.catalog.load import Catalog
from infra.plan.compile import compile_file
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabFile, LabHost
from infra.rehearsal.lab.starting import start_lab
from infra.rehearsal.simulated_hosts import Pace, simulate_hosts
from tests.cli.commands import FAB, need_lab, run
from tests.cli.saved_image import save_image

# Three hosts with stand-ins for docker and podman; each call takes some seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

IMAGE = "example/engine:1"
WEIGHTS = "/srv/weights"
STACK = f"""\
summary: three replicas
checkpoint: kimi-k2.5-int4
accelerator: h200
engine: {{name: vllm, version: 0.22.1, image: {IMAGE}}}
platform: existing-hosts
roles: {{unified: {{replicas: 3, tensor_parallel: 8, max_model_len: 65536}}}}
router: {{name: vllm-router}}
weights: {{source: {WEIGHTS}}}
"""
HOSTS = tuple(f"unified-{number}" for number in range(3))
RECEIVED = "ls -A /models/.moe-received 2>/dev/null || :"
MIB = 1 << 20


class Site:
    """Three hosts without the stack's image."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        (folder / "three.yaml").write_text(STACK)
        addresses = {name: f"192.0.2.{n + 1}" for n, name in enumerate(HOSTS)}
        common = {"ansible_user": "ubuntu", "ansible_ssh_common_args": f"-F {lab.ssh_config}"}
        hosts = {name: {"ansible_host": address} for name, address in addresses.items()}
        document = {"all": {"vars": common, "children": {"unified": {"hosts": hosts}}}}
        (folder / "hosts.yml").write_text(json.dumps(document))

    def words(self, *words: str, runtime: str = "docker") -> list[str]:
        chosen = ["--file", str(self.folder / "three.yaml"), "--set", f"runtime={runtime}"]
        return [
            FAB,
            "stage-weights",
            *chosen,
            "--inventory",
            str(self.folder / "hosts.yml"),
            *words,
        ]

    def stage(self, *words: str, runtime: str = "docker") -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words, runtime=runtime))

    def archive(self, layer_bytes: int = MIB, tag: str = IMAGE) -> tuple[str, str]:
        """A new archive, and the id of its image."""
        path = self.folder / "image.tar"
        return str(path), save_image(path, tag, layer_bytes=layer_bytes)

    def sh(self, host: str, command: str) -> str:
        done = self.lab.run(
            host, ["sh", "-c", command], environment={"PATH": "/usr/local/bin:/usr/bin:/bin"}
        )
        return done.stdout.decode() + done.stderr.decode()

    def held(self, host: str, runtime: str = "docker") -> str:
        """The id of the image on a host."""
        return self.sh(
            host, f"{runtime} image inspect --format '{{{{.Id}}}}' {IMAGE} 2>/dev/null"
        ).strip()


def without_image(host: LabHost) -> LabHost:
    """The host with neither image nor weights; a small checkpoint lies where the stack takes it from."""
    path = "/var/lib/moe-rehearsal/host.json"
    facts = json.loads(host.files[path].content)
    kept = {name: file for name, file in host.files.items() if not name.startswith("/models/")}
    emptied = LabFile(content=json.dumps({**facts, "images": []}).encode())
    weights = {
        f"{WEIGHTS}/{name}": LabFile(content=name.encode())
        for name in ("config.json", "a.safetensors")
    }
    return replace(host, files={**kept, **weights, path: emptied}, sparse_files={})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_lab()
    folder = tmp_path_factory.mktemp("stack")
    (folder / "three.yaml").write_text(STACK)
    catalog = Catalog()
    plan = compile_file(str(folder / "three.yaml"), catalog=catalog).plan
    hosts = simulate_hosts(plan, catalog, Pace(time_scale=1.0, load_seconds=0.0))
    with start_lab(
        tmp_path_factory.mktemp("lab") / "l", [without_image(host) for host in hosts]
    ) as running:
        running.wait_ready(60.0)
        yield running


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Site:
    made = Site(lab, tmp_path)
    for host in HOSTS:
        made.sh(host, "rm -rf /models/.moe-received /var/lib/moe-rehearsal/loaded.json")
    return made


def images(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    return {host["name"]: host["images"][0] for host in json.loads(done.stdout)["hosts"]}


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_every_host_gets_it_and_nothing_of_the_archive_stays(site: Site, runtime: str) -> None:
    path, identity = site.archive()
    missing = site.stage("--check", "--image-archive", path, runtime=runtime)
    assert f"{IMAGE} is missing on {', '.join(HOSTS)}" in missing.stdout, missing.stderr
    assert {site.held(host, runtime) for host in HOSTS} == {""}
    done = site.stage("--image-archive", path, "--json", runtime=runtime)
    assert done.returncode == 0, done.stderr
    assert {row["state"] for row in images(done).values()} == {"changed"}
    assert {row["digest"] for row in images(done).values()} == {identity}
    assert {site.held(host, runtime).removeprefix("sha256:") for host in HOSTS} == {identity[7:]}
    assert done.stderr.count("sending image.tar") == 1, "one host gets it, the others from it"
    assert {site.sh(host, RECEIVED) for host in HOSTS} == {""}
    again = site.stage("--image-archive", path, "--json", runtime=runtime)
    assert {row["state"] for row in images(again).values()} == {"ok"}
    assert "sending" not in again.stderr


def test_another_build_under_the_same_name_takes_its_place(site: Site) -> None:
    path, first = site.archive()
    assert site.stage("--image-archive", path).returncode == 0
    path, second = site.archive()
    assert first == second or site.stage("--image-archive", path).returncode == 0
    assert {site.held(host) for host in HOSTS} == {second}


def test_one_that_is_cut_off_is_gone_on_from(site: Site) -> None:
    path, identity = site.archive(layer_bytes=200 * MIB)
    with subprocess.Popen(
        site.words("--image-archive", path), stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 60
        arrived = "stat -c %s /models/.moe-received/.partial-*/image.tar 2>/dev/null || echo 0"
        while max(int(site.sh(host, arrived)) for host in HOSTS) < 32 * MIB:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert {site.held(host) for host in HOSTS} == {""}
    done = site.stage("--image-archive", path)
    assert done.returncode == 0, done.stderr
    assert "going on after 0." in done.stderr
    assert {site.held(host) for host in HOSTS} == {identity}
    assert {site.sh(host, RECEIVED) for host in HOSTS} == {""}


def test_a_wrong_archive_is_refused_before_a_host_is_asked(site: Site) -> None:
    path, _ = site.archive(tag="other/engine:1")
    done = site.stage("--image-archive", path)
    assert done.returncode == 2
    assert f"holds other/engine:1, and not {IMAGE}" in done.stderr
    Path(path).write_bytes(b"no archive")
    assert site.stage("--image-archive", path).returncode == 2


@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_runtime_that_cannot_load_it_is_named_and_nothing_is_sent_twice(
    site: Site, runtime: str
) -> None:
    path, identity = site.archive()
    site.sh("unified-1", "mkdir -p /var/lib/moe-rehearsal/loaded.json.new")  # its disk is broken
    done = site.stage("--image-archive", path, runtime=runtime)
    assert done.returncode == 4, done.stderr
    assert f"{IMAGE} on unified-1: {runtime} load" in done.stdout
    assert site.held("unified-0", runtime).removeprefix("sha256:") == identity[7:]
    site.sh("unified-1", "rmdir /var/lib/moe-rehearsal/loaded.json.new")
    done = site.stage("--image-archive", path, runtime=runtime)
    assert done.returncode == 0, done.stderr
    assert "sending" not in done.stderr
    assert {site.sh(host, RECEIVED) for host in HOSTS} == {""}


@pytest.mark.parametrize(
    ("content", "docker", "podman"),
    [
        (b"", "Error processing tar file(exit status 1): unexpected EOF", "does not match any of the supported"),
        (None, "open /tmp/i.tar: no such file or directory", "stat /tmp/i.tar: no such file or directory"),
    ],
)  # fmt: skip
def test_the_stand_ins_say_no_as_the_real_ones_do(
    site: Site, content: bytes | None, docker: str, podman: str
) -> None:
    site.sh("unified-0", "rm -f /tmp/i.tar")
    if content is not None:
        site.lab.write_file("unified-0", "/tmp/i.tar", content)
    for runtime, said, code in (("docker", docker, 1), ("podman", podman, 125)):
        told = site.sh("unified-0", f"{runtime} load --input /tmp/i.tar 2>&1; echo $?")
        assert said in told
        assert told.splitlines()[-1] == str(code)
