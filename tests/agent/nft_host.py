"""A host whose nft, unshare and systemd are played: tables by name, timers, and what was run in its order."""

from __future__ import annotations

from pathlib import Path

from infra.agent.host import Finished
from tests.agent.stubborn_host import StubbornHost


class NftHost(StubbornHost):
    """Files below a folder.

    Tests change `tables`, `has_nft`, `refuses` (what nft says of any text) and `cannot_arm`, and read `ran`.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.tables: dict[str, str] = {}
        self.has_nft = True
        self.refuses = ""
        self.cannot_arm = ""
        self.timers: dict[str, str] = {}
        self.ran: list[str] = []

    def run(
        self,
        argv: list[str],
        timeout_s: float = 10.0,
        environment: dict[str, str] | None = None,
    ) -> Finished:
        del timeout_s, environment
        self.ran.append(" ".join(argv[:3]))
        played = {"nft": self._nft, "unshare": self._apart, "systemd-run": self._arm}
        if argv[:2] == ["systemctl", "stop"]:
            for name in argv[2:]:
                self.timers.pop(name.removesuffix(".timer"), None)
        return played[argv[0]](argv) if argv[0] in played else Finished(0, "", "")

    def _nft(self, argv: list[str]) -> Finished:
        if not self.has_nft:
            return Finished(None, "", "nft: No such file or directory")
        if argv[1] == "-s":
            found = self.tables.get(argv[-1])
            return Finished(1, "", "no table") if found is None else Finished(0, found, "")
        if argv[1] == "-f":
            text = Path(argv[2]).read_text()
            self.tables[text.partition("table inet ")[2].partition("\n")[0]] = _listing(text)
        if argv[1] == "delete":
            del self.tables[argv[-1]]
        return Finished(0, "", "")

    def _apart(self, argv: list[str]) -> Finished:
        if self.refuses:
            return Finished(1, "", self.refuses)
        return Finished(0, _listing(Path(argv[-2]).read_text()), "")

    def _arm(self, argv: list[str]) -> Finished:
        if self.cannot_arm:
            return Finished(1, "", self.cannot_arm)
        self.timers[argv[argv.index("--unit") + 1]] = argv[argv.index("--on-active") + 1]
        return Finished(0, "", "")


def _listing(text: str) -> str:
    """The table of a text as a listing of nft has it: what makes it anew is left out."""
    return text[text.rindex("table inet ", 0, text.index("{")) :]
