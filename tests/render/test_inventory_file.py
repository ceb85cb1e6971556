from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.errors import StackError
from infra.inventory.ansible_file import read_inventory
from infra.render.inventory_file import inventory_from_outputs

PROXY = "aws ssm start-session --target i-1 --parameters portNumber=%p"


def host(name: str, *roles: str, proxy: str | None = None) -> dict[str, object]:
    number = int(name[-1]) + 1
    return {
        "name": name,
        "roles": list(roles),
        "address": f"10.64.0.{number}",
        "instance_id": f"i-{number}",
        "user": "ec2-user",
        "proxy_command": proxy,
        "host_key": None,
        "interface": "eth0",
        "rdma_devices": [],
    }


def outputs(*hosts: dict[str, object]) -> dict[str, object]:
    return {"inventory": {"schema": 1, "stack": "mine", "hosts": list(hosts)}}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    exported = outputs(host("prefill-0", "prefill"), host("decode-1", "decode", proxy=PROXY))
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump(inventory_from_outputs(exported), sort_keys=False))
    first, second = read_inventory(path).hosts
    assert (first.name, first.groups, first.address) == ("prefill-0", ("prefill",), "10.64.0.1")
    assert (first.user, first.interface, first.instance_id) == ("ec2-user", "eth0", "i-1")
    assert (second.address, second.service_address) == ("i-2", "10.64.0.2")
    assert second.ssh_arguments == ("-o", f"ProxyCommand={PROXY}")


def test_a_host_with_two_roles_is_in_both_groups_with_its_variables_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(
        yaml.safe_dump(inventory_from_outputs(outputs(host("host-0", "prefill", "decode"))))
    )
    (only,) = read_inventory(path).hosts
    assert set(only.groups) == {"prefill", "decode"}
    assert only.service_address == "10.64.0.1"


def test_further_ssh_arguments_come_before_the_proxy() -> None:
    document = inventory_from_outputs(
        outputs(host("decode-0", "decode", proxy="dial %h")), ssh_arguments=("-F", "/tmp/my config")
    )
    variables = document["all"]["children"]["decode"]["hosts"]["decode-0"]  # type: ignore[index]
    assert variables["ansible_ssh_common_args"] == "-F '/tmp/my config' -o 'ProxyCommand=dial %h'"


@pytest.mark.parametrize("exported", [{}, {"inventory": "text"}, {"inventory": {"schema": 2}}])
def test_outputs_without_our_inventory_are_refused(exported: dict[str, object]) -> None:
    with pytest.raises(StackError, match="pulumi up --stack"):
        inventory_from_outputs(exported)
