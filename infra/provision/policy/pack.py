"""The policy pack as the Pulumi engine runs it: a server whose first line of output is its port."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent import futures

import grpc  # type: ignore[import-untyped]  # its types are a package of their own

from infra.provision.policy.analyzer import Analyzer

PARENT_CHECK_S = 1.0
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def offer_pack() -> None:
    """Serve until the engine lets go, or is gone."""
    parent = os.getppid()
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=_NO_LIMIT)
    server.add_generic_rpc_handlers((Analyzer().handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while not done.wait(PARENT_CHECK_S) and os.getppid() == parent:
        pass
    server.stop(grace=0.2)
