"""What NCCL says of its communicators: every process has listened for that since NCCL 2.24 (NCCL user guide, RAS).

The text names processes and devices that lag behind or do not answer. NCCL's own client, `ncclras`, lies in images;
its question is a line of text. All processes of a host listen at one port, and the kernel gives a connection to any of
them: also to one that is frozen, which never answers (NCCL 2.28.9 with one of two processes stopped: four of nine
connections stayed silent; the first of the others waited five seconds for the frozen process, the rest none).
"""

import socket
import time
from typing import Dict, Iterable, List, Tuple

DEFAULT = "localhost:28028"
ADDRESS = b"NCCL_RAS_ADDR"
QUESTION = b"verbose status\n"
# RAS itself waits five seconds for processes that do not answer it.
LIMIT_S = 8.0
# A process that is not frozen begins its answer at once.
SILENT_S = 1.0
MOST_ASKED = 8
MAX_BYTES = 1 << 20


def ras_addresses(variables: Iterable[Dict[bytes, bytes]]) -> List[str]:
    """Where the processes with these environments listen, each place once."""
    found = [each.get(ADDRESS, b"").decode("utf-8", "replace") or DEFAULT for each in variables]
    return list(dict.fromkeys(found))


def ask_ras(address: str, limit_s: float = LIMIT_S) -> bytes:
    """What is answered at `host:port`, as far as it came in time; why there is nothing.

    Any process of a job speaks for the whole of it. Where one says nothing, another is asked.
    """
    until = time.monotonic() + limit_s
    answer = b""
    for _ in range(MOST_ASKED):
        answer, is_over = _ask_one(address, until)
        if is_over or time.monotonic() >= until:
            break
    return answer


def _ask_one(address: str, until: float) -> Tuple[bytes, bool]:
    """What one process answers, and whether to leave it at that: it has begun to answer, or nobody listens."""
    answer = b""
    try:
        with socket.create_connection(_split(address), timeout=_left_s(until)) as connection:
            connection.sendall(QUESTION)
            while len(answer) < MAX_BYTES:
                left_s = _left_s(until)
                connection.settimeout(left_s if answer else min(left_s, SILENT_S))
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                answer += piece
    except socket.timeout as error:
        return answer + "{}: {}\n".format(address, error).encode(), bool(answer)
    except (OSError, ValueError) as error:
        return answer + "{}: {}\n".format(address, error).encode(), True
    return answer, True


def _left_s(until: float) -> float:
    return max(until - time.monotonic(), 0.001)


def _split(address: str) -> Tuple[str, int]:
    """Host and port; NCCL takes `host:port` and `[address]:port`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") or "localhost", int(port)
