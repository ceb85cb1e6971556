"""Files as items: written whole, taken back byte for byte, never half."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from infra.agent import way
from infra.agent.files import make_folders
from tests.agent.stubborn_host import StubbornHost
from tests.needed import need_root

ENV = "/etc/moe-infra/s/engine-0/environment"
UNIT = "/etc/systemd/system/moe-s-engine@.service"


def file(target: str = ENV, **keys: Any) -> dict[str, object]:
    return {"id": f"file:{target}", "group": "files", "kind": "file", "target": target, **keys}


def test_a_new_file_gets_its_content_mode_and_folders(host: StubbornHost) -> None:
    rows = host.state("apply", [file(content="A=1\n", mode="0640")])
    row = rows[f"file:{ENV}"]
    assert (row["state"], row["before"]) == ("changed", None)
    place = Path(host.path(ENV))
    assert place.read_text() == "A=1\n"
    assert place.stat().st_mode & 0o7777 == 0o640
    assert place.parent.stat().st_mode & 0o7777 == 0o755


def test_an_empty_file_is_a_state_of_its_own(host: StubbornHost) -> None:
    assert host.state("apply", [file(content="")])[f"file:{ENV}"]["state"] == "changed"
    assert host.state("apply", [file(content="")])[f"file:{ENV}"]["state"] == "ok"


def test_rollback_leaves_nothing_of_a_new_file(host: StubbornHost) -> None:
    host.put("/etc/hostname", "h\n")
    before = host.contents("/run")
    host.state("apply", [file(content="A=1\n")])
    rows = host.state("rollback", [file()])
    assert rows[f"file:{ENV}"]["state"] == "changed"
    assert {k for k in host.contents("/run") if k.startswith("/etc")} == {
        k for k in before if k.startswith("/etc")
    }


def test_rollback_brings_back_bytes_and_mode(host: StubbornHost) -> None:
    place = host.put(ENV, b"\xff\x00old", mode=0o600)
    host.state("apply", [file(content="new\n")])
    host.state("apply", [file(content="newer\n")])
    host.state("rollback", [file()])
    assert place.read_bytes() == b"\xff\x00old"
    assert place.stat().st_mode & 0o7777 == 0o600


def test_rollback_leaves_what_somebody_else_has_changed_and_says_so(host: StubbornHost) -> None:
    host.put(ENV, "old\n")
    host.state("apply", [file(content="ours\n")])
    host.put(ENV, "theirs\n")
    row = host.state("rollback", [file()])[f"file:{ENV}"]
    assert row["state"] == "blocked"
    assert "something else has changed" in str(row["why"])
    assert Path(host.path(ENV)).read_text() == "theirs\n"
    # and it is said again until somebody decides
    assert host.state("rollback", [file()])[f"file:{ENV}"]["state"] == "blocked"


def test_a_wrong_mode_alone_is_a_difference(host: StubbornHost) -> None:
    host.put(ENV, "A=1\n", mode=0o600)
    row = host.state("apply", [file(content="A=1\n", mode="0644")])[f"file:{ENV}"]
    assert row["state"] == "changed"
    assert "mode 0600" in str(row["before"])


def test_a_link_is_replaced_and_brought_back(host: StubbornHost) -> None:
    place = host.put(ENV, "")
    place.unlink()
    place.symlink_to("/nowhere")
    host.state("apply", [file(content="A=1\n")])
    assert not place.is_symlink()
    host.state("rollback", [file()])
    assert str(place.readlink()) == "/nowhere"


def test_a_folder_in_the_way_fails_and_stays(host: StubbornHost) -> None:
    host.put(f"{ENV}/inside", "x")
    row = host.state("apply", [file(content="A=1\n")])[f"file:{ENV}"]
    assert (row["state"], row["why"]) == ("failed", f"{ENV} is no regular file")


def test_a_file_where_a_folder_should_be_fails_with_the_reason(host: StubbornHost) -> None:
    host.put("/etc/moe-infra/s", "not a folder")
    row = host.state("apply", [file(content="A=1\n")])[f"file:{ENV}"]
    assert row["state"] == "failed"
    assert "(ENOTDIR)" in str(row["why"]) or "(EEXIST)" in str(row["why"])


def test_no_temporary_file_is_left(host: StubbornHost) -> None:
    host.state("apply", [file(content="A=1\n")])
    assert [place.name for place in Path(host.path(ENV)).parent.iterdir()] == ["environment"]


def test_the_difference_is_shown_when_asked_for(host: StubbornHost) -> None:
    host.put(ENV, "A=1\nB=2\n")
    wanted = [file(content="A=1\nB=3\n")]
    assert host.state("check", wanted)[f"file:{ENV}"]["diff"] is None
    shown = str(host.state("check", wanted, diff=True)[f"file:{ENV}"]["diff"])
    assert "-B=2\n+B=3" in shown


def test_a_difference_is_short_where_lines_are_alike_and_whole_in_what_differs(
    host: StubbornHost,
) -> None:
    answer = "http-request return " + "x" * 300
    rule = "acl allowed path -m str " + " ".join(f"/v1/path-{n}" for n in range(40))
    addresses = ", ".join(f"192.0.2.{n}" for n in range(200))
    before = [answer, answer, rule + " /old " + rule, answer, answer]
    after = [answer, answer, rule + " /new/long " + rule, answer, f"added {addresses}", answer]
    host.put(ENV, "\n".join(before) + "\n")
    wanted = [file(content="\n".join(after) + "\n")]
    shown = str(host.state("check", wanted, diff=True)[f"file:{ENV}"]["diff"])
    changed = [line for line in shown.splitlines()[2:] if line[0] in "+-"]
    assert [line[0] for line in changed] == ["-", "+", "+"]
    assert " /old " in changed[0]
    assert " /new/long " in changed[1]
    assert max(map(len, changed[:2])) < 150
    assert changed[2] == f"+added {addresses}"
    alike = [line for line in shown.splitlines() if line.startswith(" ")]
    assert max(map(len, alike)) < 100


def test_a_secret_comes_from_the_request_and_is_never_shown(host: StubbornHost) -> None:
    items = [file(secret="hf_token")]
    report = host.ask(
        "state", mode="apply", stack="s", items=items, diff=True, secrets={"hf_token": "hf_very"}
    )
    assert Path(host.path(ENV)).read_text() == "hf_very"
    assert Path(host.path(ENV)).stat().st_mode & 0o7777 == 0o600
    assert "hf_very" not in str(report)
    record = Path(host.path("/var/lib/moe-infra/rollback/s/record.json"))
    assert "hf_very" not in record.read_text()
    assert record.stat().st_mode & 0o7777 == 0o600
    assert record.parent.stat().st_mode & 0o7777 == 0o700


def test_a_secret_that_is_not_sent_stops_before_anything(host: StubbornHost) -> None:
    report = host.ask("state", mode="apply", stack="s", items=[file(secret="hf_token")])
    assert "carries no secret 'hf_token'" in str(report["error"])


@pytest.mark.parametrize("keys", [{}, {"content_base64": "%%%"}])
def test_an_item_that_says_nothing_fails_alone(host: StubbornHost, keys: dict[str, str]) -> None:
    rows = host.state("apply", [file("/etc/a", **keys), file("/etc/b", content="x")])
    assert [row["state"] for row in rows.values()] == ["failed", "changed"]


def test_remove_takes_away_only_what_is_named(host: StubbornHost) -> None:
    host.state("apply", [file(content="A=1\n"), file(UNIT, content="[Unit]\n", unit=True)])
    rows = host.state("remove", [file()])
    assert rows[f"file:{ENV}"]["state"] == "changed"
    assert not Path(host.path(ENV)).exists()
    assert Path(host.path(UNIT)).exists()
    assert host.state("remove", [file()])[f"file:{ENV}"]["why"] == "already gone"


def test_remove_never_touches_a_stranger_s_file(host: StubbornHost) -> None:
    host.put(ENV, "theirs\n")
    row = host.state("remove", [file(content="ours\n")])[f"file:{ENV}"]
    assert row["state"] == "blocked"
    assert Path(host.path(ENV)).read_text() == "theirs\n"


def test_remove_works_without_a_record_when_the_content_is_ours(host: StubbornHost) -> None:
    host.put(ENV, "ours\n")
    row = host.state("remove", [file(content="ours\n")])[f"file:{ENV}"]
    assert row["state"] == "changed"
    assert not Path(host.path(ENV)).exists()


def test_a_folder_that_another_agent_makes_meanwhile_is_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two operators' first requests reach a host at the same time."""
    there, in_the_way = tmp_path / "there", tmp_path / "file"
    there.mkdir(mode=0o700)
    in_the_way.touch()
    seen = way.status_of

    def too_early(above: int, name: str) -> os.stat_result | None:
        return None if name in ("there", "file") else seen(above, name)

    monkeypatch.setattr(way, "status_of", too_early)
    make_folders(str(there))
    assert there.stat().st_mode & 0o777 == 0o700
    with pytest.raises(NotADirectoryError):
        make_folders(str(in_the_way))


def test_a_file_of_somebody_else_comes_back_to_its_owner(host: StubbornHost) -> None:
    need_root("Only root gives files away.")
    place = host.put(ENV, "B=2\n", 0o600)
    os.chown(place, 4711, 4712)
    host.state("apply", [file(content="A=1\n")])
    assert (place.stat().st_uid, place.stat().st_gid) == (0, 0)
    host.state("rollback", [file()])
    status = place.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (4711, 4712, 0o600)
    assert place.read_text() == "B=2\n"
