"""Inventories as people write them: what we read is what `ansible-inventory` and Ansible's SSH resolve."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.inventory.ansible_file import read_inventory
from infra.inventory.hosts import InventoryHost

PROGRAM = Path(sys.executable).with_name("ansible-inventory")
PASSWORD = b"sesame"
# Files by path below the inventory's folder; `VAULT` stands for a file that is encrypted as a whole.
CASES: dict[str, dict[str, str]] = {
    "variables beside the file": {
        "hosts.yml": """
all:
  vars: {ansible_user: root, ansible_port: 2022, moe: {interface: eth0}}
  children:
    rack: {children: {prefill: , decode: }}
    prefill: {hosts: {p0: {ansible_host: 10.0.0.1}, p1: }}
    decode: {vars: {ansible_user: file}, hosts: {"d[0:2]": }}
  hosts: {lone: }
""",
        "group_vars/all.yml": "ansible_user: everybody\nmoe: {rdma_devices: [mlx5_0:1]}\n",
        "group_vars/rack.yaml": "ansible_ssh_common_args: -J bastion\n",
        "group_vars/prefill/one.yml": "ansible_port: 2200\nmoe: {interface: ib0}\n",
        "group_vars/prefill/two.yml": "ansible_port: 2201\n",
        "group_vars/prefill/vault.yml": "VAULT",
        "group_vars/prefill/.hidden.yml": "ansible_port: 1\n",
        "group_vars/prefill/old.yml~": "ansible_port: 2\n",
        "group_vars/ungrouped": "ansible_user: nobody\n",
        "group_vars/elsewhere.yml": "ansible_user: never\n",
        "host_vars/p1.yml": "ansible_host: 10.0.0.2\nansible_user: own\nmoe: {address: 10.1.0.2}\n",
        "host_vars/d1/net.json": '{"ansible_host": "10.0.0.9"}',
    },
    "who wins": {
        "hosts.yml": """
all:
  vars: {ansible_user: all}
  children:
    b: {vars: {ansible_user: b, ansible_port: 23}, hosts: {x: {ansible_port: 24}, y: }}
    a: {vars: {ansible_user: a, ansible_group_priority: 5}, hosts: {x: }}
    c: {hosts: {z: {ansible_user: line}, y: }}
""",
        "group_vars/all/main.yml": "ansible_user: beside\n",
        "group_vars/all.yml": "ansible_user: passed over\n",
        "group_vars/a.yml": "ansible_user: a-beside\n",
        "group_vars/b": "ansible_user: b-beside\n",
        "group_vars/b.yml": "ansible_user: passed over\n",
        "host_vars/x.yml": "ansible_port: 25\n",
    },
    "merge keys, vaults and older names": {
        "hosts.yml": """
all:
  vars:
    common: &common {ansible_user: merged, ansible_ssh_private_key_file: /keys/id, moe: {interface: ens1}}
    slow: &slow {ansible_user: slow, ansible_port: 2222}
    ansible_become_password: !vault |
      $ANSIBLE_VAULT;1.1;AES256
      6162
  children:
    unified:
      hosts:
        u0: {<<: *common, ansible_host: 10.0.0.1}
        u1: {ansible_host: 10.0.0.2, <<: [*common, *slow]}
        u2: {<<: [*slow, *common], ansible_user: own}
        u3: {ansible_ssh_host: 10.0.0.3, ansible_host: 10.9.9.9, ansible_ssh_user: older, ansible_user: newer}
        u4: {ansible_ssh_port: 26, ansible_port: 27, ansible_private_key_file: /keys/new}
        u5:
          ansible_ssh_common_args: -o ConnectTimeout=5
          ansible_ssh_extra_args: -o "ProxyCommand=nc %h %p"
          ansible_ssh_args: -F /etc/ssh/rack
