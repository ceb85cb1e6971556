"""Hosts that hinder `fab` while it works: how it leaves, whom it names, the way out, and that the way leads out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.rack import HOSTS, STACK, Rack, kept_rack, until
from tests.naming import in_time

# Real sshd, sudo and systemd on two simulated hosts, of which one is spoilt; each call of `fab` takes seconds.
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

GOOD, BAD = HOSTS
RIGHT = "secret of sudo"
SHARD = "/models/kimi-k2.5-w4a8/master/model-00003-of-00064.safetensors"
SWAPPINESS, BALANCING = "/proc/sys/vm/swappiness", "/proc/sys/kernel/numa_balancing"
# How long our own attempts at a full sshd take, one after the other, and an engine's at a port that drops.
ATTEMPTS_S, ENGINE_S = 10.0, 20.0


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with kept_rack() as (ssh_config, inventory, lab):
        yield Rack(inventory, ssh_config, lab)


def root(rack: Rack, host: str, *script: str) -> str:
    """What root of a host does, without any login."""
    done = rack.lab.run(host, ["sh", "-c", "; ".join(("set -e", *script))])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def left(done: subprocess.CompletedProcess[str], code: int, *words: str) -> str:
    """What a command said, which left with a code and named these."""
    assert done.returncode == code, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert not [word for word in words if word not in said], said
    return said


@pytest.fixture
def untuned(rack: Rack) -> Iterator[Rack]:
    """Hosts as they come; after the test they are tuned, by the same command as ever."""
    left(rack.fab("tune-hosts", "--rollback"), 0)
    yield rack
    left(rack.fab("tune-hosts"), 0)
    left(rack.fab("tune-hosts", "--check"), 0)


@pytest.fixture
def asking(rack: Rack, tmp_path: Path) -> Iterator[Path]:
    """Hosts whose sudo wants a password; the folder of files that hold one."""
    hashed = subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"],
        input=RIGHT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for host in HOSTS:
        rule = "echo 'ubuntu ALL=(ALL) ALL' > /etc/sudoers.d/zz; chmod 440 /etc/sudoers.d/zz"
        root(rack, host, f"usermod -p '{hashed}' ubuntu", rule)
    for name, word in (("wrong", "wrong"), ("right", RIGHT)):
        (tmp_path / name).write_text(f"{word}\n")
        (tmp_path / name).chmod(0o600)
    yield tmp_path
    for host in HOSTS:
        root(rack, host, "rm /etc/sudoers.d/zz")


def refusals(rack: Rack) -> int:
    """How often the sudo of any host has refused a password, by its own log."""
    look = "journalctl -o cat -t sudo --no-pager | grep -c 'authentication failure' || true"
    return sum(int(root(rack, host, look)) for host in HOSTS)


@pytest.mark.parametrize("task", ["tune-hosts", "up", "status"])
def test_a_wrong_sudo_password_is_tried_once_on_one_host(
    rack: Rack, asking: Path, task: str
) -> None:
    before = refusals(rack)
    with in_time():
        done = rack.fab(task, "--sudo-password-from", f"file:{asking / 'wrong'}")
    said = left(done, 4, *HOSTS, "Give the right one; nothing was changed")
    assert said.count("sudo does not take the password") == 1
    assert said.count("it was not tried here") == 1
    assert RIGHT not in said
    assert refusals(rack) == before + 1


def test_a_sudo_that_asks_names_the_option_and_a_right_password_opens_every_host(
    rack: Rack, asking: Path
) -> None:
    before = refusals(rack)
    with in_time():
        done = rack.fab("tune-hosts", "--check")
    left(done, 4, *HOSTS, "sudo wants a password", "--ask-sudo-password")
    given = f"file:{asking / 'right'}"
    said = left(rack.fab("tune-hosts", "--check", "--sudo-password-from", given), 0)
    assert said.splitlines()[-1].endswith(f"--sudo-password-from {given}"), "the next one asks, too"
    assert refusals(rack) == before


@contextmanager
def few_logins(rack: Rack) -> Iterator[ExitStack]:
    """A host whose sshd has no place left for another login; the stack gives them back."""
    config = "/etc/ssh/sshd_config"
    change = f"cp -p {config} /run/kept; sed -i '1iMaxStartups 2:100:2' {config}"
    root(rack, BAD, change, "systemctl reload ssh")
    with ExitStack() as held:

        def is_full() -> bool:
            try:
                client = rack.lab.dial(BAD, 22)
            except ConnectionRefusedError:  # it reads its configuration
                return False
            with suppress(ConnectionResetError):
                if client.recv(8) == b"SSH-2.0-":
                    held.enter_context(client)
                    return False
            client.close()
            return True

        until(is_full)
        yield held
    root(rack, BAD, f"cp -p /run/kept {config}", "systemctl reload ssh")


def test_an_sshd_without_a_place_for_us_is_named_and_nothing_else_waits_for_it(rack: Rack) -> None:
    with few_logins(rack) as held:
        with in_time(ATTEMPTS_S):
            done = rack.fab("tune-hosts", "--check")
        said = left(done, 4, f"{BAD}  192.0.2.2 port 22 gave no SSH greeting", "MaxStartups")
        assert f"{GOOD}  " not in said
        assert "1 hosts: 30 ok" in said, "the other one is judged"
        started = rack.begin("tune-hosts", "--check")
        held.close()
        _, said = started.communicate(timeout=60)
        assert started.returncode == 0, said


def test_knobs_that_refuse_or_keep_their_value_are_told_and_fail_no_verify(untuned: Rack) -> None:
    untuned.lab.inject(BAD, SWAPPINESS, "EPERM")
    untuned.lab.inject(BAD, BALANCING, "sticky")
    try:
        with in_time():
            done = untuned.fab("tune-hosts")
        said = left(done, 0, "Operation not permitted (EPERM)", " 2 blocked, 0 failed.")
        assert "the kernel kept 1 although the write succeeded" in said
        at = said.index(f"\n{BAD}\n")
        assert "  blocked       vm.swappiness                       60 → 0\n" in said[at:]
        assert "  blocked       kernel.numa_balancing               1 → 0\n" in said[at:]
        left(untuned.fab("tune-hosts", "--check"), 6, " 2 would change, ")
        left(untuned.fab("up"), 0)
        said = left(untuned.fab("verify"), 0, " 0 wrong, ")
        assert f"{BAD}: is 60, declared 0: `fab tune-hosts` could not bring it about: Oper" in said
        assert f"{BAD}: is 1, declared 0: `fab tune-hosts` could not bring it about: the k" in said
    finally:
        left(untuned.fab("down"), 0)
        untuned.lab.inject(BAD, SWAPPINESS, None)
        untuned.lab.inject(BAD, BALANCING, None)


@pytest.mark.parametrize(
    ("change", "undo", "words"),
    [
        (
            ("mount -o remount,ro /",),
            "mount -o remount,rw /",
            ("/var/lib/moe-infra/rollback/.host: Read-only file system", "mount -o remount,rw /"),
        ),
        (
            (
                "mount -t tmpfs -o size=64k tmpfs /var/lib",
                "cat /dev/zero > /var/lib/full 2> /run/said || true",
            ),
            "umount /var/lib",
            ("/var/lib/moe-infra", "No space left on device", "df -h /var/lib"),
        ),
    ],
    ids=["read-only", "full"],
)
def test_a_host_that_takes_no_writes_is_named_and_left_as_it_is(
    untuned: Rack, change: tuple[str, ...], undo: str, words: tuple[str, ...]
) -> None:
    root(untuned, BAD, *change)
    try:
        with in_time():
            done = untuned.fab("tune-hosts")
    finally:
        root(untuned, BAD, undo)
    left(done, 4, f"1 of 2 hosts failed:\n  {BAD}  ", "Next: fab tune-hosts", *words)
    look = "sysctl -n vm.swappiness kernel.numa_balancing; find /etc /var/lib -name '*moe-infra*'"
    assert root(untuned, BAD, look) == "60\n1\n"
    assert root(untuned, GOOD, "sysctl -n vm.swappiness") == "0\n"


def test_one_damaged_shard_stops_a_start_before_anything_is_changed(rack: Rack) -> None:
    size = int(root(rack, BAD, f"stat -c %s {SHARD}"))
    root(rack, BAD, f"cp -p {SHARD} /run/kept", f"truncate -s +1 {SHARD}")
    try:
        with in_time():
            done = rack.fab("up")
    finally:
        root(rack, BAD, f"cp -p /run/kept {SHARD}")
    said = left(done, 3, f"{BAD}: weights:kimi-k2.5-w4a8", f"fab stage-weights --stack {STACK}")
    assert f"{Path(SHARD).name} has {size + 1} bytes, wanted {size}" in said
    assert "Nothing was changed." in said
    assert GOOD not in said
    assert root(rack, BAD, "find /etc -path '*moe-infra/*'") == ""


@pytest.mark.parametrize(
    ("verdict", "seen"), [("drop", "timed out"), ("reject with tcp reset", "Connection refused")]
)
def test_a_peers_firewall_is_named_when_the_start_that_it_costs_has_failed(
    rack: Rack, verdict: str, seen: str
) -> None:
    table = "nft add table inet t; nft 'add chain inet t i { type filter hook input priority 0; }'"
    root(rack, GOOD, table, f"nft add rule inet t i tcp dport 12321 {verdict}")
    try:
        with in_time(ENGINE_S):
            done = rack.fab("up", "--timeout", "20")
    finally:
        root(rack, GOOD, "nft delete table inet t")
    said = left(done, 5, f"{BAD}/0", "sudo nft list ruleset")
    closed = f"{GOOD}: port 12321 ({GOOD}/0's dp_rpc) cannot be reached from {BAD}: {seen}. Open"
    assert closed in said
    assert said.count("cannot be reached") == 1, "what is not bound yet is no closed port"
    left(rack.fab("up"), 0)
    left(rack.fab("down"), 0)
