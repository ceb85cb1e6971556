"""Boot arguments and the IMEX node list: what a failed program left undone is done by the next run, both ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

GRUB = "/etc/default/grub.d/60-moe-infra.cfg"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
ARGUMENTS: dict[str, object] = {
    "id": "kernel.cmdline", "kind": "kernel-arguments", "want": "iommu=pt", "needs": "reboot",
}  # fmt: skip
IMEX: dict[str, object] = {
    "id": "imex.nodes", "kind": "imex-nodes", "want": "192.0.2.1,192.0.2.2", "needs": "drain",
}  # fmt: skip
TOOL = 'echo "$*" >> {0}/log; [ ! -e {0}/fails ] || {{ echo "it is broken" >&2; exit 1; }}'


@pytest.fixture
def tools(host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    """A folder with what the tools were asked (`log`); with `fails` in it they do."""
    stand_in("update-grub", TOOL.format(tmp_path))
    restart = f'[ "$1" = try-restart ] || exit 0\n{TOOL.format(tmp_path)}'
    stand_in("systemctl", restart)
    host.put("/run/systemd/system/x", "")
    host.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz ro\n")
    host.put("/etc/default/grub.d/50-image.cfg", "#\n")
    host.put(NODES, "192.0.2.1\n")
    return tmp_path


def ask(host: StubbornHost, mode: str, item: dict[str, object]) -> dict[str, object]:
    allow = ["drain", "reboot"]
    return host.state(mode, [{"group": "tuning", **item}], allow=allow)[str(item["id"])]


@pytest.mark.parametrize(("item", "path"), [(ARGUMENTS, GRUB), (IMEX, NODES)])
def test_a_program_that_failed_is_run_again_until_it_succeeds(
    host: StubbornHost, tools: Path, item: dict[str, object], path: str
) -> None:
    found = host.contents()
    (tools / "fails").touch()
    for _ in range(2):
        row = ask(host, "apply", item)
        assert (row["state"], "it is broken" in str(row["why"])) == ("blocked", True)
    assert ask(host, "check", item)["state"] == "changed"
    (tools / "fails").unlink()
    assert ask(host, "apply", item)["state"] == "changed"
    runs = (tools / "log").read_text()
    ask(host, "apply", item)
    assert (tools / "log").read_text() == runs, "it was run once more"
    (tools / "fails").touch()
    for _ in range(2):
        row = ask(host, "rollback", item)
        assert (row["state"], "it is broken" in str(row["why"])) == ("failed", True)
    assert Path(host.path(path)).exists() == (path in found)
    (tools / "fails").unlink()
    assert ask(host, "rollback", item)["state"] == "changed"
    assert host.contents("/run/moe-infra", "/var") == {
        name: content for name, content in found.items() if not name.startswith("/var")
    }
    assert not Path(host.path("/var/lib/moe-infra")).exists()


def test_boot_arguments_that_run_already_are_still_told_to_the_boot_loader(
    host: StubbornHost, tools: Path
) -> None:
    (tools / "fails").touch()
    ask(host, "apply", ARGUMENTS)
    host.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz ro iommu=pt\n")
    (tools / "fails").unlink()
    assert ask(host, "check", ARGUMENTS)["state"] == "changed"
    assert ask(host, "apply", ARGUMENTS)["state"] == "changed"
    assert ask(host, "check", ARGUMENTS)["state"] == "ok"


def test_a_node_list_that_the_daemon_has_not_read_waits_for_a_drain(
    host: StubbornHost, tools: Path
) -> None:
    (tools / "fails").touch()
    ask(host, "apply", IMEX)
    row = host.state("check", [{"group": "tuning", **IMEX}])["imex.nodes"]
    assert (row["state"], row["needs"]) == ("blocked", "drain")
    assert "has not been restarted since" in str(row["why"])
