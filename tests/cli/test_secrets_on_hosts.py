"""Where an API key stands on hosts that serve with it: in root's file, and with the processes that ask for it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cli.commands import FAB, need_lab, run

# Whole rehearsals of one host each: docker with a router, podman, no container.
pytestmark = [pytest.mark.lab, pytest.mark.slow]

KEY = "rehearsed-api_key"  # what a rehearsal makes up in place of an operator's own
RUNTIMES = {"vllm-shared-1p1d": "docker", "vllm-podman": "podman", "vllm-native": ""}
# Each process with the key in its environment: the words of its command.
HAVE_IT = (
    "for p in /proc/[0-9]*; do if tr '\\0' '\\n' < $p/environ | grep -qFf {file}; "
    "then tr '\\0' ' ' < $p/cmdline; echo; fi; done 2>/dev/null; true"
)
# What a client is answered, without the key and with it.
ASK = """
import sys, urllib.error, urllib.request
for headers in ({{}}, {{"Authorization": "Bearer " + open({file!r}).read().strip()}}):
    try:
        request = urllib.request.Request({url!r}, headers=headers)
        print(urllib.request.urlopen(request, timeout=20).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


@dataclass(frozen=True)
class Served:
    """A kept rehearsal that serves, with an API key."""

    stack: str
    host: str
    ssh_config: str
    endpoints: tuple[str, ...]

    @property
    def file(self) -> str:
        """What systemd reads the key from."""
        return f"/etc/moe-infra/{self.stack}/credentials/api_key"

    def ssh(self, command: str) -> str:
        """What root is told on the host; no command names the key."""
        words = f"sudo sh -c {shlex.quote(command.format(file=self.file))}"
        done = run("ssh", "-n", "-F", self.ssh_config, self.host, words)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=list(RUNTIMES))
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    need_lab()
    choice = ("--stack", request.param, "--set", "secrets.api_key.env=A_KEY")
    done = run(FAB, "rehearse", *choice, "--keep", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    try:
        plan = run(FAB, "plan", *choice, "--inventory", document["inventory"], "--json")
        assert plan.returncode == 0, plan.stderr
        engines = [
            each for each in json.loads(plan.stdout)["processes"] if each["kind"] == "engine"
        ]
        yield Served(
            request.param,
            engines[0]["host"],
            document["ssh_config"],
            tuple(each["endpoint"] for each in engines),
        )
    finally:
        run(FAB, "rehearse", "--stop", document["id"])


def test_the_key_is_in_one_file_that_root_alone_reads(served: Served) -> None:
    assert served.ssh("stat -c '%a %U' {file}").split() == ["600", "root"]
    files = served.ssh(
        "grep -rlFf {file} /etc /run/systemd /var/lib/moe-infra /var/log 2>/dev/null; true"
    )
    assert files.split() == [served.file]


def test_no_command_line_and_no_line_of_the_journal_shows_it(served: Served) -> None:
    shown = served.ssh("ps -eww -o args")
    assert "vllm" in shown
    assert KEY not in shown
    lines = served.ssh("journalctl --no-pager -o json --all")
    assert "vllm" in lines
    assert KEY not in lines


def test_no_runtime_tells_it_whoever_asks(served: Served) -> None:
    runtime = RUNTIMES[served.stack]
    if runtime:
        shown = served.ssh(f"{runtime} inspect $({runtime} ps --all --quiet)")
        assert KEY not in shown
        assert "/run/secrets/api_key" in shown
    properties = served.ssh(f"systemctl show 'moe-{served.stack}-*' --all")
    assert "ExecStart=" in properties
    assert KEY not in properties


def test_only_what_asks_clients_for_it_has_it_in_its_environment(served: Served) -> None:
    having = served.ssh(HAVE_IT).splitlines()
    assert having
    clients = [line for line in having if "--label" in line]  # of a container runtime
    assert clients == []


def test_engines_answer_clients_that_have_it(served: Served) -> None:
    for endpoint in served.endpoints:
        program = ASK.format(file=served.file, url=f"{endpoint}/v1/models")
        answers = served.ssh(
            f"python3 -c {shlex.quote(program)}".replace("{", "{{").replace("}", "}}")
        )
        assert answers.split() == ["401", "200"]
