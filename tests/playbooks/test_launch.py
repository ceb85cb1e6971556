"""`ansible/launch.yml` beside `fab up`: the same files and units, and `fab` works on what it launched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.playbooks.kept_hosts import KeptHosts, rehearse, stop

# One lab for all; a launch takes some eight seconds, half of them Ansible's own.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = """\
extends: gb200-2p1d
platform: existing-hosts
roles: {prefill: {replicas: 1}, decode: {data_parallel: 4}}
secrets: {api_key: {env: MOE_TEST_KEY}}
"""
KEY = "sesame-4711"
HOSTS = ("prefill-0", "decode-0")
INSTALLED = (
    'cd /; find etc/moe-infra etc/systemd/system/moe-small-* ! -type d -printf "%p %m %U:%G\\n" 2>/dev/null | sort; '
    "find etc/moe-infra etc/systemd/system/moe-small-* -type f 2>/dev/null | sort | xargs -r sha256sum; "
    'systemctl list-units --no-legend --plain --state=active "moe-*@*" | cut -d" " -f1'
)


@pytest.fixture(scope="module")
def hosts(lab_is_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptHosts]:
    folder = tmp_path_factory.mktemp("stack")
    (folder / "small.yaml").write_text(STACK)
    choice = ("--file", str(folder / "small.yaml"))
    environment = {"MOE_TEST_KEY": KEY}
    kept = rehearse(choice, "tune", tmp_path_factory.mktemp("temporary"), environment)
    yield kept
    stop(kept)


@pytest.fixture
def down(hosts: KeptHosts) -> Iterator[KeptHosts]:
    """Nothing runs before a test, and `fab down` leaves nothing after it."""
    yield hosts
    done = hosts.fab("down")
    assert done.code == 0, done.out
    assert installed(hosts) == dict.fromkeys(HOSTS, "")
    assert list(hosts.temporary.iterdir()) == []


def installed(hosts: KeptHosts) -> dict[str, str]:
    """Files, units and what runs, by host."""
    return {host: hosts.on(host, INSTALLED) for host in HOSTS}


def test_a_launch_ends_as_fab_up_does_and_the_key_is_never_shown(
    down: KeptHosts, tmp_path: Path
) -> None:
    up = down.fab("up")
    assert up.code == 0, up.out
    by_fab = installed(down)
    assert "moe-small-engine@0.service" in by_fab["decode-0"]
    assert down.fab("down").code == 0
    launched = down.play("launch.yml", "-vvv", "--diff")
    assert launched.code == 0, launched.out
    assert installed(down) == by_fab
    assert launched.recap("decode-0")["changed"] == 2
    assert KEY not in launched.out
    keys = {down.on(host, "cat /var/lib/moe-infra/groups/small/key").strip() for host in HOSTS}
    assert [len(key) for key in keys] == [64]  # one for all hosts
    assert not [key for key in keys if key in launched.out]
    proven = "Every rank has generated a token, and requests go through. Next: fab verify"
    assert proven in " ".join(launched.out.split())
    # both ranks of prefill and all four of decode, each on its own host, by what the engines count
    assert re.findall(r'"proven": (\d+)', launched.out) == ["4", "4"]
    assert '"answer": ' in launched.out
    assert down.fab("status").code == 0
    again = down.fab("up")
    assert (again.code, "0 items changed" in again.out) == (0, True), again.out
    variables = tmp_path / "secrets.json"
    variables.write_text(json.dumps({"moe_secrets": {"api_key": KEY}}))
    repeated = down.play("launch.yml", "-e", f"@{variables}", environment={"MOE_TEST_KEY": ""})
    assert [repeated.recap(host)["changed"] for host in HOSTS] == [0, 0], repeated.out


def test_a_taken_port_and_missing_hosts_are_refused_before_anything_changes(
    down: KeptHosts,
) -> None:
    limited = down.play("launch.yml", "--limit", "decode-0")
    assert limited.code == 2
    assert "Run without --limit" in limited.out
    down.on("prefill-0", "systemd-run --unit=squatter python3 -m http.server 7100")
    time.sleep(0.5)
    played = down.play("launch.yml")
    down.on("prefill-0", "systemctl stop squatter")
    assert played.code == 2
    assert "is taken by process" in played.out
    assert "http.server" in played.out
    assert installed(down) == dict.fromkeys(HOSTS, "")


def test_a_process_that_ends_ends_the_wait_of_every_host_and_is_named(down: KeptHosts) -> None:
    path = down.on("decode-0", "ls /models/*/*/config.json").strip()
    content = down.on("decode-0", f"cat {path}")
    down.on(
        "decode-0",
        f"tr -c x x < {path} > {path}.new && mv {path} {path}.kept && mv {path}.new {path}",
    )
    begun = time.monotonic()
    played = down.play("launch.yml")
    seconds = time.monotonic() - begun
    down.on("decode-0", f"mv {path}.kept {path}")
    assert down.on("decode-0", f"cat {path}") == content
    assert played.code == 2, played.out
    assert "decode-0/0: it ended with exit code" in played.out
    assert "Start the router" not in played.out
    assert seconds < 100  # and not the half hour that prefill-0 would have waited
    assert "Traceback" not in played.out.replace("\\nTraceback", "")


def test_a_rank_that_answers_and_serves_nothing_fails_the_play_and_is_named(
    down: KeptHosts, tmp_path: Path
) -> None:
    """Every endpoint is healthy; where prefill ranks hand KV over, nobody listens."""
    folder = tmp_path / "rendered"
    assert down.fab("render", "--to", str(folder)).code == 0
    path = folder / "prefill-0" / "host-state.json"
    wrong = r"\1=localhost"
    text, changed = re.subn(r"(VLLM_NIXL_SIDE_CHANNEL_HOST)=[0-9.]+", wrong, path.read_text())
    assert changed
    path.write_text(text)
    played = down.play("launch.yml", "-e", f"rendered={folder}", "-e", "ready_s=60")
    assert played.code == 2, played.out
    assert re.search(r"(prefill|decode)-0/\d", played.out.partition("FAILED!")[2]), played.out
    assert "Every rank has generated a token" not in played.out
    assert "Start the router" not in played.out
