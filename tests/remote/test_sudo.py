"""The password for sudo: only when it asks, once when it is wrong, and nowhere to be seen."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.errors import HostsFailed
from infra.remote.agent_call import agent_command, call_agent
from infra.remote.failures import SudoRefused
from infra.remote.sudo import PROMPT, STARTED, Dialogue, SudoPassword
from tests.remote.fake_host import FakeHost
from tests.remote.test_agent_call import BIN, not_root, stand_in

RIGHT = "open sesame"
# What sudo(8) does with -S: the prompt on standard error, one line of standard input per attempt, byte by byte.
SUDO = f"""\
[ "$1 $2" = "-S -p" ] || exit 99
shift 3
for attempt in 1 2 3; do
  printf '%%s' '{PROMPT}' >&2
  IFS= read -r word || {{ echo 'sudo: no password was provided' >&2; exit 1; }}
  echo asked >> %(folder)s/asked
  [ "$word" = '{RIGHT}' ] && {{ %(then)s; }}
  echo 'Sorry, try again.' >&2
done
echo 'sudo: 3 incorrect password attempts' >&2
exit 1
"""
READ: dict[str, object] = {"operation": "read", "paths": []}


def asking(folder: Path, then: str = 'exec "$@"') -> FakeHost:
    folder.mkdir(exist_ok=True)
    return not_root(folder, SUDO % {"folder": folder, "then": then})


def attempts(folder: Path) -> int:
    file = folder / "asked"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_sudo_gets_the_password_when_it_asks(tmp_path: Path) -> None:
    password = SudoPassword(RIGHT)
    for _ in range(2):
        assert call_agent(asking(tmp_path), READ, timeout_s=20, password=password)["files"] == {}


def test_a_sudo_that_does_not_ask_is_not_told(tmp_path: Path) -> None:
    host = not_root(tmp_path, f'shift 3; cat /proc/$$/environ >{tmp_path}/seen; exec "$@"')
    assert call_agent(host, READ, timeout_s=20, password=SudoPassword(RIGHT))["files"] == {}


def test_root_needs_no_password(tmp_path: Path) -> None:
    stand_in(tmp_path / "bin", "id", "echo 0")
    host = FakeHost(environment={"PATH": f"{tmp_path / 'bin'}:{BIN}"})
    assert call_agent(host, READ, timeout_s=20, password=SudoPassword(RIGHT))["files"] == {}


def test_a_wrong_password_is_tried_once(tmp_path: Path) -> None:
    with pytest.raises(SudoRefused, match="does not take the password") as caught:
        call_agent(asking(tmp_path), READ, timeout_s=20, password=SudoPassword("wrong"))
    assert attempts(tmp_path) == 1
    assert caught.value.exit_code == 4


def test_a_wrong_password_is_tried_on_one_of_sixteen_hosts(tmp_path: Path) -> None:
    password = SudoPassword("wrong")
    hosts = [asking(tmp_path / f"host-{i}") for i in range(16)]
    for i, host in enumerate(hosts):
        host.name = f"host-{i}"

    def ask(host: FakeHost) -> str:
        with pytest.raises(HostsFailed) as caught:
            call_agent(host, READ, timeout_s=30, password=password)
        return caught.value.what

    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(ask, hosts))
    assert sum(attempts(tmp_path / host.name) for host in hosts) == 1
    assert sum("does not take" in what for what in said) == 1
    assert sum("was not tried here" in what for what in said) == 15


def test_the_next_host_tries_when_the_first_one_says_nothing() -> None:
    password = SudoPassword(RIGHT)
    first, second = (Dialogue(name, password, b"payload") for name in ("one", "two"))
    assert first.reply(PROMPT.encode()) == RIGHT.encode() + b"\n"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.reply, PROMPT.encode())
        assert not waiting.done()
        first.close()  # its connection was lost
        assert waiting.result(timeout=5) == RIGHT.encode() + b"\n"


def test_a_right_password_opens_every_host() -> None:
    password = SudoPassword(RIGHT)
    first, second = (Dialogue(name, password, b"payload") for name in ("one", "two"))
    first.reply(PROMPT.encode())
    let_in = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.reply, PROMPT.encode())
        waiting.add_done_callback(lambda _: let_in.set())
        assert not let_in.wait(0.05)
        assert first.reply(f"{PROMPT}{STARTED}\n".encode()) == b"payload"
        waiting.result(timeout=5)


def test_a_login_that_may_not_is_told_apart_from_a_wrong_password(tmp_path: Path) -> None:
    host = asking(tmp_path, "echo 'op is not in the sudoers file.' >&2; exit 1")
    password = SudoPassword(RIGHT)
    with pytest.raises(SudoRefused, match="does not let this login"):
        call_agent(host, READ, timeout_s=20, password=password)
    assert call_agent(asking(tmp_path / "b"), READ, timeout_s=20, password=password)["files"] == {}


def test_one_attempt_is_enough_to_know_where_sudo_gives_only_one(tmp_path: Path) -> None:
    once = "printf '%s' %s >&2; read -r w; echo 'sudo: 1 incorrect password attempt' >&2; exit 1"
    host = not_root(tmp_path, once.replace("%s' %s", f"%s' '{PROMPT}'"))
    with pytest.raises(SudoRefused, match="does not take the password"):
        call_agent(host, READ, timeout_s=20, password=SudoPassword("wrong"))


def test_the_password_shows_nowhere(tmp_path: Path) -> None:
    password = SudoPassword(RIGHT)
    host = asking(
        tmp_path,
        f'tr "\\0" " " </proc/$$/cmdline >{tmp_path}/seen; env >>{tmp_path}/seen; exec "$@"',
    )
    call_agent(host, READ, timeout_s=20, password=password)
    assert RIGHT not in (tmp_path / "seen").read_text()
    assert RIGHT not in repr(password) + str(password) + f"{password}"
    assert RIGHT not in "".join(host.commands) + agent_command(sudo=True, asks=True)
