"""`fab stage-weights` on simulated hosts that fetch from a simulated hub: what an operator sees, what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import LabFile, LabHost
from infra.rehearsal.lab.starting import start_lab
from infra.spec.load import PROJECT
from tests.cli.commands import FAB, begin, need_lab, run
from tests.naming import in_time

# Real sshd and systemd on three simulated hosts and a hub: each call takes about two seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

HUB, HUB_PORT = "192.0.2.100", 8080
HOSTS = {f"unified-{n}": f"192.0.2.{n + 1}" for n in range(3)}
SHARDS = {f"model-{n:05d}.safetensors": os.urandom(3_000_000) for n in range(4)}
FILES = {**SHARDS, "config.json": b"{}"}
SHARD = "model-00002.safetensors"
STACK = """\
summary: three replicas
checkpoint: kimi-k2.5-int4
accelerator: h200
engine: {name: vllm, version: 0.22.1}
platform: existing-hosts
roles: {unified: {replicas: 3, tensor_parallel: 8, max_model_len: 65536}}
router: {name: vllm-router}
"""
DOCKER = b"""\
#!/bin/sh
echo '[{"Id": "sha256:0", "RepoDigests": ["vllm/vllm-openai@sha256:'"$(cat /srv/digest 2>/dev/null || echo 1)"'"]}]'
"""
REVISION = "54383e83fa343a1331754112fb9e3410c55efa2f"
TARGET = f"/models/kimi-k2.5-int4/{REVISION}"
# What is left of a disk of 20 MiB fills up at the pace of the test's hub.
FILLS_S = 8.0
PARTIAL = f"/models/kimi-k2.5-int4/.partial-{REVISION}"
UNIT = "moe-staging-kimi-k2.5-int4-54383e83fa34.service"


class Site:
    """Three hosts without weights, and a hub that has them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.stack = folder / "three.yaml"
        self.inventory = folder / "hosts.yml"
        self.stack.write_text(STACK)
        hosts = {name: {"ansible_host": address} for name, address in HOSTS.items()}
        arguments = f"-F {lab.ssh_config}"
        common = {"ansible_user": "ubuntu", "ansible_ssh_common_args": arguments}
        document = {"all": {"vars": common, "children": {"unified": {"hosts": hosts}}}}
        self.inventory.write_text(json.dumps(document))

    def words(self, *words: str, source: str | None = None) -> list[str]:
        common = ["--file", str(self.stack), "--inventory", str(self.inventory)]
        origin = source or f"huggingface+http://{HUB}:{HUB_PORT}"
        return [FAB, "stage-weights", *common, "--source", origin, *words]

    def stage(self, *words: str, source: str | None = None) -> subprocess.CompletedProcess[str]:
        return run(*self.words(*words, source=source))

    def weights_of_verify(self, *words: str) -> dict[str, bool]:
        """What `fab verify` says of each host's weights; nothing runs there, which it says, too."""
        common = ["--file", str(self.stack), "--inventory", str(self.inventory), "--json"]
        done = run(FAB, "verify", *common, *words)
        assert done.returncode == 5, done.stderr
        kinds = ("weights:kimi-k2.5-int4",) if words else ("weights",)
        checks = json.loads(done.stdout)["checks"]
        return {one["process"]: one["ok"] for one in checks if one["check"] in kinds}

    def sh(self, host: str, command: str) -> str:
        return self.lab.run(host, ["sh", "-c", command]).stdout.decode()

    def spoil(self, **spoiling: object) -> None:
        self.lab.write_file("hub", "/srv/kimi.json", json.dumps(spoiling).encode())

    def forget(self) -> None:
        self.spoil()
        for host in HOSTS:
            self.sh(
                host,
                f"systemctl stop '{UNIT}' 2>/dev/null; systemctl reset-failed '{UNIT}' 2>/dev/null; "
                "rm -rf /models/* /run/moe-infra/staging",
            )

    def listing(self, host: str) -> list[str]:
        return self.sh(host, "cd /models && find . -type f | sort").split()

    def is_whole(self, host: str) -> bool:
        return all(
            self.lab.read_file(host, f"{TARGET}/{name}") == content
            for name, content in FILES.items()
        )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    need_lab()
    program = (PROJECT / "tests/agent/simulated_hub.py").read_bytes()
    files = {f"/srv/kimi/{name}": LabFile(content=content) for name, content in FILES.items()}
    hub = LabHost(name="hub", address=HUB, files={**files, "/srv/hub.py": LabFile(content=program)})
    router = "/opt/moe-infra/routers/vllm-router-0.1.17/bin/vllm-router"
    there = {
        "/usr/local/bin/docker": LabFile(content=DOCKER, mode=0o755),
        router: LabFile(content=b""),
    }
    hosts = [LabHost(name=name, address=at, files=there) for name, at in HOSTS.items()]
    with start_lab(tmp_path_factory.mktemp("lab") / "l", [hub, *hosts]) as running:
        running.wait_ready(30.0)
        words = ["systemd-run", "--unit=hub", "python3"]
        running.run("hub", [*words, "/srv/hub.py", "/srv/kimi", str(HUB_PORT)])
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                running.dial("hub", HUB_PORT).close()
                break
            except OSError:
                time.sleep(0.05)
        yield running


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Site:
    made = Site(lab, tmp_path)
    made.forget()
    return made


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The only checkpoint's row, by host."""
    document = json.loads(done.stdout)
    return {
        host["name"]: host["checkpoints"][0] for host in document["hosts"] if host["checkpoints"]
    }


