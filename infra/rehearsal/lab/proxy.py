"""The hosts' ProxyCommand: `python -I -S proxy.py CONTROL_SOCKET HOST PORT`.

It asks the lab for a connection. When OpenSSH takes connections (ProxyUseFdpass: standard output is
then a socket) it hands that over and is gone; for everyone else it copies bytes. It imports nothing
that is not needed, since every connection of a client starts it.
"""

# The C module under `socket`: that one imports selectors and enum, a third of this program's time.
import _socket
import os
import select
import stat
import sys

CHUNK_BYTES = 1 << 16
INT_BYTES = 4
NOT_REACHED = 255


def main() -> None:
    """Get a connection, then pass it on or carry its bytes."""
    control, host, port = sys.argv[1:4]
    connection = dial(control, host, port)
    if stat.S_ISSOCK(os.fstat(1).st_mode):
        hand_over(connection)
    else:
        carry(connection)


def dial(control: str, host: str, port: str) -> int:
    """The descriptor of a connection to a host of the lab; leaves with a message if there is none."""
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        channel.connect(control)
    except OSError as error:
        sys.exit(f"the lab behind {control} is not there: {error.strerror}")
    request = f'{{"operation": "dial", "host": "{host}", "port": {int(port)}}}\n'
    channel.sendall(request.encode())
    answer, ancillary, _, _ = channel.recvmsg(CHUNK_BYTES, _socket.CMSG_SPACE(INT_BYTES))
    for level, kind, data in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            return int.from_bytes(data[:INT_BYTES], sys.byteorder)
    sys.stderr.write(answer.decode(errors="replace"))
    sys.exit(NOT_REACHED)


def hand_over(connection: int) -> None:
    """Give the connection to the parent through standard output."""
    parent = _socket.socket(fileno=1)
    rights = connection.to_bytes(INT_BYTES, sys.byteorder)
    parent.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])


def carry(connection: int) -> None:
    """Copy both ways until the host hangs up."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(connection, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            data = os.read(descriptor, CHUNK_BYTES)
            if data:
                write_all(1 if descriptor == connection else connection, data)
            elif descriptor == connection:
                return
            else:
                poll.unregister(0)
                _socket.socket(fileno=os.dup(connection)).shutdown(_socket.SHUT_WR)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything."""
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        sys.exit(NOT_REACHED)