""",
    },
}
KEYS = ("address", "interface", "rdma_devices")


def encrypted(text: str) -> str:
    """A file as `ansible-vault` writes it. Ansible is loaded here: no other test needs it, and all would wait."""
    from ansible.parsing.vault import VaultLib, VaultSecret  # type: ignore[import-untyped]  # noqa: PLC0415

    vault = VaultLib([("default", VaultSecret(PASSWORD))])
    return str(vault.encrypt(text).decode())


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(encrypted("token: x\n") if text == "VAULT" else text)
    (folder / "password").write_bytes(PASSWORD)
    return folder / "hosts.yml"


def listing(inventory: Path) -> dict[str, Any]:
    """What the real program lists: groups with their own hosts, and every host's variables."""
    password = inventory.parent / "password"
    words = [str(PROGRAM), "--list", "-i", str(inventory), "--vault-password-file", str(password)]
    # our maps merge key by key, which is this setting's meaning
    environment = {**os.environ, "ANSIBLE_HASH_BEHAVIOUR": "merge"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def variables_of(listed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each host's variables."""
    groups = [group for name, group in listed.items() if name != "_meta"]
    names = [host for group in groups for host in group.get("hosts", [])]
    return {name: listed["_meta"]["hostvars"].get(name, {}) for name in names}


def resolved(name: str, variables: dict[str, Any]) -> dict[str, object]:
    """What Ansible's own connection makes of a host's variables; loaded here, as above."""
    from ansible.playbook.play_context import PlayContext  # type: ignore[import-untyped]  # noqa: PLC0415
    from ansible.plugins.loader import connection_loader  # type: ignore[import-untyped]  # noqa: PLC0415

    ssh = connection_loader.get("ssh", PlayContext())
    ssh.set_options(var_options={"inventory_hostname": name, **variables})
    arguments = [variables.get("ansible_ssh_args")]
    arguments += [ssh.get_option("ssh_common_args"), ssh.get_option("ssh_extra_args")]
    moe = variables.get("moe") or {}
    return {
        "address": ssh.get_option("host"),
        "port": int(ssh.get_option("port") or 22),
        "user": ssh.get_option("remote_user"),
        "identity": ssh.get_option("private_key_file"),
        "arguments": [word for text in arguments for word in shlex.split(text or "")],
        "moe": [moe.get("address", ssh.get_option("host")), moe.get("interface", "eth0"), moe.get("rdma_devices", [])],
    }  # fmt: skip


def ours(host: InventoryHost) -> dict[str, object]:
    return {
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "identity": host.private_key_file,
        "arguments": list(host.ssh_arguments),
        "moe": [host.service_address, host.interface, list(host.rdma_devices)],
    }


@pytest.mark.slow  # starts Ansible
@pytest.mark.parametrize("files", CASES.values(), ids=CASES.keys())
def test_hosts_are_reached_as_ansible_reaches_them(tmp_path: Path, files: dict[str, str]) -> None:
    inventory = write(tmp_path, files)
    listed = listing(inventory)
    expected = {name: resolved(name, own) for name, own in variables_of(listed).items()}
    assert len(expected) >= 3
    read = read_inventory(inventory)
    assert {host.name: ours(host) for host in read.hosts} == expected
    own = {name: tuple(group["hosts"]) for name, group in listed.items() if group.get("hosts")}
    own.pop("ungrouped", None)
    assert own.items() <= read.members.items()


def refused(folder: Path, name: str, text: str) -> str:
    write(folder, {"hosts.yml": "all: {children: {prefill: {hosts: {a: }}}}\n", name: text})
    with pytest.raises(ProblemsFound) as caught:
        read_inventory(folder / "hosts.yml", "inventory/hosts.yml")
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("group_vars/prefill.yml", "moe:\n  interfaces: eth0\n", "group_vars/prefill.yml:2 moe.interfaces"),
        ("host_vars/a/x.yml", "- 5\n", "host_vars/a/x.yml: It is not a map of variables"),
        ("group_vars/all.yml", "a: [\n", "group_vars/all.yml"),
        ("host_vars/a.yml", "ansible_host: !vault x\n", "ansible_host is encrypted"),
        ("group_vars/all.yml", "ansible_port: '{{ p }}'\n", "is no port"),
    ],
)  # fmt: skip
def test_a_mistake_beside_the_inventory_is_told_with_its_own_file(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    assert says in refused(tmp_path, name, text)


def test_merged_keys_are_counted_so_that_they_cannot_multiply_for_ever(tmp_path: Path) -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: x" for i in range(40)) + "}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9)]
    path = tmp_path / "hosts.yml"
    path.write_text("\n".join(lines))
    with pytest.raises(ProblemsFound, match="expands to more than"):
        read_inventory(path)


def test_a_map_merged_into_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("all: &a\n  <<: *a\n  hosts: {x: }\n")
    with pytest.raises(ProblemsFound, match="expands to more than"):
        read_inventory(path)
