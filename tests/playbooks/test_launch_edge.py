"""`ansible/launch.yml` with an edge: the real HAProxy over TLS, new keys without a restart, and nothing left of it."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.rehearsal.cluster.certificate import make_certificate
from infra.spec.load import PROJECT
from tests.needed import need_program
from tests.playbooks.kept_hosts import KeptHosts, rehearse, stop

# A lab of its own, and two plays there.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "vllm-shared-edge"
HOST = "host-0"
UNIT = f"moe-{STACK}-edge@0.service"
LEFT = f"ls -d /run/moe-{STACK}* /etc/moe-infra/{STACK} 2>/dev/null; ls /etc/systemd/system | grep moe-vllm"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stack, and clients' keys and the certificate beside it."""
    folder = tmp_path_factory.mktemp("operator")
    made = make_certificate(folder / "made")
    made.file.rename(folder / "edge.crt")
    made.key.rename(folder / "edge.key")
    text = (PROJECT / "tests" / "stacks" / f"{STACK}.yaml").read_text()
    (folder / f"{STACK}.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def hosts(
    lab_is_possible: None, operator: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KeptHosts]:
    need_program("haproxy", "haproxy")
    write_keys(operator, first=secrets.token_hex(32))
    choice = ("--file", str(operator / f"{STACK}.yaml"))
    kept = rehearse(choice, "tune", tmp_path_factory.mktemp("temporary"), {})
    yield kept
    stop(kept)


def write_keys(folder: Path, **keys: str) -> None:
    file = folder / "clients.keys"
    file.write_text("".join(f"{name} {key}\n" for name, key in keys.items()))
    file.chmod(0o600)


def status(hosts: KeptHosts, path: str, key: str | None) -> str:
    """What the edge answers on its own host, over TLS; the certificate is looked at."""
    words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20"]
    words += ["--cacert", "/root/edge.crt"]
    words += [] if key is None else ["-H", f'"Authorization: Bearer {key}"']
    return hosts.on(HOST, " ".join([*words, f"https://127.0.0.1:8000{path}"]))


def test_a_launched_edge_asks_for_keys_and_takes_new_ones(hosts: KeptHosts, operator: Path) -> None:
    alice, bob = secrets.token_hex(32), secrets.token_hex(32)
    certificate = (operator / "edge.crt").read_text()
    hosts.on(
        HOST, f"printf %s {shlex.quote(certificate).replace(chr(39), chr(34))} > /root/edge.crt"
    )
    write_keys(operator, alice=alice)
    launched = hosts.play("launch.yml", "-vvv", "--diff")
    assert launched.code == 0, launched.out
    assert alice not in launched.out
    assert "PRIVATE KEY" not in launched.out
    assert [status(hosts, "/v1/models", key) for key in (alice, bob, None)] == ["200", "401", "401"]
    assert status(hosts, "/metrics", alice) == "404"
    assert hosts.fab("status").code == 0
    verified = hosts.fab("verify")
    assert "edge" in verified.out
    assert "no key: 401" in verified.out, verified.out

    # other keys: only the edge reads anew
    before = hosts.on(HOST, f'systemctl show -P MainPID {UNIT} "moe-{STACK}-*@*"')
    write_keys(operator, bob=bob)
    again = hosts.play("launch.yml")
    assert again.code == 0, again.out
    assert hosts.on(HOST, f'systemctl show -P MainPID {UNIT} "moe-{STACK}-*@*"') == before
    assert [status(hosts, "/v1/models", key) for key in (alice, bob)] == ["401", "200"]

    # keys that are none change nothing
    write_keys(operator, bob="short")
    refused = hosts.play("launch.yml")
    assert refused.code == 2, refused.out
    assert "has a key of 5 characters for bob" in refused.out
    assert status(hosts, "/v1/models", bob) == "200"

    write_keys(operator, bob=bob)
    assert hosts.fab("down").code == 0
    assert hosts.on(HOST, LEFT).split() == []
