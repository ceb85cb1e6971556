"""Access control services of PCIe bridges: the bits in their configuration space, and nothing beside them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from infra.agent.kinds.pcie_acs import find_control
from tests.agent.stubborn_host import StubbornHost

ON = 0x001D  # source validation, request and completion redirect, upstream forwarding
ERRORS, ACS = 0x0001, 0x000D


def space(bits: int | None, *, kind: bytes = b"\x04\x06", size: int = 4096) -> bytes:
    """A configuration space whose second extended capability is access control; None for none."""
    config = bytearray(size)
    config[0x0A:0x0C] = kind
    if size > 0x100:
        struct.pack_into(
            "<I", config, 0x100, ERRORS | 1 << 16 | (0x148 << 20 if bits is not None else 0)
        )
    if bits is not None:
        struct.pack_into("<IHH", config, 0x148, ACS | 1 << 16, 0x005F, bits)
    return bytes(config)


def path_of(name: str) -> str:
    return f"/sys/bus/pci/devices/{name}/config"


def item(want: str | None, **keys: object) -> list[dict[str, object]]:
    return [{"id": "pcie.acs", "group": "tuning", "kind": "pcie-acs", "want": want, **keys}]


@pytest.fixture
def bridges(host: StubbornHost) -> StubbornHost:
    host.put(path_of("0000:00:01.0"), space(ON))
    host.put(path_of("0000:01:00.0"), space(0))
    host.put(path_of("0000:02:00.0"), space(None))
    host.put(path_of("0000:03:00.0"), space(ON, kind=b"\x00\x02"))  # a network adapter: no bridge
    host.put(path_of("0000:04:00.0"), space(None, size=256))  # what others than root are shown
    return host


def test_every_bridge_is_switched_off_and_comes_back(bridges: StubbornHost) -> None:
    found = bridges.contents()
    row = bridges.state("check", item("0x0000"))["pcie.acs"]
    assert (row["state"], row["before"], row["wanted"]) == (
        "changed",
        "0x0000 ×1, 0x001d ×1",
        "0x0000",
    )
    assert bridges.state("apply", item("0x0000"))["pcie.acs"]["after"] == "0x0000"
    before, after = (
        found[path_of("0000:00:01.0")],
        Path(bridges.path(path_of("0000:00:01.0"))).read_bytes(),
    )
    assert [i for i in range(4096) if before[i] != after[i]] == [0x14E]
    assert bridges.state("apply", item("0x0000"))["pcie.acs"]["state"] == "ok"
    assert bridges.state("rollback", item("0x0000"))["pcie.acs"]["state"] == "changed"
    left = bridges.contents("/run", "/var", "/etc")
    assert left == {
        name: text for name, text in found.items() if not name.startswith(("/run", "/var"))
    }


def test_what_another_has_changed_since_is_left(bridges: StubbornHost) -> None:
    bridges.state("apply", item("0x0000"))
    bridges.put(path_of("0000:00:01.0"), space(0x0001))
    row = bridges.state("rollback", item("0x0000"))["pcie.acs"]
    assert (row["state"], "0x0001" in str(row["why"])) == ("blocked", True)


def test_one_that_may_not_be_written_is_blocked(
    bridges: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under kernel lockdown, where configuration space can be read alone."""

    def refuse(absolute: str, offset: int, content: bytes) -> None:
        raise PermissionError(1, "Operation not permitted", absolute)

    monkeypatch.setattr(bridges, "write_at", refuse)
    row = bridges.state("apply", item("0x0000"))["pcie.acs"]
    assert (row["state"], "Operation not permitted (EPERM)" in str(row["why"])) == ("blocked", True)


def test_one_that_keeps_its_bits_is_blocked(
    bridges: StubbornHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "write_at", lambda *_: None)
    row = bridges.state("apply", item("0x0000"))["pcie.acs"]
    assert (row["state"], "kept" in str(row["why"])) == ("blocked", True)


def test_it_is_read_and_left_alone(bridges: StubbornHost) -> None:
    row = bridges.state("apply", item(None, why="the hypervisor's"))["pcie.acs"]
    assert (row["state"], row["wanted"], row["why"]) == ("ok", None, "the hypervisor's")


def test_a_host_without_bridges_is_not_applicable(host: StubbornHost) -> None:
    row = host.state("check", item("0x0000", tolerate_absent=True))["pcie.acs"]
    assert row["state"] == "not_applicable"


@pytest.mark.parametrize(
    "config",
    [b"", bytes(64), space(None), space(ON)[:0x14E], b"\xff" * 4096],
    ids=["empty", "short", "none", "cut", "gone"],
)
def test_a_space_without_it_has_none(config: bytes) -> None:
    assert find_control(config) is None


def test_a_list_that_runs_in_a_circle_ends() -> None:
    config = bytearray(space(None))
    struct.pack_into("<I", config, 0x100, ERRORS | 0x100 << 20)
    assert find_control(bytes(config)) is None
