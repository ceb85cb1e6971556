"""`journalctl -k`: the machine's own journalctl, on lines that a simulated host's kernel would have written.

A simulated host has no kernel of its own, and journald takes a kernel's lines from a kernel alone. They are written as
entries of the identifier `kernel` when root first asks in a boot, and `-k` becomes a match of them: patterns, formats,
bounds, refusals and exit codes are journalctl's. `faults.kernel_log` [text] of `host.json` stands behind a banner; who
changes it is answered from the new lines alone.
"""

from __future__ import annotations

import fcntl
import os
import sys
import zlib

from .host_state import STANDIN_NOTICE, fault, read_host, run_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

JOURNALCTL = "/usr/bin/journalctl"
SOCKET = "/run/systemd/journal/socket"
FIELD = "MOE_REHEARSAL_KERNEL"
BANNER = f"Linux version 6 ({STANDIN_NOTICE})"
# Letters of systemd 252's journalctl.c (and -i, -T of later ones) with a value: in the next word, or never there.
VALUE_FOLLOWS = "oDpgcSUtuFMiT"
VALUE_IS_ATTACHED = "bn"
DMESG = "--dmesg"
SHORTEST_DMESG = 4


def main(arguments: list[str]) -> int:
    """Do what `journalctl` was asked for.

    Args:
        arguments: as in `sys.argv`.
    """
    words = without_kernel(arguments[1:])
    if words is None:
        os.execv(JOURNALCTL, ["journalctl", *arguments[1:]])  # noqa: S606  it is the program that was asked for
    lines = [BANNER, *(fault(read_host(), "kernel_log") or ())]
    key = f"{zlib.crc32(chr(10).join(lines).encode()):08x}"
    if os.geteuid() == 0:  # whom journald lets wait until they are there
        _write_once(lines, key)
    # the first -b says what -k implies, and any other takes its place
    return _run(["journalctl", "-b0", *words, f"{FIELD}={key}"])


def without_kernel(words: list[str]) -> list[str] | None:
    """Return a command line of journalctl without its `-k`; None for one that has none."""
    kept: list[str] = []
    rest = list(words)
    is_asked = False
    while rest:
        word = rest.pop(0)
        if word == "--":
            kept += [word, *rest]
            break
        if len(word) >= SHORTEST_DMESG and DMESG.startswith(word):
            is_asked = True
        elif word[:1] == "-" and word[1:2] not in ("", "-"):
            letters, asks, takes_next = _split_letters(word[1:])
            is_asked = is_asked or asks
            kept += ["-" + letters] if letters else []
            kept += [rest.pop(0)] if takes_next and rest else []
        else:
            kept.append(word)
    return kept if is_asked else None


def _split_letters(letters: str) -> tuple[str, bool, bool]:
    """Return the letters of one word without `k`, whether it was among them, and whether a value follows."""
    kept = ""
    for place, letter in enumerate(letters):
        if letter in VALUE_FOLLOWS or letter in VALUE_IS_ATTACHED:
            is_last = place + 1 == len(letters)
            return (
                kept + letters[place:],
                "k" in letters[:place],
                is_last and letter in VALUE_FOLLOWS,
            )
        kept += "" if letter == "k" else letter
    return kept, "k" in letters, False


def _write_once(lines: list[str], key: str) -> None:
    """Give journald the lines, unless it has had them in this boot, and wait until it has stored them."""
    os.makedirs(run_folder(), exist_ok=True)
    with open(run_folder() + "/kernel-log", "a+", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if key in file.read().split():
            return
        import _socket  # noqa: PLC0415  only here, saves start-up

        channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        for line in lines:
            fields = {"MESSAGE": line, "SYSLOG_IDENTIFIER": "kernel", "PRIORITY": "4", FIELD: key}
            entry = "".join(f"{name}={value}\n" for name, value in fields.items())
            channel.sendto(entry.encode(), SOCKET)
        channel.close()
        os.spawnv(os.P_WAIT, JOURNALCTL, ["journalctl", "--sync"])  # noqa: S606  no shell, whole path
        file.write(key + "\n")


def _run(words: list[str]) -> int:
    """Run journalctl and print what it prints, without the id of the process that has played the kernel."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        os.execv(JOURNALCTL, words)  # noqa: S606  no shell, whole path
    os.close(writer)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    with open(reader, "rb") as output:
        for line in output:
            sys.stdout.buffer.write(_as_kernels(line))
            sys.stdout.buffer.flush()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _as_kernels(line: bytes) -> bytes:
    """Return a line of a short format as one of the kernel's, which has no process."""
    head, identifier, rest = line.partition(b" kernel[")
    number, bracket, text = rest.partition(b"]: ")
    if identifier and bracket and number.isdigit():
        return head + b" kernel: " + text
    return line
