"""What a host remembers of groups that its router leaves out: until the router begins anew."""

from __future__ import annotations

from pathlib import Path

from infra.agent.group.operation import answer, look
from infra.agent.host import Finished, Host

ROUTER = "moe-s-router@0.service"


class Systemd(Host):
    """A host whose router was started under some invocation id."""

    start = "first"

    def run(self, argv: list[str], *_limits: object) -> Finished:
        assert argv[:2] == ["systemctl", "show"]
        assert argv[-1] == ROUTER
        return Finished(0, f"{self.start}\n", "")


def leave_out(host: Host, *groups: str) -> dict[str, object]:
    request: dict[str, object] = {"action": "leave-out", "stack": "s", "groups": list(groups)}
    return answer({**request, "router": ROUTER}, host)


def test_what_is_left_out_is_told_until_it_is_taken_back(tmp_path: Path) -> None:
    host = Systemd(str(tmp_path))
    assert look(host, "s")["left_out"] == []
    assert leave_out(host, "prefill/0", "prefill/1")["left_out"] == ["prefill/0", "prefill/1"]
    assert look(host, "s")["left_out"] == ["prefill/0", "prefill/1"]
    assert leave_out(host)["left_out"] == []


def test_a_router_that_was_started_since_has_all_its_members(tmp_path: Path) -> None:
    host = Systemd(str(tmp_path))
    leave_out(host, "prefill/0")
    host.start = "second"
    assert look(host, "s")["left_out"] == []


def test_down_forgets_it(tmp_path: Path) -> None:
    host = Systemd(str(tmp_path))
    leave_out(host, "prefill/0")
    answer({"action": "forget", "stack": "s"}, host)
    assert look(host, "s")["left_out"] == []
