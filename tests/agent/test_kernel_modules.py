"""Kernel modules and their options, against a modprobe that keeps its table in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.stubborn_host import StubbornHost

LOAD_FILE = "/etc/modules-load.d/60-moe-infra-gdrdrv.conf"
OPTIONS_FILE = "/etc/modprobe.d/60-moe-infra-imex-channel.conf"
PARAMETERS = "/proc/driver/nvidia/params"
MODPROBE = """\
[ "$1" = --dry-run ] && {{ [ $4 = gdrdrv ] || [ $4 = nvidia ]; exit $?; }}
case "$(cat {folder}/fault 2>/dev/null)" in
refuses) echo "modprobe: ERROR: could not insert 'gdrdrv': Operation not permitted" >&2; exit 1;;
sticks) exit 0;; esac
echo "$2 28672 0 - Live 0x0 (OE)" >> {table}
"""
RMMOD = """\
[ -e {folder}/busy ] && {{ echo "rmmod: ERROR: Module $2 is in use" >&2; exit 1; }}
grep -v "^$2 " {table} > {folder}/new; cat {folder}/new > {table}
"""
MODULE: list[dict[str, object]] = [
    {"id": "module.gdrdrv", "group": "tuning", "kind": "kernel-module", "target": "gdrdrv", "want": "loaded"}
]  # fmt: skip
OPTIONS: list[dict[str, object]] = [
    {
        "id": "imex.channel", "group": "tuning", "kind": "module-options", "target": "nvidia",
        "want": "NVreg_CreateImexChannel0=1", "needs": "reboot",
    }
]  # fmt: skip


@pytest.fixture
def folder(host: StubbornHost, stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    words = {
        "folder": tmp_path,
        "table": host.put("/proc/modules", "ib_core 450560 3 rdma, Live 0x0\n"),
    }
    stand_in("modprobe", MODPROBE.format(**words))
    stand_in("rmmod", RMMOD.format(**words))
    stand_in("update-initramfs", f'echo "$*" >> {tmp_path}/initramfs')
    for name in ("etc/modules-load.d", "etc/modprobe.d"):
        (Path(host.root) / name).mkdir(parents=True)
    return tmp_path


def module(host: StubbornHost, mode: str) -> dict[str, object]:
    return host.state(mode, MODULE)["module.gdrdrv"]


def test_it_is_loaded_now_and_at_every_boot_and_taken_back(
    host: StubbornHost, folder: Path
) -> None:
    found = host.contents()
    assert module(host, "check")["state"] == "changed"
    assert host.contents() == found
    assert module(host, "apply")["after"] == "loaded"
    assert Path(host.path(LOAD_FILE)).read_text().splitlines()[-1] == "gdrdrv"
    assert module(host, "apply")["state"] == "ok"
    assert module(host, "rollback")["state"] == "changed"
    left = host.contents("/run", "/var")
    assert left == found


def test_after_a_reboot_it_is_so_by_its_file(host: StubbornHost, folder: Path) -> None:
    module(host, "apply")
    host.put("/proc/modules", "")
    assert module(host, "check")["state"] == "changed"
    host.put("/proc/modules", "gdrdrv 28672 0 - Live 0x0\n")
    assert module(host, "check")["state"] == "ok"


@pytest.mark.parametrize("place", ["table", "builtin"])
def test_what_somebody_else_loads_is_left_to_them(
    host: StubbornHost, folder: Path, place: str
) -> None:
    if place == "table":
        host.put("/proc/modules", "gdrdrv 28672 0 - Live 0x0\n")
    else:
        host.put("/sys/module/gdrdrv/parameters/x", "1")
    row = module(host, "apply")
    assert (row["state"], "somebody else" in str(row["why"])) == ("ok", True)
    assert not Path(host.path(LOAD_FILE)).exists()


@pytest.mark.parametrize(
    ("fault", "said"), [("refuses", "not permitted"), ("sticks", "kept not loaded")]
)
def test_one_that_refuses_or_does_not_come_is_blocked(
    host: StubbornHost, folder: Path, fault: str, said: str
) -> None:
    (folder / "fault").write_text(fault)
    row = module(host, "apply")
    assert row["state"] == "blocked"
    assert said in str(row["why"])
    assert module(host, "rollback")["state"] == "changed"
    assert not Path(host.path(LOAD_FILE)).exists()


def test_one_in_use_is_not_torn_out(host: StubbornHost, folder: Path) -> None:
    module(host, "apply")
    (folder / "busy").touch()
    row = module(host, "rollback")
    assert (row["state"], "is in use" in str(row["why"])) == ("failed", True)
    (folder / "busy").unlink()
    assert module(host, "rollback")["state"] == "changed"


def test_a_kernel_without_it_is_not_applicable(host: StubbornHost, folder: Path) -> None:
    lacking = [{**MODULE[0], "target": "nvidia_peermem", "tolerate_absent": True}]
    row = host.state("check", lacking)["module.gdrdrv"]
    assert (row["state"], row["why"]) == (
        "not_applicable",
        "this kernel has no module nvidia_peermem",
    )


def options(host: StubbornHost, mode: str) -> dict[str, object]:
    return host.state(mode, OPTIONS, allow=["reboot"])["imex.channel"]


def test_options_are_written_for_the_next_boot_and_taken_back(
    host: StubbornHost, folder: Path
) -> None:
    host.put(PARAMETERS, "ResmanDebugLevel: 4294967295\nCreateImexChannel0: 0\n")
    found = host.contents()
    waits = host.state("check", OPTIONS)["imex.channel"]
    assert (waits["state"], waits["needs"]) == ("blocked", "reboot")
    assert "must hold `options nvidia NVreg_CreateImexChannel0=1`" in str(waits["why"])
    assert options(host, "apply")["state"] == "changed"
    assert (
        Path(host.path(OPTIONS_FILE)).read_text().splitlines()[-1]
        == "options nvidia NVreg_CreateImexChannel0=1"
    )
    again = options(host, "check")
    assert (again["state"], "reboot this host" in str(again["why"])) == ("blocked", True)
    host.put(PARAMETERS, "CreateImexChannel0: 1\n")
    assert options(host, "check")["state"] == "ok"
    assert options(host, "rollback")["state"] == "changed"
    host.put(PARAMETERS, "ResmanDebugLevel: 4294967295\nCreateImexChannel0: 0\n")
    assert host.contents("/run", "/var") == found
    assert (folder / "initramfs").read_text() == "-u -k all\n" * 2


def test_what_runs_so_already_needs_no_file(host: StubbornHost, folder: Path) -> None:
    host.put("/sys/module/nvidia/parameters/NVreg_CreateImexChannel0", "1\n")
    assert options(host, "apply")["state"] == "ok"
    assert not Path(host.path(OPTIONS_FILE)).exists()


def test_a_module_that_does_not_tell_is_believed_by_its_file(
    host: StubbornHost, folder: Path
) -> None:
    assert options(host, "apply")["state"] == "changed"
    row = options(host, "check")
    assert (row["state"], "does not tell NVreg_CreateImexChannel0" in str(row["why"])) == (
        "ok",
        True,
    )


def test_an_initramfs_that_cannot_be_rebuilt_is_blocked(
    host: StubbornHost, folder: Path, stand_in: Callable[[str, str], None]
) -> None:
    stand_in("update-initramfs", 'echo "No space left on device" >&2; exit 1')
    row = options(host, "apply")
    assert (row["state"], "No space left" in str(row["why"])) == ("blocked", True)


def test_a_host_without_the_driver_is_not_applicable(
    host: StubbornHost, folder: Path, stand_in: Callable[[str, str], None]
) -> None:
    stand_in("modprobe", "exit 1")
    row = host.state("check", [{**OPTIONS[0], "tolerate_absent": True}])["imex.channel"]
    assert row["state"] == "not_applicable"


BUSY = 'echo "$*" >> {0}/initramfs; echo "No space left on device" >&2; exit 1'
DONE = 'echo "$*" >> {0}/initramfs'


def test_a_rebuild_that_failed_is_done_again_by_the_next_run(
    host: StubbornHost, folder: Path, stand_in: Callable[[str, str], None]
) -> None:
    host.put(PARAMETERS, "CreateImexChannel0: 0\n")
    found = host.contents()
    stand_in("update-initramfs", BUSY.format(folder))
    for _ in range(2):
        row = options(host, "apply")
        assert (row["state"], "No space left" in str(row["why"])) == ("blocked", True)
    assert options(host, "check")["state"] == "changed"
    host.put(PARAMETERS, "CreateImexChannel0: 1\n")
    assert options(host, "check")["state"] == "changed", "the copy that boots is not known"
    host.put(PARAMETERS, "CreateImexChannel0: 0\n")
    stand_in("update-initramfs", DONE.format(folder))
    assert options(host, "apply")["state"] == "changed"
    again = options(host, "apply")
    assert (again["state"], "reboot this host" in str(again["why"])) == ("blocked", True)
    stand_in("update-initramfs", BUSY.format(folder))
    for _ in range(2):
        row = options(host, "rollback")
        assert (row["state"], "No space left" in str(row["why"])) == ("failed", True)
    stand_in("update-initramfs", DONE.format(folder))
    assert options(host, "rollback")["state"] == "changed"
    assert host.contents("/run", "/var") == found
    assert not Path(host.path("/var/lib/moe-infra")).exists()


def test_an_agent_that_ends_during_the_rebuild_leaves_it_to_the_next(
    host: StubbornHost, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.put(PARAMETERS, "CreateImexChannel0: 0\n")
    run = host.run

    def dies(argv: list[str], *rest: object, **keys: object) -> object:
        if argv[0] == "update-initramfs":
            raise KeyboardInterrupt
        return run(argv, *rest, **keys)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(host, "run", dies)
        with pytest.raises(KeyboardInterrupt):
            options(host, "apply")
    assert Path(host.path(OPTIONS_FILE)).exists()
    assert not (folder / "initramfs").exists()
    assert options(host, "apply")["state"] == "changed"
    assert (folder / "initramfs").read_text() == "-u -k all\n"


def test_a_file_that_cannot_be_written_owes_nothing(host: StubbornHost, folder: Path) -> None:
    host.put(PARAMETERS, "CreateImexChannel0: 0\n")
    place = Path(host.path(OPTIONS_FILE)).parent
    place.rmdir()
    place.write_text("in the way")
    assert options(host, "apply")["state"] == "blocked"
    place.unlink()
    place.mkdir()
    assert options(host, "rollback")["state"] == "ok"
    assert not (folder / "initramfs").exists()


def test_where_nothing_rebuilds_a_file_that_goes_needs_nothing(
    host: StubbornHost, folder: Path, stand_in: Callable[[str, str], None]
) -> None:
    host.put(PARAMETERS, "CreateImexChannel0: 0\n")
    run = host.run

    def lacks(argv: list[str], *rest: object, **keys: object) -> object:
        known = argv[0] not in ("update-initramfs", "dracut")
        return run(argv if known else ["/nowhere/tool"], *rest, **keys)  # type: ignore[arg-type]

    host.run = lacks  # type: ignore[assignment,method-assign]
    row = options(host, "apply")
    assert (row["state"], "by hand" in str(row["why"])) == ("blocked", True)
    assert options(host, "rollback")["state"] == "changed"
    assert not Path(host.path("/var/lib/moe-infra")).exists()
