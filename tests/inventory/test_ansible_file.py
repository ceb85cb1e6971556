"""An Ansible inventory read as Ansible reads it, and what its mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager  # type: ignore[import-untyped]
from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
from ansible.vars.manager import VariableManager  # type: ignore[import-untyped]

from infra.errors import ProblemsFound
from infra.inventory.ansible_file import parse_inventory, read_inventory
from infra.inventory.host_ranges import expand_range, split_port
from infra.inventory.hosts import Inventory, InventoryHost
from infra.spec.load import PROJECT

EXAMPLES = sorted((PROJECT / "ansible" / "inventory" / "examples").glob("*.yml"))


def read(folder: Path, text: str) -> Inventory:
    path = folder / "hosts.yml"
    path.write_text(text, encoding="utf-8")
    return read_inventory(path, "hosts.yml")


def host(inventory: Inventory, name: str) -> InventoryHost:
    found = inventory.host(name)
    assert found is not None
    return found


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(ProblemsFound) as caught:
        read(folder, text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_read(path: Path) -> None:
    assert read_inventory(path).hosts


def test_groups_variables_and_our_own_keys(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        """
all:
  vars: {ansible_user: ubuntu, moe: {interface: eth1, rdma_devices: [mlx5_0:1]}}
  children:
    prefill:
      hosts:
        p0: {ansible_host: 10.0.0.1, ansible_port: 2222, moe: {interface: ib0, address: 10.1.0.1}}
    decode:
      vars: {ansible_user: root}
      hosts: {d0: {ansible_host: 10.0.0.2}, d1: {ansible_host: 10.0.0.3, ansible_user: me}}
""",
    )
    first = host(inventory, "p0")
    assert (first.address, first.service_address, first.port) == ("10.0.0.1", "10.1.0.1", 2222)
    assert (first.user, first.interface, first.rdma_devices) == ("ubuntu", "ib0", ("mlx5_0:1",))
    assert first.groups == ("prefill",)
    assert [host(inventory, name).user for name in ("d0", "d1")] == ["root", "me"]
    assert [each.name for each in inventory.hosts] == ["p0", "d0", "d1"]


def test_a_hosts_own_variable_beats_every_group(tmp_path: Path) -> None:
    inventory = read(
        tmp_path,
        "all: {hosts: {a: {ansible_user: own}}, children: {prefill: {vars: {ansible_user: group}, hosts: {a: }}}}",
    )
    assert host(inventory, "a").user == "own"
    assert host(inventory, "a").groups == ("prefill",)


def test_ssh_arguments_are_words(tmp_path: Path) -> None:
    inventory = read(
        tmp_path, "all: {hosts: {a: {ansible_ssh_common_args: '-F /tmp/x -o \"ProxyJump=b c\"'}}}"
    )
    assert host(inventory, "a").ssh_arguments == ("-F", "/tmp/x", "-o", "ProxyJump=b c")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("rack[01:03]", ["rack01", "rack02", "rack03"]),
        ("n[8:10]", ["n8", "n9", "n10"]),
        ("n[1:5:2]", ["n1", "n3", "n5"]),
        ("n[1:2:0]", ["n1", "n2"]),
        ("h-[a:c].x", ["h-a.x", "h-b.x", "h-c.x"]),
        ("r[1:2]-n[1:2]", ["r1-n1", "r1-n2", "r2-n1", "r2-n2"]),
        ("n[3:1]", []),
    ],
)
def test_ranges(pattern: str, names: list[str]) -> None:
    assert list(expand_range(pattern)) == names


def test_a_range_that_never_ends_is_refused(tmp_path: Path) -> None:
    (message,) = refused(tmp_path, "all: {hosts: {'a[0:9999]-[0:9999]': }}")
    assert "more than 20000 hosts" in message


def test_an_unknown_key_under_moe_is_refused_once_with_the_nearest(tmp_path: Path) -> None:
    text = "all:\n  vars:\n    moe:\n      interfaces: eth0\n  children:\n    prefill: {hosts: {a: }}\n"
    (message,) = refused(tmp_path, text)
    assert message.startswith("hosts.yml:4 all.vars.moe.interfaces")
    assert "Did you mean interface" in message


def test_an_unknown_key_under_a_hosts_moe_is_refused(tmp_path: Path) -> None:
    (message,) = refused(tmp_path, "all:\n  hosts:\n    a:\n      moe: {addrezz: 1.2.3.4}\n")
    assert "address" in message
    assert message.startswith("hosts.yml:4")


def test_other_variables_are_the_users_own(tmp_path: Path) -> None:
    assert read(tmp_path, "all: {vars: {rack: 7, vault: x}, hosts: {a: {slot: 3}}}").hosts


def test_two_names_for_one_address_are_refused(tmp_path: Path) -> None:
    (message,) = refused(
        tmp_path,
        "all:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n    b: {ansible_host: 10.0.0.1}\n",
    )
    assert "b and a have the same address 10.0.0.1" in message


def test_a_host_written_twice_in_one_group_is_refused(tmp_path: Path) -> None:
    (message,) = refused(
        tmp_path,
        "all:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n    a: {ansible_host: 10.0.0.2}\n",
    )
    assert "a is written twice" in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no hosts"),
        ("all: {hosts: {}}", "has no hosts"),
        ("- a", "has no hosts"),
        ("all: 5", "Group all is not a map"),
        ("all: {hosts: {a: {moe: 5}}}", "moe is not a map"),
        ("all: {hosts: {a: {ansible_port: ssh}}}", "'ssh' is no port"),
        ("all: {hosts: {a: {ansible_port: 70000}}}", "70000 is no port"),
        ("all: {hosts: {a: {ansible_host: 'x; rm'}}}", "is no address"),
        ("all: {hosts: [a: 1", "This is not YAML"),
    ],
)
def test_what_is_no_inventory_is_refused(text: str, says: str, tmp_path: Path) -> None:
    assert any(says in message for message in refused(tmp_path, text))


def test_a_missing_file_is_told_with_the_option(tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match="--inventory"):
        read_inventory(tmp_path / "none.yml")


AGAINST_ANSIBLE = {
    "deeper groups win": """
