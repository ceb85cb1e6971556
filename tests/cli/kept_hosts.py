"""A kept rehearsal whose hosts a test spoils, and what `fab` then says of them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.cli.commands import FAB, need_lab, run
from tests.naming import in_time

FACTS = "/var/lib/moe-rehearsal/host.json"  # what stand-ins know of a host


def set_fault(text: str) -> str:
    """A shell command that gives a stand-in of the vendor's tool, or of the kernel, a fault."""
    code = f"import json; p='{FACTS}'; d=json.load(open(p)); d['faults']={text}; open(p,'w').write(json.dumps(d))"
    return f'sudo python3 -c "{code}"'


@dataclass(frozen=True)
class Kept:
    """A kept rehearsal: tuned hosts with nothing started."""

    stack: str
    sets: tuple[str, ...]
    inventory: str
    ssh_config: str

    def fab(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run(
            FAB, words[0], "--stack", self.stack, *self.sets, "--inventory", self.inventory, *words[1:]
        )  # fmt: skip

    def ssh(self, host: str, command: str) -> str:
        done = run("ssh", "-n", "-F", self.ssh_config, host, command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def blocking(self, *words: str) -> list[dict[str, str]]:
        """The findings that block, of a preflight that leaves with 3."""
        with in_time():
            done = self.fab("preflight", "--json", *words)
        assert done.returncode == 3, done.stdout + done.stderr
        document = json.loads(done.stdout)
        assert list(document) == ["schema_version", "stack", "ok", "findings"]
        assert (document["stack"], document["ok"]) == (self.stack, False)
        severities = [finding["severity"] for finding in document["findings"]]
        assert severities == sorted(severities, key=["block", "warn", "pass"].index)
        return [finding for finding in document["findings"] if finding["severity"] == "block"]

    def told(self, host: str, *words: str) -> dict[str, tuple[str, str]]:
        """What a preflight finds at one host besides what passes: the worst severity and all that is said, by check."""
        with in_time():
            done = self.fab("preflight", "--json", *words)
        found: dict[str, tuple[str, str]] = {}
        for one in json.loads(done.stdout)["findings"]:
            if one["host"] == host and one["severity"] != "pass":
                worst, said = found.get(one["check"], (one["severity"], ""))
                found[one["check"]] = (
                    worst,
                    f"{said}; {one['observed']}" if said else one["observed"],
                )
        return found

    def mend_as_said(self, said: str) -> None:
        """Type the one command that a message names as the way out of a holder, as it stands there."""
        match = re.search(r"\bssh [^`\n]*? sudo kill \d+", said)
        assert match is not None, said
        done = run("sh", "-c", match[0])
        assert done.returncode == 0, f"{match[0]}: {done.stderr}"

    @contextmanager
    def changed(self, host: str, change: str, undo: str) -> Iterator[None]:
        """A host with a fault."""
        self.ssh(host, change)
        try:
            yield
        finally:
            self.ssh(host, undo)

    def refused_up(self, *words: str) -> str:
        """What `up` says when it refuses with 3; nothing of the stack is on any host then."""
        with in_time():
            done = self.fab("up", *words)
        assert done.returncode == 3, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        for host in ("unified-0", "unified-1"):
            assert self.ssh(host, f"ls -d /etc/moe-infra/{self.stack} 2>/dev/null; true") == ""
        return done.stderr


@contextmanager
def kept_rehearsal(stack: str, sets: tuple[str, ...]) -> Iterator[Kept]:
    need_lab()
    done = run(FAB, "rehearse", "--stack", stack, *sets, "--keep", "--to-step", "tune", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    try:
        yield Kept(stack, sets, document["inventory"], document["ssh_config"])
    finally:
        run(FAB, "rehearse", "--stop", document["id"])
