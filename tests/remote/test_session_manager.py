"""First contact through Session Manager: a stand-in `aws` in front of a real sshd pins the key, once."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from infra.provision.aws.ec2_stack import session_manager_proxy
from infra.remote.connecting import SshOptions
from infra.remote.failures import HostKeyChanged, HostKeyUnknown, Unreachable
from infra.remote.session_manager import leads_to
from tests.remote.conftest import run_sshd
from tests.remote.loopback_sshd import Sshd, inventory_host
from tests.remote.opened import open_host
from tests.remote.test_connecting import CARRY

INSTANCE = "i-0123456789abcdef0"
PROXY = session_manager_proxy(INSTANCE, "us-east-2")
# The words that `aws ssm start-session` is given here; anything else ends as the real one does.
AWS = """\
#!/bin/sh
[ "$1 $2 $3" = "ssm start-session --target" ] || {{ echo "aws: error: argument" >&2; exit 252; }}
[ "$5 $6 $7 $8" = "--region us-east-2 --document-name AWS-StartSSHSession" ] || exit 252
[ "$9 ${{10}}" = "--parameters portNumber=22" ] || exit 252
if [ "$4" != {instance} ]; then
  echo >&2
  echo "An error occurred (TargetNotConnected) when calling the StartSession operation: $4 is not connected." >&2
  exit 254
fi
exec python3 -I {folder}/carry.py 127.0.0.1 {port}
"""


@pytest.fixture
def arguments(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (tmp_path / "carry.py").write_text(CARRY)
    install_aws(tmp_path, sshd)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return (f"-oUserKnownHostsFile={tmp_path / 'known_hosts'}", "-oGlobalKnownHostsFile=none")


def install_aws(folder: Path, sshd: Sshd) -> None:
    """The stand-in, which leads to that sshd."""
    program = folder / "aws"
    program.write_text(AWS.format(instance=INSTANCE, folder=folder, port=sshd.port))
    program.chmod(0o755)


def contact(
    sshd: Sshd,
    words: tuple[str, ...],
    instance: str = INSTANCE,
    options: SshOptions | None = None,
) -> bytes:
    """What a command says over a connection as the inventory of a provisioned stack has it."""
    proxy = session_manager_proxy(instance, "us-east-2")
    options = options or SshOptions()
    host = open_host(
        inventory_host(
            sshd,
            address=instance,
            port=22,
            host_key=None,
            instance_id=instance,
            ssh_arguments=(*words, "-o", f"ProxyCommand={proxy}"),
        ),
        options,
    )
    try:
        return host.run("echo hello", timeout_s=10).stdout
    finally:
        host.close()
        options.resources.close()


def test_first_contact_pins_the_key_under_the_instance_s_id(
    sshd: Sshd, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    for _ in range(2):
        assert contact(sshd, arguments) == b"hello\n"
    assert (tmp_path / "known_hosts").read_text() == f"{INSTANCE} {sshd.public('host_key')}\n"


def test_another_key_later_on_is_refused(
    sshd: Sshd, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "known_hosts").write_text(f"{INSTANCE} {sshd.public('stranger_key')}\n")
    with pytest.raises(HostKeyChanged, match="has changed"):
        contact(sshd, arguments)


@pytest.mark.fault
def test_another_key_in_the_same_run_is_refused(
    sshd: Sshd, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    options = SshOptions()
    assert contact(sshd, arguments, options=options) == b"hello\n"
    (tmp_path / "another").mkdir()
    with run_sshd(tmp_path / "another", "") as another:
        install_aws(tmp_path, another)
        with pytest.raises(HostKeyChanged, match="has changed"):
            contact(another, arguments, options=options)
    assert (tmp_path / "known_hosts").read_text() == f"{INSTANCE} {sshd.public('host_key')}\n"


def test_whoever_asks_for_strict_checking_gets_it(sshd: Sshd, arguments: tuple[str, ...]) -> None:
    with pytest.raises(HostKeyUnknown):
        contact(sshd, (*arguments, "-oStrictHostKeyChecking=yes"))


def test_a_tunnel_that_cannot_be_opened_is_quoted(sshd: Sshd, arguments: tuple[str, ...]) -> None:
    with pytest.raises(Unreachable, match="i-0aaaaaaaaaaaaaaaa is not connected") as caught:
        contact(sshd, arguments, "i-0aaaaaaaaaaaaaaaa")
    assert caught.value.fix.startswith("Try it by hand: `aws ssm start-session")


@pytest.mark.parametrize(
    ("command", "instance", "proves"),
    [
        (PROXY, INSTANCE, True),
        (PROXY.replace("aws ", "/usr/local/bin/aws ", 1), INSTANCE, True),
        (PROXY, "i-0aaaaaaaaaaaaaaaa", False),
        (PROXY, None, False),
        (None, INSTANCE, False),
        (
            PROXY.replace("AWS-StartSSHSession", "AWS-StartPortForwardingSessionToRemoteHost"),
            INSTANCE,
            False,
        ),
        (PROXY.replace("aws ", "myaws ", 1), INSTANCE, False),
        (f"sh -c {shlex.quote(PROXY)}", INSTANCE, False),
        ("nc %h %p", INSTANCE, False),
        ("aws 'unclosed", INSTANCE, False),
    ],
)
def test_only_such_a_tunnel_to_that_instance_proves_it(
    command: str | None, instance: str | None, *, proves: bool
) -> None:
    assert leads_to(command, instance) is proves