def test_one_pull_from_the_hub_serves_every_host(site: Site) -> None:
    done = site.stage("--json")
    assert done.returncode == 0, done.stderr
    assert {row["state"] for row in rows(done).values()} == {"staged"}
    assert rows(done)["unified-2"]["why"] == "5 files from unified-1"
    manifests = {site.lab.read_file(host, f"{TARGET}/manifest.json") for host in HOSTS}
    assert len(manifests) == 1
    assert all(site.is_whole(host) for host in HOSTS)
    left = site.sh(
        "unified-1", f"ls /run/moe-infra/staging; systemctl is-active {UNIT}; ls -A /models/*"
    )
    assert left.split() == ["inactive", REVISION]
    again = site.stage()
    assert again.returncode == 0
    assert again.stdout.count("already complete (verified)") == 3


def start(site: Site, *words: str, until: str, source: str | None = None) -> subprocess.Popen[str]:
    """A staging that runs, once its standard error holds some words."""
    process = begin(*site.words(*words, source=source), stdout=subprocess.PIPE)
    read_until(process, until)
    return process


def read_until(process: subprocess.Popen[str], sign: str) -> None:
    """Wait until a staging has said something."""
    assert process.stderr is not None
    for line in process.stderr:
        if sign in line:
            return
    raise AssertionError(f"it never said {sign!r}")