all:
  vars: {ansible_user: root, ansible_port: 2022}
  hosts: {n1: {ansible_host: 10.0.0.1, ansible_user: bob}}
  children:
    gpu:
      vars: {ansible_user: gpuuser}
      children:
        prefill: {hosts: {n1: , "n[2:3]": }}
        decode: {vars: {ansible_user: dec}, hosts: {"d[01:04]": }}
    other: {hosts: {d01: , n2: }}
""",
    "a group in several places": """
all:
  children:
    gpu:
      vars: {ansible_user: gpuuser, ansible_port: 2200}
      children: {prefill: , decode: }
    prefill: {hosts: {p0: , p1: }}
    decode: {vars: {ansible_user: dec}, hosts: {"d[0:3]": }}
    rack: {hosts: {"p[0:1]": , "d[0:3]": }}
""",
    "groups beside all": """
prefill: {hosts: {p0: {ansible_host: 10.0.0.1}, p1: }, vars: {ansible_user: zz}}
decode: {hosts: {"d[0:3]:2222": , "e[A:C]": , "f[:1]": }}
east: {children: {prefill: , decode: }, vars: {ansible_user: east, ansible_port: 23}}
all: {vars: {ansible_user: root}, hosts: {p0: }}
""",
    "priorities and names": """
b: {vars: {ansible_user: b}, hosts: {x: , y: }}
a: {vars: {ansible_user: a, ansible_group_priority: 5}, hosts: {x: }}
c: {vars: {ansible_user: c}, hosts: y}
""",
    "vault and unsafe": """
all:
  vars:
    ansible_user: root
    ansible_become_password: !vault |
      $ANSIBLE_VAULT;1.1;AES256
      6162
    motd: !unsafe "{{ x }}"
  children: {prefill: {hosts: {p0: }}}
