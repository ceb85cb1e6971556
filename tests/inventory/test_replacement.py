from __future__ import annotations

import pytest

from infra.errors import StackError
from infra.inventory.replacement import replace_machine

PLAIN = """\
# the rack in row 3
all:
  vars: {ansible_user: ubuntu}
  children:
    unified:
      hosts:
        unified-0:
          ansible_host: 192.0.2.1
        unified-1:  # keeps failing
          ansible_host: 192.0.2.2  # port 7
          moe:
            interface: ens1  # slow
    spare:
      hosts:
        spare-0:
          ansible_host: 192.0.2.9
          moe:
            interface: ens9
            host_key: ssh-ed25519 AAAA
"""


def test_two_hosts_exchange_their_variables_and_every_comment_stays() -> None:
    edit = replace_machine(PLAIN, "x.yml", "unified-1", "spare-0")
    assert edit.text == PLAIN.replace(
        "          ansible_host: 192.0.2.2  # port 7\n          moe:\n            interface: ens1  # slow\n",
        "          ansible_host: 192.0.2.9\n          moe:\n            interface: ens9\n"
        "            host_key: ssh-ed25519 AAAA  # slow\n",
    ).replace(
        "spare-0:\n          ansible_host: 192.0.2.9\n          moe:\n            interface: ens9\n"
        "            host_key: ssh-ed25519 AAAA\n",
        "spare-0:\n          ansible_host: 192.0.2.2  # port 7\n          moe:\n            interface: ens1\n",
    )
    host = edit.inventory.host("unified-1")
    assert host is not None
    assert (host.address, host.interface, host.host_key) == (
        "192.0.2.9",
        "ens9",
        "ssh-ed25519 AAAA",
    )
    assert edit.gone.address == "192.0.2.2"
    assert [h.name for h in edit.inventory.hosts] == ["unified-0", "unified-1", "spare-0"]


def test_a_host_may_be_named_by_its_address() -> None:
    by_address = replace_machine(PLAIN, "x.yml", "unified-1", "192.0.2.9")
    assert by_address.text == replace_machine(PLAIN, "x.yml", "unified-1", "spare-0").text


def test_an_address_that_is_not_listed_takes_the_place_of_the_old_one() -> None:
    edit = replace_machine(PLAIN, "x.yml", "unified-0", "192.0.2.77")
    assert edit.text == PLAIN.replace("ansible_host: 192.0.2.1\n", "ansible_host: 192.0.2.77\n")
    assert edit.words == "unified-0 is 192.0.2.77 now"


def test_flow_style_is_exchanged_too() -> None:
    text = """\
all:
  children:
    unified:
      hosts:
        a: {ansible_host: 192.0.2.1}  # first
        b: {ansible_host: 192.0.2.2, ansible_port: 2222}
"""
    edit = replace_machine(text, "x.yml", "b", "a")
    assert "a: {ansible_host: 192.0.2.2, ansible_port: 2222}  # first" in edit.text
    assert "b: {ansible_host: 192.0.2.1}" in edit.text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("nobody", "spare-0", "There is no host nobody"),
        ("unified-0", "unified-0", "is unified-0 itself"),
        ("unified-0", "192.0.2.1", "is unified-0 itself"),
        ("unified-1", "192.0.2.77", "it has moe of its own"),
        ("unified-0", "no address", "cannot stand for unified-0: unified-0: 'no address' is no"),
    ],
)
def test_what_cannot_be_edited_is_said_with_what_to_write(old: str, new: str, words: str) -> None:
    with pytest.raises(StackError, match=words):
        replace_machine(PLAIN, "x.yml", old, new)


def test_a_range_and_a_host_without_variables_are_left_to_the_operator() -> None:
    text = "all: {children: {unified: {hosts: {'10.0.0.[1:2]': , 10.0.0.8: }}}}"
    with pytest.raises(StackError, match="one of a range") as caught:
        replace_machine(text, "x.yml", "10.0.0.1", "10.0.0.9")
    assert "under 10.0.0.1 and keep that name" in caught.value.fix
    with pytest.raises(StackError, match="no variables of its own"):
        replace_machine(text, "x.yml", "10.0.0.8", "10.0.0.9")


def test_variables_of_groups_that_would_change_the_machine_are_noticed() -> None:
    text = PLAIN.replace("    spare:\n", "    spare:\n      vars: {ansible_user: root}\n")
    with pytest.raises(StackError, match="groups give them different variables"):
        replace_machine(text, "x.yml", "unified-1", "spare-0")
