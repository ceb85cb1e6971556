"""A stack's table of nftables: loaded for a trial, kept when somebody has reached the host through it.

A trial ends by itself: a timer of systemd brings back the table that was kept last, or none. So whoever has locked
himself out only waits. `confirm` keeps what is loaded; the next boot loads what was kept, never what is on trial.
"""

import contextlib
import os
import tempfile
from hashlib import sha256
from typing import Dict, List, Optional, Set

from ..files import make_folders, replace_file
from ..host import Finished, Host, Refused
from ..item import Item, Reading
from ..lock import host_lock
from ..processes.listening import answer as find_listeners
from ..processes.unit_processes import find_processes

FOLDER = "/var/lib/moe-infra/firewall"
TRIAL_S = 30
NFT_S = 20.0
SYSTEMD_S = 15.0
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
NO_NFT = "there is no program nft here: install the package nftables"
# Of what differs: rules each way, and characters of one (a rule names each address that it lets in).
MAX_RULES, MAX_RULE = 4, 2000
EMPTY_SET = "\tset spared {\n\t\ttype inet_service\n\t\tflags interval\n\t}\n"


def kept_path(stack: str) -> str:
    """What the next boot loads."""
    return "{}/{}.nft".format(FOLDER, stack)


def trial_path(stack: str) -> str:
    """What is on trial, and in its first line the process that has loaded it; there as long as the trial lasts."""
    return "{}/{}.trial".format(FOLDER, stack)


def read_firewall(host: Host, item: Item) -> Reading:
    """The table as it is loaded against the wanted one as this very nft prints it, loaded where no packet comes."""
    stack, text = str(item.text("stack")), item.text("content")
    version = host.look(["nft", "--version"], NFT_S)
    if version.exit_code is None and text is not None:
        return Reading(None, {}, "loaded", {}, locked=NO_NFT)
    if version.exit_code is None:
        raise Refused(NO_NFT)
    live = listed(list_table(host, item.target))
    state = _state(host, stack, live)
    if text is None:  # only to be taken back
        return Reading(state, {item.target: state}, None, {})
    apart = load_apart(host, item.target, text)
    wanted = listed(apart)
    if wanted is None:
        why = "nft does not take the table here: {}".format(apart.last_words)
        return Reading(state, {}, "loaded", {}, locked=why)
    shown = state if live == wanted else difference(live, wanted)
    return Reading(shown, {item.target: state}, "loaded", {item.target: named(wanted)})


def write_firewall(host: Host, item: Item, _part: str, value: object) -> None:
    """Load the table for a trial, or take away everything of it.

    Raises:
        Refused: nothing could end a trial, or nft does not take the table: nothing is changed then.
    """
    stack, text = str(item.text("stack")), item.text("content")
    _disarm(host, stack)
    if value is None or text is None:
        _take_away(host, item.target, stack)
        return
    trial_s = item.number("trial_s") or TRIAL_S
    spared = _spared_ports(host, item)
    content = "# {}\n{}".format(os.getpid(), _sparing(text, spared))
    folder = host.path(FOLDER)
    make_folders(folder, PRIVATE_FOLDER)
    _arm(host, item.target, stack, trial_s)
    replace_file(host.path(trial_path(stack)), content.encode("utf-8"), PRIVATE_FILE)
    done = host.run(["nft", "-f", host.path(trial_path(stack))], NFT_S)
    if done.exit_code != 0:
        _disarm(host, stack)
        _remove(host, trial_path(stack))
        raise Refused("nft -f: {}".format(done.last_words))


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """Keep what is on trial. Whoever asks this on a connection made since has reached the host through it.

    Raises:
        Refused: the trial is over already.
    """
    stack = str(request["stack"])
    with host_lock(host, str(request.get("operator") or "somebody"), writes=True):
        _disarm(host, stack)
        if not host.exists(trial_path(stack)):
            raise Refused("the table of {} was taken back: nobody kept it in time".format(stack))
        os.rename(host.path(trial_path(stack)), host.path(kept_path(stack)))
    return {"schema_version": 1, "kept": True}


def _state(host: Host, stack: str, live: Optional[str]) -> Optional[str]:
    """What is there, in a word; None when nothing of the table is."""
    is_kept = host.exists(kept_path(stack))
    if live is None:
        return "not loaded" if is_kept or host.exists(trial_path(stack)) else None
    with contextlib.suppress(OSError, ValueError):
        head = host.read_bytes(trial_path(stack)).split(b"\n", 1)[0]
        is_own = (
            int(head.lstrip(b"# ")) == os.getpid()
        )  # this run has loaded it, and has it kept or not
        return named(live) if is_own else "{} on trial".format(named(live))
    return named(live) if is_kept else "{} not kept for the next boot".format(named(live))


def named(listing: str) -> str:
    """A listing in a word."""
    return "sha256:{}".format(sha256(listing.encode("utf-8")).hexdigest()[:12])


def difference(live: Optional[str], wanted: str) -> str:
    """The rules that the loaded table lacks, and those that it has beside what is wanted: whole ones, some of many."""
    if live is None:
        return "not loaded"
    here, there = live.splitlines(), wanted.splitlines()
    lacks = [line.strip() for line in there if there.count(line) > here.count(line)]
    beside = [line.strip() for line in here if here.count(line) > there.count(line)]
    told = [*_rules("without", lacks), *_rules("with", beside)]
    return "loaded, {}".format(", ".join(told) or "in another order")


def _rules(word: str, rules: List[str]) -> List[str]:
    told = ["{} `{}`".format(word, _cut(rule)) for rule in rules[:MAX_RULES]]
    more = len(rules) - MAX_RULES
    return [*told, "{} {} more".format(word, more)] if more > 0 else told


