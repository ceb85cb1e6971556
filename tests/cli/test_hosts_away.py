"""One of two hosts is out of reach: what `fab` does on the other, what it says of both, and how it leaves."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.commands import FAB, run
from tests.ports import free_port
from tests.remote.conftest import run_sshd

# A real sshd, whose agent takes a folder for its host; each test is one or two commands.
pytestmark = [pytest.mark.slow, pytest.mark.fault]

STACK = "a2-2n-dp4tp4"
UP, AWAY = "unified-0", "unified-1"
SWAPPINESS = "proc/sys/vm/swappiness"
REFUSES = "127.0.0.2 port {} refuses connections."


@dataclass(frozen=True)
class Site:
    """Two hosts of a stack.

    Args:
        root: the folder that the one which answers takes for itself.
        refused: the port at which the other one refuses.
    """

    inventory: Path
    ssh_config: Path
    root: Path
    refused: int

    def fab(self, *words: str) -> CompletedProcess[str]:
        return run(
            FAB, words[0], "--stack", STACK, "--inventory", str(self.inventory), *words[1:]
        )  # fmt: skip

    def named(self, *words: str) -> CompletedProcess[str]:
        """A task of hosts that are named on the command line."""
        return run(FAB, "-S", str(self.ssh_config), "-H", f"{UP},{AWAY}", *words)

    def leave_out(self, group: str) -> None:
        """Have the inventory list the host that answers alone, in a group."""
        hosts = json.loads(self.inventory.read_text())["all"]["hosts"]
        children = {group: {"hosts": {UP: hosts[UP]}}}
        self.inventory.write_text(
            json.dumps({"all": {"hosts": {UP: hosts[UP]}, "children": children}})
        )

    def error(self) -> dict[str, str]:
        """What is said of the host that is out of reach."""
        what = REFUSES.format(self.refused)
        return {"where": AWAY, "what": what, "fix": "Start sshd there, or correct the port."}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder, root, programs = tmp_path / "sshd", tmp_path / "root", tmp_path / "bin"
    for one in (folder, root / "proc/sys/vm", programs):
        one.mkdir(parents=True)
    (root / SWAPPINESS).write_text("60\n")
    (programs / "id").write_text("#!/bin/sh\necho 0\n")  # the folder needs no root
    (programs / "id").chmod(0o755)
    variables = f"HOME={folder} MOE_INFRA_ROOT={root} PATH={programs}:/usr/bin:/bin"
    refused = free_port()
    with run_sshd(folder, f"SetEnv {variables}") as sshd:
        (folder / "known").write_text(f"[127.0.0.1]:{sshd.port} {sshd.public('host_key')}\n")
        config = tmp_path / "ssh_config"
        config.write_text(
            f"Host {UP}\n  HostName 127.0.0.1\n  Port {sshd.port}\n"
            f"Host {AWAY}\n  HostName 127.0.0.2\n  Port {refused}\n"
            f"Host *\n  User {getpass.getuser()}\n  IdentityFile {folder / 'login_key'}\n"
            f"  UserKnownHostsFile {folder / 'known'}\n"
        )
        hosts = {UP: ("127.0.0.1", sshd.port), AWAY: ("127.0.0.2", refused)}
        variables_of = {
            name: {
                "ansible_host": address,
                "ansible_port": port,
                "ansible_user": getpass.getuser(),
                "ansible_ssh_private_key_file": str(folder / "login_key"),
                "moe": {"host_key": sshd.public("host_key")},
            }
            for name, (address, port) in hosts.items()
        }
        inventory = tmp_path / "hosts.yml"
        inventory.write_text(json.dumps({"all": {"hosts": variables_of}}))
        yield Site(inventory, config, root, refused)


def test_what_was_tuned_is_told_beside_the_host_that_is_away(site: Site) -> None:
    done = site.named("tune-hosts", "--json")
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert (document["ok"], document["errors"]) == (False, [site.error()])
    (host,) = document["hosts"]
    told = {item["id"]: item["state"] for item in host["items"]}
    assert (host["name"], told["vm.swappiness"]) == (UP, "changed")
    assert (site.root / SWAPPINESS).read_text() == "0\n"
    assert "1 of 2 hosts failed:" in done.stderr
    taken_back = site.named("tune-hosts", "--rollback")
    assert taken_back.returncode == 4
    assert "vm.swappiness" in taken_back.stdout
    assert (site.root / SWAPPINESS).read_text() == "60\n"
    assert taken_back.stderr.splitlines()[-1].endswith("tune-hosts --rollback")


def test_drift_is_told_beside_the_host_that_is_away(site: Site) -> None:
    done = site.fab("tune-hosts", "--check")
    assert done.returncode == 4, done.stderr
    assert "vm.swappiness" in done.stdout
    assert f"{AWAY}  {REFUSES.format(site.refused)}" in done.stderr
    assert (site.root / SWAPPINESS).read_text() == "60\n"
    assert list(site.root.iterdir()) == [site.root / "proc"]


def test_down_clears_who_answers_and_names_who_does_not(site: Site) -> None:
    done = site.fab("down", "--json")
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout) == {
        "schema_version": 1, "stack": STACK, "ok": False, "was_there": False, "errors": [site.error()],
    }  # fmt: skip
    assert "What runs there may go on" in done.stderr


def test_nothing_of_a_stack_is_no_reason_to_believe_that_it_is_down(site: Site) -> None:
    """An operator has typed the inventory of another stack: it names the stacks that are there, or other roles."""
    site.leave_out("unified")
    record = site.root / "etc/moe-infra/a3-dp4tp4/release.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    for task in ("down", "status"):
        done = site.fab(task)
        assert f"Nothing of {STACK} " in done.stdout + done.stderr
        assert "these 1 hosts. They hold a3-dp4tp4." in done.stdout + done.stderr
    site.leave_out("decode")
    done = site.fab("down")
    assert done.returncode == 2
    assert "The inventory has hosts for decode; the stack's role is unified." in done.stderr


def test_of_several_that_are_away_each_is_told_with_its_own_reason(site: Site) -> None:
    hosts = json.loads(site.inventory.read_text())
    hosts["all"]["hosts"][UP]["moe"] = {
        "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
    }
    site.inventory.write_text(json.dumps(hosts))
    done = site.fab("verify", "--json")
    assert done.returncode == 4
    changed, refused = json.loads(done.stdout)["errors"]
    assert (changed["where"], refused) == (UP, site.error())
    assert "the host key has changed" in changed["what"]
