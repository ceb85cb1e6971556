"""The real `fab` on one simulated host that two stacks share, and that somebody else's container uses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.commands import FAB, need_lab, run

# Real sshd, systemd and engines: each call of `fab` takes a second or more.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

HOST = "unified-0"
IMAGE = "vllm/vllm-openai:v0.22.1"
HALF = """\
summary: half of a host
checkpoint: kimi-k2.5-int4
accelerator: b300
engine: {name: vllm, version: 0.22.1}
platform: existing-hosts
defaults: {max_model_len: 131072}
"""
FIRST = f"{HALF}roles: {{unified: {{tensor_parallel: 4, devices_idle: 4}}}}\n"
SECOND = f"{HALF}roles: {{unified: {{tensor_parallel: 4}}}}\nleave_devices: 4\nport: 8100\n"


@dataclass(frozen=True)
class Shared:
    """A tuned host, and a folder with the stacks `first` and `second`."""

    folder: Path
    inventory: str
    ssh_config: str

    def fab(self, verb: str, stack: str, *words: str) -> subprocess.CompletedProcess[str]:
        file = str(self.folder / f"{stack}.yaml")
        return run(FAB, verb, "--file", file, "--inventory", self.inventory, *words)

    def ssh(self, command: str) -> str:
        return run("ssh", "-n", "-F", self.ssh_config, HOST, command).stdout


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    need_lab()
    folder = tmp_path_factory.mktemp("stacks")
    (folder / "first.yaml").write_text(FIRST)
    (folder / "second.yaml").write_text(SECOND)
    file = str(folder / "first.yaml")
    done = run(FAB, "rehearse", "--file", file, "--keep", "--to-step", "tune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    yield Shared(folder, document["inventory"], document["ssh_config"])
    run(FAB, "rehearse", "--stop", document["id"])


def test_two_stacks_share_a_host_while_their_devices_and_ports_do_not_meet(
    shared: Shared,
) -> None:
    assert shared.fab("up", "first").returncode == 0
    whole = ("--set", "leave_devices=0", "--set", "roles.unified.devices_idle=4")
    for words, shown in ((whole, "devices 0-3"), (("--set", "port=8000"), "port 8000")):
        refused = shared.fab("up", "second", *words)
        assert refused.returncode == 3, refused.stderr
        assert f"of stack first, installed there, both want {shown}" in refused.stderr
        assert "fab down --stack first" in refused.stderr
    assert shared.ssh("ls -d /etc/moe-infra/second") == ""
    assert shared.fab("up", "second").returncode == 0
    assert shared.fab("down", "first").returncode == 0
    assert shared.fab("status", "second").returncode == 0
    assert shared.fab("down", "second").returncode == 0
    assert shared.ssh("ls -d /etc/moe-infra /var/lib/moe-infra/releases") == ""


def test_a_reload_that_would_cut_gpus_from_a_container_is_refused(shared: Shared) -> None:
    unit = "/etc/systemd/system/moe-first-engine@.service"
    shared.ssh(f"sudo docker run -d --name train --gpus all --entrypoint sleep {IMAGE} 300")
    shared.ssh(f"echo '# somebody' | sudo tee {unit}")
    done = shared.fab("up", "first")
    forced = shared.fab("up", "first", "--force", "daemon-reload")
    down = shared.fab("down", "first")
    left = shared.ssh(f"cat {unit}; sudo rm {unit}; sudo docker rm --force train")
    assert done.returncode == 3, done.stderr
    assert all(word in done.stderr for word in (HOST, "(train)", "--force daemon-reload"))
    assert forced.returncode == 0, forced.stderr
    assert down.returncode == 0
    assert left.startswith("# somebody\n")
