"""sshd drops handshakes beyond MaxStartups: ours do not make it, and others' are waited out or named."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from infra.launch.fleet import SshFleet
from infra.remote import connecting
from infra.remote.connecting import SshOptions
from infra.remote.failures import Unreachable
from tests.naming import in_time
from tests.remote.conftest import run_sshd
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

pytestmark = [pytest.mark.fault]

# Random from the tenth handshake on, none at all beyond sixty: sshd's own default but for the end.
TEN_AT_ONCE = "MaxStartups 10:30:60"
CLIENTS = 64
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """An sshd that takes ten handshakes at once."""
    with run_sshd(tmp_path_factory.mktemp("narrow"), TEN_AT_ONCE) as running:
        yield running


def dropped(sshd: Sshd) -> int:
    """How many handshakes it has dropped so far, as its own log says."""
    lines = (sshd.folder / "log").read_text().splitlines()
    return sum(line.startswith("drop connection") for line in lines)


def behind(gate: Sshd, target: Sshd, folder: Path) -> tuple[str, ...]:
    """ssh arguments of a host behind a bastion."""
    known, config = folder / "known_hosts", folder / "ssh_config"
    known.write_text(
        "".join(f"[127.0.0.1]:{one.port} {one.public('host_key')}\n" for one in (gate, target))
    )
    config.write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n  UserKnownHostsFile {known}\n"
        f"  IdentityFile {gate.folder / 'login_key'}\n"
    )
    return ("-F", str(config), "-J", "gate")


@pytest.mark.slow  # 64 real logins
def test_a_fleet_of_64_hosts_behind_one_bastion_never_trips_it(
    narrow: Sshd, sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    before = dropped(narrow)
    words = behind(narrow, sshd, tmp_path)
    names = [f"host-{i}" for i in range(CLIENTS)]
    hosts = {name: inventory_host(sshd, name, ssh_arguments=words) for name in names}
    fleet = SshFleet(hosts, options)
    try:
        request = {"operation": "read", "paths": []}
        answers = fleet.ask(dict.fromkeys(names, request), timeout_s=LIMIT_S)
    finally:
        fleet.close()
    assert {type(answer) for answer in answers.values()} == {dict}
    assert dropped(narrow) == before


@pytest.mark.slow  # 64 real logins, some of them many times
def test_64_clients_of_one_host_at_once_all_get_in_although_sshd_drops_some(narrow: Sshd) -> None:
    before = dropped(narrow)
    together = threading.Barrier(CLIENTS)

    def say(_: int) -> bytes:
        options = SshOptions()  # nothing is shared, as between machines
        together.wait()
        host = open_host(inventory_host(narrow), options)
        try:
            return host.run("echo in", timeout_s=LIMIT_S).stdout
        finally:
            host.close()
            options.resources.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(say, range(CLIENTS))) == [b"in\n"] * CLIENTS
    assert dropped(narrow) > before


@contextmanager
def crowd(sshd: Sshd, size: int) -> Iterator[ExitStack]:
    """Clients that began a handshake and say nothing; the stack lets them go."""
    with ExitStack() as held:
        for _ in range(size):
            held.enter_context(socket.create_connection(("127.0.0.1", sshd.port)))
        yield held


def fill(sshd: Sshd, places: int, held: ExitStack) -> None:
    """Take every place of an sshd: clients that it greets stay, those that it drops try again.

    It counts a login that has just ended a little longer than its client does, so the first ones may be dropped.
    """
    taken, deadline = 0, time.monotonic() + LIMIT_S
    while taken < places:
        assert time.monotonic() < deadline, f"{taken} of {places} places taken"
        client = socket.create_connection(("127.0.0.1", sshd.port), timeout=LIMIT_S)
        with suppress(ConnectionResetError):
            if client.recv(8) == b"SSH-2.0-":
                held.enter_context(client)
                taken += 1
                continue
        client.close()
        time.sleep(0.05)


@pytest.mark.slow  # its pauses are the product's own, longer each time
def test_a_crowd_of_others_is_waited_out(narrow: Sshd, options: SshOptions) -> None:
    with crowd(narrow, 70) as held:
        before = dropped(narrow)
        timer = threading.Timer(0.8, held.close)
        timer.start()
        host = open_host(inventory_host(narrow), options)
        timer.join()
    assert host.run("echo in", timeout_s=10).stdout == b"in\n"
    assert dropped(narrow) > before
    host.close()


def test_a_crowd_that_stays_is_named_with_the_way_out(
    options: SshOptions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connecting, "MAX_ATTEMPTS", 4)
    with run_sshd(tmp_path, "MaxStartups 2:100:2") as full, ExitStack() as held:
        open_host(inventory_host(full), options).close()
        fill(full, 2, held)
        with (
            in_time(),
            pytest.raises(Unreachable, match="gave no SSH greeting in 4 attempts") as caught,
        ):
            open_host(inventory_host(full), options)
    assert caught.value.exit_code == 4
    assert "MaxStartups" in caught.value.fix
    assert "nothing was done" in caught.value.fix
