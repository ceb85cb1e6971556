"""Packages held from upgrades, against a dpkg that keeps its states in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.agent.kinds.package_holds import parse_holds
from tests.agent.stubborn_host import StubbornHost

ITEM: list[dict[str, object]] = [
    {
        "id": "packages.hold", "group": "tuning", "kind": "package-hold", "want": "held",
        "target": "nvidia-driver-* linux-image-*", "tolerate_absent": True,
    }
]  # fmt: skip
APT_MARK = """\
case "$(cat {folder}/fault 2>/dev/null)" in refuses) echo "E: Permission denied" >&2; exit 100;; sticks) exit 0;; esac
[ $1 = hold ] && word=hi || word=ii
sed -i "s/^.. \\( *\\)$3\\$/$word \\1$3/" {folder}/packages
"""
STATES = "ii nvidia-driver-580\nhi linux-image-6.8\nrc nvidia-driver-550\nun nvidia-driver-570\n"


@pytest.fixture
def folder(stand_in: Callable[[str, str], None], tmp_path: Path) -> Path:
    (tmp_path / "packages").write_text(STATES)
    stand_in("dpkg-query", f"cat {tmp_path}/packages; exit 1")  # a pattern that matches nothing: 1
    stand_in("apt-mark", APT_MARK.format(folder=tmp_path))
    return tmp_path


def test_what_is_installed_is_held_and_let_go_again(host: StubbornHost, folder: Path) -> None:
    row = host.state("check", ITEM)["packages.hold"]
    assert (row["state"], row["before"], row["wanted"]) == ("changed", "1 of 2 held", "2 of 2 held")
    assert host.state("apply", ITEM)["packages.hold"]["state"] == "changed"
    assert (
        (folder / "packages").read_text().startswith("hi nvidia-driver-580\nhi linux-image-6.8\nrc")
    )
    assert host.state("apply", ITEM)["packages.hold"]["state"] == "ok"
    assert host.state("rollback", ITEM)["packages.hold"]["state"] == "changed"
    assert (folder / "packages").read_text() == STATES


@pytest.mark.parametrize(("fault", "said"), [("refuses", "Permission denied"), ("sticks", "kept")])
def test_one_that_refuses_or_forgets_is_blocked(
    host: StubbornHost, folder: Path, fault: str, said: str
) -> None:
    (folder / "fault").write_text(fault)
    row = host.state("apply", ITEM)["packages.hold"]
    assert (row["state"], said in str(row["why"])) == ("blocked", True)
    assert (folder / "packages").read_text() == STATES


def test_none_installed_and_no_dpkg_are_not_applicable(
    host: StubbornHost, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "packages").write_text("")
    assert host.state("check", ITEM)["packages.hold"]["why"] == "no such package is installed"
    monkeypatch.setenv("PATH", "/nowhere")
    row = host.state("check", ITEM)["packages.hold"]
    assert (row["state"], "dnf versionlock" in str(row["why"])) == ("not_applicable", True)


def test_garbage_names_no_package() -> None:
    assert parse_holds("") == {}
    assert parse_holds("dpkg-query: error\n\x00 \n") == {}