def wait_for(condition: Any, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def arrived(site: Site, host: str) -> int:
    return int(site.sh(host, f"cat {PARTIAL}/* 2>/dev/null | wc -c") or 0)


@pytest.mark.fault
def test_a_killed_operator_leaves_the_work_going_and_a_second_one_follows_it(site: Site) -> None:
    site.spoil(pace=1_500_000)
    first = start(site, until="from moonshotai/Kimi-K2.5")
    wait_for(lambda: arrived(site, "unified-2") > 0)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done = site.stage("--json")
    assert done.returncode == 0, done.stderr
    assert "already being staged by" in done.stderr
    assert all(site.is_whole(host) for host in HOSTS)


@pytest.mark.fault
def test_ctrl_c_says_how_to_follow_and_stop_ends_it(site: Site) -> None:
    site.spoil(pace=300_000)
    process = start(site, until="from moonshotai/Kimi-K2.5")
    wait_for(lambda: arrived(site, "unified-2") > 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "The work goes on on the hosts" in errors
    stopped = site.stage("--stop", "--json")
    assert stopped.returncode == 0, stopped.stderr
    document = json.loads(stopped.stdout)
    assert document["stack"] == site.stack.stem
    assert [row["name"] for row in document["hosts"] if row["ended"]] == [
        "unified-0",
        "unified-1",
        "unified-2",
    ]
    assert site.sh("unified-0", f"systemctl is-active {UNIT}").strip() == "inactive"
    assert arrived(site, "unified-0") > 0
    assert not any(TARGET in name for name in site.listing("unified-0"))
    site.spoil()
    assert site.stage().returncode == 0


@pytest.mark.fault
def test_a_killed_agent_is_named_the_rest_is_whole_and_the_next_run_goes_on(site: Site) -> None:
    site.spoil(pace=1_000_000)
    process = start(site, "--json", until="from moonshotai/Kimi-K2.5")
    wait_for(lambda: arrived(site, "unified-1") > 0)
    site.sh("unified-1", f"systemctl kill -s KILL {UNIT}")
    with in_time():
        read_until(process, "unified-1: failed: it ended without a word (killed?)")
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    document = json.loads(out)
    states = {host["name"]: host["checkpoints"][0]["state"] for host in document["hosts"]}
    assert states == {"unified-0": "staged", "unified-1": "failed", "unified-2": "staged"}
    assert not site.sh("unified-1", f"ls -d {TARGET} 2>/dev/null")
    kept = arrived(site, "unified-1")
    assert kept > 0
    again = site.stage("--json")
    assert again.returncode == 0, again.stderr
    assert rows(again)["unified-1"]["state"] == "staged"
    assert "unified-0" in rows(again)["unified-1"]["why"]
    assert site.is_whole("unified-1")


@pytest.mark.fault
def test_one_damaged_shard_on_one_host_is_found_and_fetched_alone(site: Site) -> None:
    assert site.stage().returncode == 0
    shard = f"{TARGET}/{SHARD}"
    site.sh(
        "unified-1",
        f"cp -p {shard} /run/kept; printf x | dd of={shard} bs=1 conv=notrunc; "
        f"touch -r /run/kept {shard}",
    )
    with in_time():
        checked = site.stage("--check", "--json")
    assert checked.returncode == 6, checked.stderr
    assert {host for host, row in rows(checked).items() if row["state"] == "damaged"} == {
        "unified-1"
    }
    assert SHARD in rows(checked)["unified-1"]["why"]
    quick, deep = site.weights_of_verify(), site.weights_of_verify("--deep")
    assert quick == dict.fromkeys(HOSTS, True), "size and time of change are as they were"
    assert deep == {**dict.fromkeys(HOSTS, True), "unified-1": False}
    site.sh("unified-1", f"touch {shard}")
    inode = site.sh("unified-1", f"stat -c %i {TARGET}/model-00001.safetensors")
    mended = site.stage("--json")
    assert mended.returncode == 0, mended.stderr
    assert f"damaged: {SHARD}" in mended.stderr
    assert rows(mended)["unified-1"]["why"].endswith("1 files from unified-0")
    assert site.sh("unified-1", f"stat -c %i {TARGET}/model-00001.safetensors") == inode
    assert site.is_whole("unified-1")


@pytest.mark.fault
def test_weights_missing_on_one_host_come_from_another_host(site: Site) -> None:
    assert site.stage().returncode == 0
    site.sh("unified-2", "rm -rf /models/*")
    done = site.stage("--json", source="https://192.0.2.1:1/nowhere")
    assert done.returncode == 0, done.stderr
    assert "unified-0 holds it" in done.stderr
    assert site.is_whole("unified-2")


@pytest.mark.fault
def test_a_small_disk_is_refused_with_the_numbers_before_any_byte(site: Site) -> None:
    site.sh("unified-1", "mkdir -p /models && mount -t tmpfs -o size=8m tmpfs /models")
    with in_time():
        done = site.stage("--json")
    site.sh("unified-1", "umount /models")
    assert done.returncode == 3, done.stderr
    errors = json.loads(done.stdout)["errors"]
    assert errors[0]["where"] == "unified-1"
    assert "needs 0.01 GB and has 0.0084 GB free under /models" in errors[0]["what"]
    assert all(site.listing(host) == [] for host in HOSTS)


@pytest.mark.fault
def test_a_disk_that_fills_up_on_the_way_is_named_and_the_rest_is_whole(site: Site) -> None:
    site.sh("unified-1", "mkdir -p /models && mount -t tmpfs -o size=20m tmpfs /models")
    site.spoil(pace=1_000_000)
    process = start(site, until="from moonshotai/Kimi-K2.5")
    site.sh("unified-1", "head -c 14m /dev/zero > /models/somebody-elses")
    with in_time(FILLS_S):
        read_until(process, "unified-1: failed: No space left on device")
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 4, errors
    assert out.count(" staged ") == 2
    assert not site.sh("unified-1", f"ls -d {TARGET} 2>/dev/null")
    site.spoil()
    site.sh("unified-1", "rm /models/somebody-elses")
    again = site.stage()
    site.sh("unified-1", "umount /models")
    assert again.returncode == 0, again.stderr


@pytest.mark.fault
def test_an_origin_that_lists_nothing_is_named_with_the_way_out(site: Site) -> None:
    site.spoil(token="hf_secret")
    with in_time():
        done = site.stage("--json")
    assert done.returncode == 4
    errors = json.loads(done.stdout)["errors"]
    assert "moonshotai/Kimi-K2.5 at http://192.0.2.100:8080 does not list" in errors[0]["what"]
    assert "401" in errors[0]["what"]
    assert "hf_token" in errors[0]["fix"]
    checked = site.stage("--check", "--json")
    assert checked.returncode == 6, checked.stderr
    assert {row["state"] for row in rows(checked).values()} == {"missing"}
    assert all(site.listing(host) == [] for host in HOSTS)


@pytest.mark.fault
def test_a_wrong_checksum_of_the_origin_ends_it_and_nothing_is_kept(site: Site) -> None:
    site.spoil(wrong=[SHARD])
    with in_time():
        done = site.stage("--json")
    assert done.returncode == 4, done.stderr
    assert {row["state"] for row in rows(done).values()} == {"failed"}
    assert SHARD in rows(done)["unified-0"]["why"]
    assert "sha256 is" in rows(done)["unified-0"]["why"]
    for host in HOSTS:
        assert not any(TARGET in name for name in site.listing(host))
        assert site.sh(host, f"cat {PARTIAL}/{SHARD} 2>/dev/null | wc -c").strip() == "0"


def test_a_token_reaches_the_hub_and_no_argument_vector(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.stack.write_text(STACK + "secrets: {hf_token: {env: TEST_HF_TOKEN}}\n")
    site.spoil(token="hf_secret", pace=2_000_000)
    monkeypatch.setenv("TEST_HF_TOKEN", "hf_secret")
    refused = site.stage()
    assert refused.returncode == 2
    assert "hf_token would travel to" in refused.stderr
    told = f"huggingface+http+token://{HUB}:{HUB_PORT}"
    process = start(site, until="from moonshotai/Kimi-K2.5", source=told)
    wait_for(lambda: arrived(site, "unified-0") > 0)
    seen = [argv for host in HOSTS for _, argv in site.lab.processes(host)]
    left = site.sh(
        "unified-0", "grep -rl hf_secret /run /etc /var /models 2>/dev/null | grep -v alive"
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "hf_secret" not in str(seen)
    assert left == ""


def test_a_shared_mount_is_staged_once(site: Site) -> None:
    done = site.stage("--json", "--set", "weights.storage=shared-mount")
    assert done.returncode == 0, done.stderr
    assert list(rows(done)) == ["unified-0"]
    assert site.listing("unified-1") == []


def test_a_folder_that_one_host_sees_serves_all(site: Site) -> None:
    site.sh("unified-1", "mkdir -p /mnt/kimi && echo weights > /mnt/kimi/model.safetensors")
    done = site.stage("--json", source="/mnt/kimi")
    site.sh("unified-1", "rm -r /mnt/kimi")
    assert done.returncode == 0, done.stderr
    assert rows(done)["unified-0"]["state"] == "staged"
    assert site.lab.read_file("unified-0", f"{TARGET}/model.safetensors") == b"weights\n"


def test_hosts_with_different_images_are_named(site: Site) -> None:
    site.sh("unified-1", "mkdir -p /srv && echo 2 > /srv/digest")
    done = site.stage("--json")
    site.sh("unified-1", "rm /srv/digest")
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is False
    held = {host["name"]: host["images"][0]["digest"] for host in document["hosts"]}
    assert held == {"unified-0": "sha256:1", "unified-1": "sha256:2", "unified-2": "sha256:1"}


@pytest.mark.fault
def test_a_host_that_goes_away_hides_nothing_that_was_staged(site: Site) -> None:
    """At first in the middle: its docker hangs up every connection. Then it does not answer at all."""
    hangs_up = "systemctl stop ssh; for pid in $(pgrep -f '^sshd: .*@'); do kill -9 $pid; done"
    site.lab.write_file("unified-1", "/usr/local/bin/docker", f"#!/bin/sh\n{hangs_up}\n".encode())
    try:
        done = site.stage("--json")
        assert done.returncode == 4, done.stderr
        document = json.loads(done.stdout)
        assert {name: row["state"] for name, row in rows(done).items()} == dict.fromkeys(
            HOSTS, "staged"
        )
        images = {host["name"]: host["images"][0]["state"] for host in document["hosts"]}
        assert images == {"unified-0": "ok", "unified-1": "failed", "unified-2": "ok"}
        assert [error["where"] for error in document["errors"]] == ["unified-1"]
        site.forget()
        away = site.stage("--json")
        assert away.returncode == 4, away.stderr
        states = {name: row["state"] for name, row in rows(away).items()}
        assert states == {"unified-0": "staged", "unified-1": "failed", "unified-2": "staged"}
        assert rows(away)["unified-1"]["why"].startswith("cannot be asked: ")
        assert [error["where"] for error in json.loads(away.stdout)["errors"]] == ["unified-1"]
        assert site.is_whole("unified-2")
        assert site.listing("unified-1") == []
    finally:
        site.lab.write_file("unified-1", "/usr/local/bin/docker", DOCKER)
        site.sh("unified-1", "systemctl start ssh")