""",
}


@pytest.mark.parametrize("text", AGAINST_ANSIBLE.values(), ids=AGAINST_ANSIBLE.keys())
def test_hosts_and_variables_are_those_that_ansible_reads(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(text, encoding="utf-8")
    inventory = InventoryManager(loader=DataLoader(), sources=[str(path)])
    variables = VariableManager(loader=DataLoader(), inventory=inventory)
    theirs = {}
    for each in inventory.get_hosts():
        found = variables.get_vars(host=each, include_hostvars=False)
        names = {group.name for group in each.get_groups()} - {"all", "ungrouped"}
        address = found.get("ansible_host") or each.name
        theirs[each.name] = (
            address,
            found.get("ansible_port", 22),
            found.get("ansible_user"),
            names,
        )
    ours = {
        each.name: (each.address, each.port, each.user, set(each.groups))
        for each in read_inventory(path).hosts
    }
    assert ours == theirs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("all: {hosts: [a, b]}", "hosts of group all is not a map"),
        ("all: {hosts: {'n[3:1]': }}", "names no hosts"),
        ("all: {hosts: {'n[01:3]': }}", "names no hosts"),
        ("all: {hosts: {'n[1:]': }}", "names no hosts"),
        ("all: {hosts: {a: {ansible_host: '{{ ip }}'}}}", "ansible_host is a template"),
        ("all: {hosts: {a: {ansible_user: '{{ me }}'}}}", "ansible_user is a template"),
        ("all: {hosts: {a: {moe: {address: '{{ ip }}'}}}}", "is a template"),
        ("all: {hosts: {a: {moe: {rdma_devices: ['{{ nic }}']}}}}", "is a template"),
        ("all: {hosts: {a: {ansible_connection: local}}}", "over SSH alone"),
        ("all: {hosts: {a: {<<: 5}}}", "takes a map"),
        ("all: {hosts: {a: {ansible_ssh_user: !vault x}}}", "ansible_ssh_user is encrypted"),
        ("all: {hosts: {a: {ansible_host: !vault x}}}", "ansible_host is encrypted"),
        ("all: {hosts: {a: {ansible_ssh_common_args: '-o \"x'}}}", "cannot be split into words"),
        ("all: {hosts: {a: {moe: {rdma_devices: mlx5_0}}}}", "not a list of names"),
        ("all: {hosts: {a: {moe: {interface: 5}}}}", "5 is not text"),
        ("a: {children: {b: }}\nb: {children: {a: }, hosts: {h: }}", "contain each other"),
    ],
)
def test_each_mistake_is_told_once(tmp_path: Path, text: str, says: str) -> None:
    (message,) = refused(tmp_path, text)
    assert says in message


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("d[0:3]:2222", ("d[0:3]", 2222)),
        ("10.0.0.1:22", ("10.0.0.1", 22)),
        ("fe80::1", ("fe80::1", None)),
        ("d[0:3]", ("d[0:3]", None)),
    ],
)
def test_a_port_behind_a_pattern(pattern: str, expected: tuple[str, int | None]) -> None:
    assert split_port(pattern) == expected


def test_what_is_declared_of_a_hosts_network(tmp_path: Path) -> None:
    text = """
all:
  vars: {moe: {mtu: 9000, nvlink_domain: rack-a}}
  children:
    decode:
      hosts:
        d0: {ansible_host: 10.0.0.2}
        d1: {ansible_host: 10.0.0.3, moe: {mtu: 4200, nvlink_domain: rack-b}}
    prefill: {hosts: {p0: {ansible_host: 10.0.0.1, moe: {mtu: null, nvlink_domain: null}}}}
"""
    inventory = read(tmp_path, text)
    declared = {one.name: (one.mtu, one.nvlink_domain) for one in inventory.hosts}
    assert declared == {"d0": (9000, "rack-a"), "d1": (4200, "rack-b"), "p0": (None, None)}


@pytest.mark.parametrize(
    ("moe", "words"),
    [
        ("{mtu: 900}", "900 is no MTU. Write a number of bytes from 1280 to 9978, such as 9000."),
        ("{mtu: '9000'}", "'9000' is no MTU."),
        ("{mtu: true}", "True is no MTU."),
        ("{nvlink_domain: 3}", "3 is not text."),
        ("{nvlink_domian: a}", "There is no key nvlink_domian under moe."),
    ],
)
def test_a_mistake_in_it_is_refused(moe: str, words: str, tmp_path: Path) -> None:
    (said,) = refused(tmp_path, f"all: {{hosts: {{a: {{moe: {moe}}}}}}}\n")
    assert words in said


def hosts_of(folder: Path, text: str) -> dict[str, InventoryHost]:
    path = folder / "hosts.yml"
    path.write_text(text)
    return {host.name: host for host in read_inventory(path).hosts}


@pytest.mark.parametrize(
    ("priority", "user"),
    [("'10'", "p"), ("10", "p"), ("' 7 '", "p"), ("1.9", "q"), ("-1", "q"), ("010", "p")],
)
def test_a_priority_is_the_number_that_ansible_makes_of_it(
    priority: str, user: str, tmp_path: Path
) -> None:
    hosts = hosts_of(
        tmp_path,
        f"""
