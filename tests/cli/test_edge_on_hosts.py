"""An edge on a host where HAProxy, the router and TLS are real: who is let in, and how keys change while it serves."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.launch.proof.edge import FIRST_BYTE_S
from infra.rehearsal.cluster.certificate import Certificate, make_certificate
from infra.spec.load import PROJECT
from tests.cli.kept_hosts import Kept, kept_rehearsal
from tests.needed import need_program

# A whole rehearsal of one host, and several starts of `fab up` there.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

STACK = "vllm-shared-edge"
HOST = "host-0"
UNIT = f"moe-{STACK}-edge@0.service"
# A request whose body is finished when it is told so: it runs meanwhile. `{key}` stands in a file.
SLOW_REQUEST = """
import http.client, json, os, ssl, time
key = open("/root/key").read().strip()
body = json.dumps(dict(model="moonshotai/Kimi-K2.5", prompt="hi", max_tokens=4)).encode()
context = ssl.create_default_context(cafile="/root/edge.crt")
wire = http.client.HTTPSConnection("127.0.0.1", 8000, context=context, timeout=60)
wire.putrequest("POST", "/v1/completions")
for name, value in (("Authorization", "Bearer " + key), ("Content-Length", str(len(body)))):
    wire.putheader(name, value)
wire.putheader("Content-Type", "application/json")
wire.endheaders(body[:10])
open("/root/begun", "w").close()
while not os.path.exists("/root/go"):
    time.sleep(0.1)
wire.send(body[10:])
answer = wire.getresponse()
open("/root/answer", "w").write("%d %s" % (answer.status, answer.read().decode()))
"""


@dataclass(frozen=True)
class Site:
    """A deployment with an edge that serves, and the operator's files of its clients."""

    kept: Kept
    keys: Path
    certificate: Certificate

    def write_keys(self, **keys: str) -> None:
        self.keys.write_text("".join(f"{name} {key}\n" for name, key in keys.items()))
        self.keys.chmod(0o600)

    def root(self, command: str, told: str = "") -> str:
        """What root is told on the host; the journal has the command, and nothing of what stands on its input."""
        words = f"sudo sh -c {shlex.quote(command)}"
        done = subprocess.run(
            ["ssh", "-F", self.kept.ssh_config, HOST, words],
            input=told, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self, path: str, key: str | None, *more: str) -> str:
        """What curl is answered on the host itself, over TLS; the certificate is looked at."""
        words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--path-as-is", *more]
        words += ["--cacert", "/root/edge.crt", "--max-time", "20"]
        words += ["-H", f"Authorization: Bearer {key}"] if key is not None else []
        return self.root(shlex.join([*words, f"https://127.0.0.1:8000{path}"]) + "; true")

    def up(self) -> str:
        done = self.kept.fab("up")
        assert done.returncode == 0, done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need_program("haproxy", "haproxy")
    folder = tmp_path_factory.mktemp("operator")
    made, keys = make_certificate(folder / "certificate"), folder / "clients.keys"
    sets = (
        "--set", f"edge.keys.file={keys}",
        "--set", f"edge.tls.certificate.file={made.file}",
        "--set", f"edge.tls.key.file={made.key}",
    )  # fmt: skip
    stack = str(PROJECT / "tests" / "stacks" / f"{STACK}.yaml")
    with kept_rehearsal(stack, sets) as kept:
        found = Site(kept, keys, made)
        found.root("cat > /root/edge.crt", made.file.read_text())
        yield found


@pytest.fixture(scope="module")
def alice() -> str:
    return secrets.token_hex(32)


@pytest.fixture(scope="module")
def serving(site: Site, alice: str) -> Site:
    site.write_keys(alice=alice)
    site.up()
    return site


def test_up_refuses_keys_that_are_none_before_any_host_is_asked(site: Site) -> None:
    for text, says in (
        ("alice short\n", "32 to 512"),
        ("", "is empty"),
        ("# nobody\n", "no line with a client"),
    ):
        site.keys.write_text(text)
        site.keys.chmod(0o600)
        done = site.kept.fab("up")
        assert done.returncode in (2, 3)
        assert says in done.stderr
        assert "short" not in done.stderr


def test_verify_shows_whom_the_edge_lets_in(serving: Site) -> None:
    done = serving.kept.fab("verify", "--json")
    rows = [row for row in json.loads(done.stdout)["checks"] if row["check"] == "edge"]
    assert {row["process"] for row in rows} == {"edge/0"}
    assert [row["ok"] for row in rows] == [True] * 5, rows
    said = [row["detail"] for row in rows]
    assert said[:4] == [
        "no key: 401",
        "a wrong key: 401",
        "a right key: 200",
        "paths that control: 404",
    ]
    first = re.fullmatch(
        r"first byte of a stream over TLS: ([0-9.]+) s, [0-9.]+ s behind the edge", said[4]
    )
    assert first is not None, said[4]
    assert float(first[1]) <= FIRST_BYTE_S


def test_nobody_passes_it_by(serving: Site, alice: str) -> None:
    assert serving.status("/v1/models", alice) == "200"
    assert serving.status("/v1/models", "x" * 64) == "401"
    assert serving.status("/health", None) == "401"
    assert serving.status("/metrics", alice) == "404"
    assert serving.status("/v1/models/../../metrics", alice) == "404"
    listening = serving.root("ss -Htln 'sport = :7102'")
    assert listening.split()[3] == "127.0.0.1:7102"


