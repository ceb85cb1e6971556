"""What NCCL says of its communicators: every process has listened for that since NCCL 2.24 (NCCL user guide, RAS).

The text names processes and devices that lag behind or do not answer. NCCL's own client, `ncclras`, lies in images;
its question is a line of text.
"""

import socket
import time
from typing import Dict, Iterable, List, Tuple

DEFAULT = "localhost:28028"
ADDRESS = b"NCCL_RAS_ADDR"
QUESTION = b"verbose status\n"
# RAS itself waits five seconds for processes that do not answer it.
LIMIT_S = 8.0
MAX_BYTES = 1 << 20


def ras_addresses(variables: Iterable[Dict[bytes, bytes]]) -> List[str]:
    """Where the processes with these environments listen, each place once."""
    found = [each.get(ADDRESS, b"").decode("utf-8", "replace") or DEFAULT for each in variables]
    return list(dict.fromkeys(found))


def ask_ras(address: str, limit_s: float = LIMIT_S) -> bytes:
    """What is answered at `host:port`, as far as it came in time; why there is nothing.

    One process per address listens; it speaks for its whole job.
    """
    until = time.monotonic() + limit_s
    answer = b""
    try:
        with socket.create_connection(_split(address), timeout=limit_s) as connection:
            connection.sendall(QUESTION)
            while len(answer) < MAX_BYTES:
                connection.settimeout(max(until - time.monotonic(), 0.001))
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                answer += piece
    except (OSError, ValueError) as error:
        return answer + "{}: {}\n".format(address, error).encode()
    return answer


def _split(address: str) -> Tuple[str, int]:
    """Host and port; NCCL takes `host:port` and `[address]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or "localhost", int(port)