all:
  children:
    p: {{vars: {{ansible_user: p, ansible_group_priority: {priority}}}, hosts: {{a: }}}}
    q: {{vars: {{ansible_user: q}}, hosts: {{a: }}}}
""",
    )
    assert hosts["a"].user == user


@pytest.mark.parametrize("priority", ["high", "'1.5'", "~", "[1]", ".nan", "'{{ x }}'"])
def test_a_priority_that_is_no_number_is_refused(priority: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match="is no priority"):
        hosts_of(tmp_path, f"p: {{vars: {{ansible_group_priority: {priority}}}, hosts: {{a: }}}}")


@pytest.mark.parametrize(
    "end", ["\\n", "\\r", " ", "\\t", "\\0", "\\x1b", "\\x85", "\\u2028", "\\u202e"]
)
@pytest.mark.parametrize(
    "text",
    [
        'all: {{hosts: {{a: {{ansible_host: "192.0.2.1{}"}}}}}}',
        'all: {{hosts: {{a: {{moe: {{address: "192.0.2.1{}"}}}}}}}}',
        'all: {{hosts: {{a: {{ansible_host: "2001:db8::1{}"}}}}}}',
        'all: {{hosts: {{"a{}": {{ansible_host: 192.0.2.1}}}}}}',
    ],
)
def test_an_address_or_a_name_with_a_character_that_nobody_sees_is_refused(
    text: str, end: str, tmp_path: Path
) -> None:
    with pytest.raises(ProblemsFound, match=r"is no address|is no name|zero byte|not YAML"):
        hosts_of(tmp_path, text.format(end))


@pytest.mark.parametrize("name", ["../up", "a/b", "a b"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match="is no name of a host"):
        hosts_of(tmp_path, f'all: {{hosts: {{"{name}": {{ansible_host: 192.0.2.1}}}}}}')


def test_what_stands_later_in_a_group_wins_whatever_the_section(tmp_path: Path) -> None:
    inner = "    children: {q: {hosts: {a: {ansible_user: inner}}}}\n"
    outer = "    hosts: {a: {ansible_user: outer}}\n"
    for text, user in ((inner + outer, "outer"), (outer + inner, "inner")):
        assert hosts_of(tmp_path, f"all:\n  children:\n   p:\n{text}")["a"].user == user


def test_a_port_behind_a_name_holds_where_the_host_is_new(tmp_path: Path) -> None:
    first, again = 'p: {hosts: {"a:2222": }}\n', 'q: {hosts: {"a:2223": }}\n'
    assert hosts_of(tmp_path, first + again)["a"].port == 2222
    assert hosts_of(tmp_path, again + first)["a"].port == 2223


def test_a_host_of_a_group_is_not_ungrouped_whatever_the_file_says(tmp_path: Path) -> None:
    text = "ungrouped: {vars: {ansible_user: nobody}, hosts: {a: , b: }}\np: {hosts: {a: }}\n"
    hosts = hosts_of(tmp_path, text)
    assert (hosts["a"].user, hosts["b"].user) == (None, "nobody")


def test_a_map_that_says_nothing_hides_none_of_those_of_all(tmp_path: Path) -> None:
    text = """
all: {vars: {moe: {interface: ib0}}}
p: {vars: {moe: }, hosts: {a: }}
q: {vars: {moe: {mtu: 9000}}, hosts: {a: }}
"""
    host = hosts_of(tmp_path, text)["a"]
    assert (host.interface, host.mtu) == ("ib0", 9000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("all: {hosts: {a: 192.0.2.1}}", "What stands behind a is no map"),
        ("p: {hosts: {p: {ansible_user: x}, q: }}", "p is a host and a group"),
        ("p: {hosts: {a: }}\nall: {hosts: {p: }}", "p is a host and a group"),
        ("all: {hosts: {all: {ansible_user: x}}}", "all is a host and a group"),
    ],
)
def test_what_ansible_refuses_or_mixes_up_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemsFound, match=says):
        hosts_of(tmp_path, text)


def test_a_host_that_is_alone_in_a_group_of_its_name_is_both() -> None:
    hosts = parse_inventory(
        "all: {children: {router: {hosts: {router: {ansible_host: 192.0.2.9}}}}}",
        "hosts.yml",
    ).hosts
    assert [(host.name, host.address) for host in hosts] == [("router", "192.0.2.9")]
