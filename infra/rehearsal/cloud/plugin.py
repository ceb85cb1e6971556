"""The program that stands in for `pulumi-resource-aws`, `-gcp` and `-kubernetes`: a gRPC server for the real engine.

Started by the engine with its own address as the argument; the first line of output is the port.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import types
from concurrent import futures
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # its types are a package of their own

from infra.rehearsal.cloud.store import FOLDER_VARIABLE

PARENT_CHECK_S = 1.0
KIND_VARIABLE = "MOE_REHEARSAL_PROVIDER"
# For the engine to take one line; it has just started this program, and may be as busy as the machine is.
SAYING_S = 30.0
SAYING = "EMULATION: no cloud is touched, no machine is rented; resources are files in {folder}"


def load_messages() -> None:
    """Make `pulumi.runtime.proto` importable without the rest of pulumi, which costs as much again.

    Nothing but message classes is used here, and this process lives for one command.
    """
    spec = importlib.util.find_spec("pulumi")
    if spec is None or spec.origin is None:
        raise SystemExit("the pulumi package is not installed in this environment")
    folder = Path(spec.origin).parent
    for name in ("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
        module = types.ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module


def main(kind: str = "aws") -> None:
    """Serve until the engine lets go, as the provider of a kind: `aws`, `gcp`, `kubernetes` (clusters' objects)."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise SystemExit(f"{FOLDER_VARIABLE} is not set: it names the folder of the emulated cloud")
    engine = os.getppid()
    load_messages()
    # after load_messages, and each only in the process that needs it
    from infra.rehearsal.cloud.cluster_servicer import ClusterServicer  # noqa: PLC0415
    from infra.rehearsal.cloud.servicer import CloudServicer  # noqa: PLC0415

    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=16),
        options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
    )
    is_cluster = kind == "kubernetes"
    servicer = ClusterServicer(Path(folder)) if is_cluster else CloudServicer(Path(folder), kind)
    server.add_generic_rpc_handlers((servicer.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    if len(sys.argv) > 1 and not is_cluster:
        tell(sys.argv[1], SAYING.format(folder=folder), SAYING_S)
    # An engine that is killed tells nobody; whoever inherits its children is not it.
    while not done.wait(PARENT_CHECK_S) and os.getppid() == engine:
        pass
    server.stop(grace=0.2)


def tell(engine: str, message: str, limit_s: float) -> None:
    """Show a line in the engine's output; one that does not listen in time finds it among this program's errors.

    The server goes on either way: without it the operation would fail for the sake of a line.
    """
    from pulumi.runtime.proto import engine_pb2  # noqa: PLC0415 - see load_messages

    log = grpc.insecure_channel(engine).unary_unary(
        "/pulumirpc.Engine/Log",
        request_serializer=engine_pb2.LogRequest.SerializeToString,
        response_deserializer=lambda answer: answer,
    )
    line = engine_pb2.LogRequest(severity=engine_pb2.LogSeverity.Value("INFO"), message=message)
    try:
        log(line, timeout=limit_s, wait_for_ready=True)
    except grpc.RpcError:
        sys.stderr.write(f"{message}\n")


if __name__ == "__main__":
    main(os.environ.get(KIND_VARIABLE, "aws"))
