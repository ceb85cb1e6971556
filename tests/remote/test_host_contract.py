"""What every `Host` promises, on the fake one and on a real sshd."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from infra.remote.connecting import SshOptions
from infra.remote.failures import OverTime
from infra.remote.outcome import Host
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host

MEBIBYTE = 1 << 20


def wait_for(path: Path, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.exists()


def test_exit_code_and_both_outputs_come_apart(host: Host) -> None:
    outcome = host.run("echo out; echo err >&2; exit 7", timeout_s=10)
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (7, b"out\n", b"err\n")


def test_zero_and_silence_are_an_outcome(host: Host) -> None:
    outcome = host.run("true", timeout_s=10)
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, b"", b"")


def test_a_command_killed_by_a_signal_is_not_called_unknown(host: Host) -> None:
    assert host.run("kill -9 $$", timeout_s=10).exit_code == 137


def test_standard_input_arrives_whole_with_its_end(host: Host) -> None:
    sent = bytes(range(256)) * (5 * MEBIBYTE // 256)
    outcome = host.run("cat", stdin=sent, timeout_s=20)
    assert outcome.exit_code == 0
    assert outcome.stdout == sent


def test_input_that_nobody_reads_does_not_hang(host: Host) -> None:
    assert host.run("exit 3", stdin=b"x" * (5 * MEBIBYTE), timeout_s=10).exit_code == 3


def test_twenty_megabytes_come_at_line_speed(host: Host) -> None:
    begun = time.monotonic()
    outcome = host.run("head -c 20000000 /dev/zero", timeout_s=30)
    assert len(outcome.stdout) == 20_000_000
    assert time.monotonic() - begun < 10  # fabric's own reader takes a minute


def test_much_on_both_outputs_at_once_does_not_block(host: Host) -> None:
    outcome = host.run("head -c 4000000 /dev/zero >&2; head -c 4000000 /dev/zero", timeout_s=20)
    assert (len(outcome.stdout), len(outcome.stderr)) == (4_000_000, 4_000_000)


def test_standard_input_is_in_no_process_table(host: Host) -> None:
    secret = "hf_zGk2" + "Qv81"
    command = "read word; cat /proc/[0-9]*/cmdline /proc/$$/environ 2>/dev/null; echo got ${#word}"
    outcome = host.run(command, stdin=secret.encode() + b"\n", timeout_s=20)
    assert outcome.stdout.endswith(b"got 11\n")
    assert secret.encode() not in outcome.stdout


def test_a_limit_ends_the_wait_with_a_named_error(host: Host) -> None:
    begun = time.monotonic()
    with pytest.raises(OverTime) as caught:
        host.run("sleep 3", timeout_s=0.3)
    assert time.monotonic() - begun < 2
    assert caught.value.where == host.name
    assert host.run("echo again", timeout_s=10).stdout == b"again\n"


def test_held_input_ends_when_nobody_waits_any_more(host: Host, folder: Path) -> None:
    seen = folder / "end-of-file"
    with pytest.raises(OverTime):
        host.run(f"cat >/dev/null; touch {seen}", hold_stdin=True, timeout_s=0.5)
    assert wait_for(seen)


def test_held_input_is_not_waited_for(host: Host) -> None:
    outcome = host.run("head -c 2; echo", stdin=b"ab", hold_stdin=True, timeout_s=10)
    assert (outcome.exit_code, outcome.stdout) == (0, b"ab\n")


def test_closing_twice_is_nothing(host: Host) -> None:
    host.close()
    host.close()


def test_a_lost_connection_is_unknown_and_the_next_run_connects_again(
    sshd: Sshd, options: SshOptions
) -> None:
    host = open_host(inventory_host(sshd), options)
    # the shell's parent is this connection's own sshd
    outcome = host.run("kill -9 $PPID; sleep 1; echo never", timeout_s=10)
    assert outcome.exit_code is None
    assert host.run("echo back", timeout_s=10).stdout == b"back\n"
    host.close()


def test_streamed_output_comes_while_the_command_runs(host: Host, folder: Path) -> None:
    go = folder / "go"
    stream = host.stream(f"echo first; while ! test -e {go}; do sleep 0.02; done; echo second")
    chunks = stream.chunks()
    assert next(chunk for chunk in chunks if chunk) == b"first\n"
    go.touch()
    assert b"".join(chunks) == b"second\n"
    assert stream.outcome(5).exit_code == 0
    stream.close()


def test_a_streamed_command_gets_its_input_and_keeps_its_last_words(host: Host) -> None:
    sent = bytes(range(256)) * 8000
    stream = host.stream(f"head -c {len(sent)}; echo no >&2; exit 7", stdin=sent)
    assert b"".join(stream.chunks()) == sent
    outcome = stream.outcome(5)
    assert (outcome.exit_code, outcome.stderr) == (7, b"no\n")
    stream.close()


def test_a_slow_reader_slows_the_writer(host: Host, folder: Path) -> None:
    written = folder / "written"
    loop = f"for i in $(seq 400); do head -c 100000 /dev/zero; echo $i >{written}; done"
    stream = host.stream(loop)
    chunks = stream.chunks()
    assert next(chunk for chunk in chunks if chunk)
    time.sleep(0.5)
    so_far = int(written.read_text()) if written.exists() else 0
    assert so_far < 200  # of 40 MB: one window, sshd's buffers, the sockets'
    assert sum(len(chunk) for chunk in chunks) > 39_000_000
    stream.close()


def test_closing_a_stream_ends_the_commands_input(host: Host, folder: Path) -> None:
    seen = folder / "end-of-file"
    stream = host.stream(f"echo go; cat >/dev/null; touch {seen}")
    assert next(chunk for chunk in stream.chunks() if chunk) == b"go\n"
    stream.close()
    stream.close()
    assert wait_for(seen)


def test_a_stream_of_a_lost_connection_ends_unknown(sshd: Sshd, options: SshOptions) -> None:
    host = open_host(inventory_host(sshd), options)
    stream = host.stream("echo some; sleep 0.2; kill -9 $PPID; sleep 1")
    assert b"".join(stream.chunks()) == b"some\n"
    assert stream.outcome(5).exit_code is None
    host.close()