def test_only_digests_of_keys_are_on_the_host(serving: Site, alice: str) -> None:
    folder = f"/etc/moe-infra/{STACK}"
    assert serving.root(f"stat -c '%a %U' {folder}/credentials/edge_keys").split() == [
        "600",
        "root",
    ]
    assert serving.root(f"cat {folder}/credentials/edge_keys").split()[1] == "alice"
    serving.root("cat > /root/key && test -s /root/key", alice)
    places = "/etc /run/systemd /run/moe-* /var/lib/moe-infra /proc/[0-9]*/cmdline"
    found = serving.root(
        f"grep -rlFf /root/key {places} 2>/dev/null; journalctl --no-pager -u 'moe-*' | grep -cFf /root/key; true"
    )
    assert found.split() == ["0"]
    assert "key=alice" in serving.root(f"journalctl --no-pager -u {UNIT}")


def test_the_edge_can_do_little_on_its_host(serving: Site) -> None:
    pid = serving.root(f"systemctl show -P MainPID {UNIT}").strip()
    status = dict(
        line.split(":", 1)
        for line in serving.root(f"cat /proc/{pid}/status").splitlines()
        if ":" in line
    )
    assert int(status["Uid"].split()[0]) > 60000  # a user of its own
    assert int(status["CapBnd"], 16) == int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"].split() == ["1"]
    said = serving.root(f"systemd-analyze security --no-pager {UNIT} | tail -1")
    exposure = re.search(r"([0-9.]+) [A-Z]", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= 3.0


def test_keys_change_by_up_while_a_request_runs_and_nothing_restarts(
    serving: Site, alice: str
) -> None:
    bob = secrets.token_hex(32)
    units = f"systemctl show -P MainPID {UNIT} 'moe-{STACK}-engine@*' 'moe-{STACK}-router@*'"
    before = serving.root(units)
    serving.root("cat > /root/key; rm -f /root/go /root/begun /root/answer", alice)
    serving.root("cat > /root/slow.py", SLOW_REQUEST)
    serving.root("setsid python3 /root/slow.py > /root/said 2>&1 < /dev/null &")
    serving.root(
        "for i in $(seq 100); do test -e /root/begun && exit 0; sleep 0.1; done; cat /root/said; exit 1"
    )
    serving.write_keys(bob=bob)
    serving.up()
    assert serving.status("/v1/models", bob) == "200"
    assert serving.status("/v1/models", alice) == "401"
    assert serving.root(units) == before
    serving.root("touch /root/go")
    answer = serving.root(
        "for i in $(seq 100); do test -s /root/answer && break; sleep 0.1; done; cat /root/answer"
    )
    assert answer.startswith("200 "), answer
    serving.write_keys(alice=alice)
    serving.up()


def test_a_certificate_that_is_none_reaches_no_host(serving: Site, alice: str) -> None:
    right = serving.certificate.file.read_bytes()
    serving.certificate.file.write_text("no certificate\n")
    try:
        done = serving.kept.fab("up")
        assert done.returncode == 2, done.stderr
        assert "edge.tls.certificate: It holds no certificate." in done.stderr
    finally:
        serving.certificate.file.write_bytes(right)
    serving.root(f"systemctl restart {UNIT}")
    assert serving.status("/v1/models", alice) == "200"


def test_an_edge_that_reads_nothing_anew_serves_as_it_was(serving: Site, alice: str) -> None:
    folder = f"/run/systemd/system/{UNIT}.d"
    serving.root(
        f"mkdir -p {folder}; printf '[Service]\\nExecReload=\\nExecReload=/bin/false\\n' > {folder}/x.conf; "
        "systemctl daemon-reload"
    )
    try:
        done = serving.kept.fab("up")
        assert done.returncode == 5, done.stderr
        assert "edge/0" in done.stderr
        assert "serves by what it read before" in done.stderr
        assert serving.status("/v1/models", alice) == "200"
    finally:
        serving.root(f"rm -r {folder}; systemctl daemon-reload")
    serving.up()


def test_the_edge_is_in_every_listing(serving: Site) -> None:
    document = json.loads(serving.kept.fab("status", "--json").stdout)
    assert (document["ok"], document["edge"]["state"], document["edge"]["ready"]) == (
        True,
        "active",
        True,
    )
    assert "edge/0" in serving.kept.fab("status").stdout
    assert "key=alice" in serving.kept.fab("logs", "--role", "edge").stdout
    assert serving.kept.fab("diff").returncode == 0
    assert serving.kept.fab("restart").returncode == 0


def test_the_host_brings_it_up_again_and_down_takes_it_away(serving: Site, alice: str) -> None:
    serving.root(f"kill -9 $(systemctl show -P MainPID {UNIT})")
    serving.root(
        f"for i in $(seq 50); do systemctl -q is-active {UNIT} && exit 0; sleep 0.2; done; exit 1"
    )
    assert serving.status("/health", alice) == "200"
    wanted = serving.root("systemctl show -P Wants multi-user.target").split()
    assert UNIT in wanted
    done = serving.kept.fab("down")
    assert done.returncode == 0, done.stderr
    left = serving.root(
        f"ls -d /run/moe-{STACK}* /etc/moe-infra/{STACK} 2>/dev/null; ls /etc/systemd/system | grep moe-vllm; true"
    )
    assert left.split() == []
    assert UNIT not in serving.root("systemctl show -P Wants multi-user.target").split()