def _cut(rule: str) -> str:
    more = len(rule) - MAX_RULE
    return rule if more <= 0 else "{} … {} more characters".format(rule[:MAX_RULE], more)


def list_table(host: Host, table: str) -> Finished:
    """A table of the family inet, as it is loaded."""
    return host.run(["nft", "-s", "list", "table", "inet", table], NFT_S)


def listed(done: Finished) -> Optional[str]:
    """A table as nft prints it, without the ports that are spared on this host; None when there is none."""
    if done.exit_code != 0:
        return None
    lines: List[str] = []
    in_set = in_elements = False
    for line in done.stdout.splitlines():
        in_set = in_set or line.strip() == "set spared {"
        in_elements = in_elements or (in_set and line.strip().startswith("elements"))
        if not in_elements and line.strip():
            lines.append(line)
        in_elements = in_elements and "}" not in line
        in_set = in_set and line != "\t}"
    return "\n".join(lines)


def load_apart(host: Host, table: str, text: str) -> Finished:
    """Load the table in a network namespace of its own, and list it there."""
    with tempfile.NamedTemporaryFile(prefix="moe-infra-", suffix=".nft") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        shell = 'nft -f "$1" && exec nft -s list table inet "$2"'
        return host.run(["unshare", "--net", "sh", "-c", shell, "sh", file.name, table], NFT_S)


def _arm(host: Host, table: str, stack: str, trial_s: int) -> None:
    """Have systemd end the trial.

    Raises:
        Refused: it does not.
    """
    kept, trial = host.path(kept_path(stack)), host.path(trial_path(stack))
    back = 'if [ -e "{0}" ]; then nft -f "{0}"; else nft delete table inet "{1}"; fi; rm -f "{2}"'
    argv = ["systemd-run", "--quiet", "--collect", "--unit", _timer(stack)]
    argv += ["--on-active", "{}s".format(trial_s), "--timer-property=AccuracySec=100ms"]
    done = host.run([*argv, "/bin/sh", "-c", back.format(kept, table, trial)], SYSTEMD_S)
    if done.exit_code != 0:
        raise Refused("systemd-run cannot end a trial of the table: {}".format(done.last_words))


def _disarm(host: Host, stack: str) -> None:
    name = _timer(stack)
    host.run(["systemctl", "stop", name + ".timer", name + ".service"], SYSTEMD_S)


def _timer(stack: str) -> str:
    return "moe-{}-firewall-back".format(stack)


def _take_away(host: Host, table: str, stack: str) -> None:
    if list_table(host, table).exit_code == 0:
        done = host.run(["nft", "delete", "table", "inet", table], NFT_S)
        if done.exit_code != 0:
            raise Refused("nft delete table inet {}: {}".format(table, done.last_words))
    _remove(host, trial_path(stack))
    _remove(host, kept_path(stack))
    with contextlib.suppress(OSError):  # another stack's lie there
        os.rmdir(host.path(FOLDER))


def _remove(host: Host, path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(host.path(path))


def _spared_ports(host: Host, item: Item) -> List[int]:
    """Guarded ports on which somebody else listens for other hosts already: an IMEX daemon, sshd wherever it is.

    Of the plan's own ports none is but sshd's: whoever else holds one of them would leave it open to everybody.
    """
    asked = _ports_of(item, "guards")
    own = set(_ports_of(item, "own"))
    rows = find_listeners({"ports": asked}, host)["listening"]
    found = [row for row in rows if not _is_loopback(str(row["address"]))]  # type: ignore[attr-defined]
    ours = _own_processes(host, item) if found else set()
    foreign = {
        int(row["port"])
        for row in found
        if not _is_ours(host, item, row["pid"], ours)
        and (int(row["port"]) not in own or _is_sshd(host, row["pid"]))
    }
    return sorted(foreign)


def _sparing(text: str, ports: List[int]) -> str:
    """The table with ports that stay as open as they are."""
    if not ports:
        return text
    elements = "\t\telements = {{ {} }}\n\t}}\n".format(", ".join(map(str, ports)))
    return text.replace(EMPTY_SET, EMPTY_SET[: -len("\t}\n")] + elements, 1)


def _own_processes(host: Host, item: Item) -> Set[int]:
    units = item.document.get("units")
    names = [str(unit) for unit in units] if isinstance(units, list) else []
    return {pid for found in find_processes(host, names).values() for pid in found.pids}


def _is_ours(host: Host, item: Item, pid: object, ours: Set[int]) -> bool:
    """Whether a listener is the stack's, or of a staging; a socket of the kernel's own is nobody's."""
    if pid is None:
        return False
    if pid in ours:
        return True
    try:
        group = host.read_bytes("/proc/{}/cgroup".format(pid)).decode("utf-8", "replace")
    except OSError:
        return False
    return "/moe-staging-" in group or "/moe-{}-".format(item.text("stack")) in group


def _ports_of(item: Item, key: str) -> List[int]:
    """Every port of spans, first and last."""
    spans = item.document.get(key)
    listed_spans = spans if isinstance(spans, list) else []
    return [port for first, last in listed_spans for port in range(int(first), int(last) + 1)]


def _is_sshd(host: Host, pid: object) -> bool:
    """Whether root's sshd listens, or systemd for it: operators are never locked out."""
    if pid == 1:
        return True
    try:
        status = host.read_bytes("/proc/{}/status".format(pid)).decode("utf-8", "replace")
    except OSError:
        return False
    rows = [line.split() for line in status.splitlines()]
    facts = {row[0]: row[1] for row in rows if len(row) > 1}
    return facts.get("Name:") == "sshd" and facts.get("Uid:") == "0"


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"
