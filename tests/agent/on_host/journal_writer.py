"""Run as a unit on a simulated host: writes entries of every kind to its journal.

python3 journal_writer.py KIND NAME     KIND: engine (stdout and journald's own protocol) or forger
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
import sys
import time

JOURNAL = "/run/systemd/journal/socket"
COREDUMP = b"fc2e22bc6ee647b6b90729ab34a250b1"
LINES = 300


def send(*fields: tuple[bytes, bytes]) -> None:
    """One entry; a field that holds a newline travels with its length (systemd.io/JOURNAL_NATIVE_PROTOCOL)."""
    parts = [
        name + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
        if b"\n" in value
        else name + b"=" + value + b"\n"
        for name, value in fields
    ]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        message = b"".join(parts)
        try:
            out.sendto(message, JOURNAL)
        except OSError:  # too long for a datagram: a sealed file travels instead
            handle = os.memfd_create("entry", os.MFD_ALLOW_SEALING)
            os.write(handle, message)
            seal(handle)
            out.connect(JOURNAL)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", handle))
            out.sendmsg([b""], [rights])
            os.close(handle)


def seal(handle: int) -> None:
    """Nobody may change it any more: only such a file is taken."""
    fcntl.fcntl(handle, 1033, 0xF)  # F_ADD_SEALS, all of them


def engine(name: bytes) -> None:
    """What an engine writes, and worse."""
    chance = random.Random(name)  # noqa: S311 - the same lines every time
    say = sys.stdout.buffer
    for number in range(LINES):
        step = (os.getpid(), name, number, chance.random())
        say.write(b"(EngineCore pid=%d) INFO %s step %d took %f s\n" % step)
        if number % 7 == 0:
            say.write(
                b"GET /health 200 OK\n"
            )  # the same text again and again lies in the file once
        if number % 11 == 0:
            say.write(
                b"long " + b"x" * chance.choice((480, 505, 520, 900, 5000)) + b" %d\n" % number
            )
        if number % 50 == 0:
            say.flush()
            time.sleep(0.05)  # other units' lines come in between
    say.write(b"\xff\xfe not UTF-8 \x80\n\ttab\x1b[31mred\x1b[0m\n   \n")
    say.flush()
    message = b"MESSAGE"
    send((message, b"first line\nsecond line\n\nfourth line of %s" % name))
    send((message, b"zero\0byte\nand newline"))
    send((message, b""))
    send((b"NOTE", b"an entry without a message"))
    send((message, b"one"), (message, b"two messages in one entry"))
    send((message, b"many fields"), *[(b"FIELD_%d" % n, b"value %d" % n) for n in range(60)])
    send((b"A_LONG_FIELD", chance.randbytes(3000)), (message, b"after a long field"))
    send((message, b"compressible " + b"word " * 60000))
    send((message, b"%s incompressible " % name + chance.randbytes(200000)))
    send((message, b"named by others"), (b"OBJECT_PID", b"1"))
    say.write(b"without a newline at its end")
    say.flush()


def forger(name: bytes) -> None:
    """Claims to speak of the unit, and is believed only as far as journalctl believes it."""
    unit = name + b".service"
    for field in (b"UNIT", b"OBJECT_SYSTEMD_UNIT", b"COREDUMP_UNIT"):
        send((b"MESSAGE", b"forged by " + field), (field, unit))
    send((b"MESSAGE", b"a core"), (b"COREDUMP_UNIT", unit), (b"MESSAGE_ID", COREDUMP))


if __name__ == "__main__":
    {"engine": engine, "forger": forger}[sys.argv[1]](sys.argv[2].encode())
    time.sleep(0.3)  # journald looks up whose cgroup a process is in while it lives
