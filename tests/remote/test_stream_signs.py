"""An agent whose output is read lives as long as its reader's machine does: however busy or held up the reader is."""

from __future__ import annotations

import base64
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.agent.bundle import program
from infra.remote.agent_call import agent_command, framed_request
from infra.remote.agent_modules import agent_modules
from infra.remote.agent_stream import AgentStream
from infra.remote.connecting import SshOptions
from infra.remote.failures import AgentFailed, LostConnection
from infra.remote.host import SshHost
from infra.remote.pulse import DEAD_AFTER_S, HeardWire
from infra.remote.resources import Resources
from infra.remote.signs import Signs
from infra.remote.sudo import PROMPT, STARTED, Dialogue, SudoPassword
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host
from tests.remote.test_agent_stream import RECORD, put_record, runs
from tests.remote.test_connecting import CARRY

REQUEST: dict[str, object] = {"operation": "logs", "record": RECORD, "follow": True}
# How long the agent may hear nothing here, and how often it is given a sign.
SILENCE_S = 1.0
SIGN_S = 0.2
LIMIT_S = 20.0
# Of an agent that lives when the log ends.
LAST_WORDS = "journalctl stopped following"
# What is said: too much in a second for all buffers between the agent and its reader.
NOISE = base64.b64encode(os.urandom(45000)).decode()
ENTRY = r"__CURSOR=c\n__REALTIME_TIMESTAMP=1\nMESSAGE=%s\n_SYSTEMD_UNIT=u.service\n\n"


@pytest.fixture
def opened(sshd: Sshd) -> Iterator[SshHost]:
    options = SshOptions(resources=Resources(sign_s=SIGN_S))
    host = open_host(inventory_host(sshd), options)
    yield host
    host.close()
    options.resources.close()


def impatient_agent() -> bytes:
    """The agent as it travels, with a shorter patience for whoever reads its stream."""
    texts = dict(agent_modules(REQUEST))
    words = "STREAM_SILENCE_S = 90.0"
    assert words in texts["asker"]
    texts["asker"] = texts["asker"].replace(words, f"STREAM_SILENCE_S = {SILENCE_S}")
    packed = zlib.compress(program(texts).encode())
    return b"%d\n" % len(packed) + packed


def logs_of(host: SshHost, folder: Path, pause_s: float) -> AgentStream:
    """The log of a unit that says something again and again, until there is a file `over`."""
    says = f"until test -e {folder}/over; do printf '{ENTRY % NOISE}'; sleep {pause_s}; done"
    says = f"echo $$ >{folder}/pid; {says}"
    put_record(folder, f'case "$*" in *--follow*) {says};; esac')
    command = f"PATH={folder}/bin:$PATH MOE_INFRA_ROOT={folder}/root {agent_command(sudo=False)}"
    stdin = impatient_agent() + framed_request(REQUEST)
    return AgentStream(host.name, host.stream(command, stdin=stdin))


def test_output_without_a_pause_is_no_silence_of_its_reader(
    opened: SshHost, tmp_path: Path
) -> None:
    stream = logs_of(opened, tmp_path, pause_s=0.01)
    over = time.monotonic() + 2 * SILENCE_S

    def read() -> None:
        for _ in stream.chunks():
            if time.monotonic() > over:
                (tmp_path / "over").touch()

    with pytest.raises(AgentFailed, match=LAST_WORDS):
        read()
    stream.close()


def test_a_reader_that_takes_nothing_for_a_while_is_still_there(
    opened: SshHost, tmp_path: Path
) -> None:
    stream = logs_of(opened, tmp_path, pause_s=0.0)
    chunks = stream.chunks()
    assert next(chunks)
    over = time.monotonic() + 2 * SILENCE_S
    wait_until(lambda: time.monotonic() > over)
    (tmp_path / "over").touch()
    with pytest.raises(AgentFailed, match=LAST_WORDS):
        list(chunks)
    stream.close()


@pytest.mark.fault
def test_the_agent_of_a_reader_that_gives_no_sign_ends(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    """Nobody has hung up: a machine that lost its power does not."""
    host = open_host(inventory_host(sshd), options)
    stream = logs_of(host, tmp_path, pause_s=0.0)
    chunks = stream.chunks()
    assert next(chunks)
    wait_until((tmp_path / "pid").exists)
    wait_until(lambda: not runs((tmp_path / "pid").read_text().strip() or "self"))
    with pytest.raises(LostConnection, match="has heard nothing of this command"):
        list(chunks)
    stream.close()
    host.close()


def test_a_sudo_that_may_still_ask_is_given_no_sign_of_life(opened: SshHost) -> None:
    dialogue = Dialogue("loop-0", SudoPassword("open sesame"), b"the rest\n")
    asks = f"sleep 0.7; printf {PROMPT} >&2; read -r word; sleep 0.7; echo {STARTED} >&2"
    script = f"{asks}; read -r more; echo $word, $more; read -r sign; echo ${{#sign}}"
    stream = opened.stream(script, reply=dialogue.reply)
    limit = threading.Timer(LIMIT_S, stream.close)
    limit.start()
    assert b"".join(stream.chunks()) == b"open sesame, the rest\n0\n"
    assert stream.outcome(LIMIT_S).exit_code == 0
    limit.cancel()
    stream.close()


@pytest.mark.fault
def test_a_peer_that_was_silent_because_nobody_took_anything_is_not_dead(
    sshd: Sshd, options: SshOptions, tmp_path: Path
) -> None:
    (tmp_path / "carry.py").write_text(CARRY)
    proxy = ("-o", f"ProxyCommand={sys.executable} -I {tmp_path / 'carry.py'} %h %p")
    host = open_host(inventory_host(sshd, ssh_arguments=proxy), options)
    go = tmp_path / "go"
    stream = host.stream(f"echo first; until test -e {go}; do sleep 0.02; done; echo second")
    chunks = stream.chunks()
    assert next(chunks) == b"first\n"
    wire = host.open().sock
    assert isinstance(wire, HeardWire)
    # it was so long ago
    wire._heard_at -= 2 * DEAD_AFTER_S
    stream._pulse._begun_at -= 2 * DEAD_AFTER_S
    timer = threading.Timer(0.5, go.touch)
    timer.start()
    assert b"".join(chunks) == b"second\n"
    timer.join()
    stream.close()
    host.close()


def test_signs_are_given_as_long_as_there_is_somebody_to_give_them_to() -> None:
    signs, said = Signs(0.01), {"a": threading.Event(), "b": threading.Event()}

    before = set(threading.enumerate())

    def threads() -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - before]

    for _ in range(2):  # a thread that has ended is followed by another
        with signs.given(said["a"].set):
            with signs.given(said["b"].set):
                assert all(each.wait(LIMIT_S) for each in said.values())
                assert threads() == ["signs"]
            said["a"].clear()
            assert said["a"].wait(LIMIT_S)
        wait_until(lambda: not threads())
        for each in said.values():
            each.clear()
    assert not any(each.is_set() for each in said.values())


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
