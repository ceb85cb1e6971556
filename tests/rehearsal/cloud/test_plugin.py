from __future__ import annotations

import os
import queue
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
import pytest
from google.protobuf import struct_pb2  # type: ignore[import-untyped]  # as grpc
from pulumi.runtime.proto import engine_pb2, provider_pb2, provider_pb2_grpc

from infra.rehearsal.cloud.store import FOLDER_VARIABLE
from infra.rehearsal.cloud.wire import to_struct

WORDS = (sys.executable, "-P", "-m", "infra.rehearsal.cloud.plugin")
VPC = "urn:pulumi:test::moe-infra::aws:ec2/vpc:Vpc::mine"


@contextmanager
def plugin(folder: Path, *arguments: str) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    """The plug-in as the engine starts it, and a client of it."""
    environment = {**os.environ, FOLDER_VARIABLE: str(folder)}
    with subprocess.Popen(
        (*WORDS, *arguments), env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield provider_pb2_grpc.ResourceProviderStub(channel)
        process.terminate()
        assert process.wait(timeout=10) == 0


def test_without_a_folder_it_says_which_variable_names_one() -> None:
    environment = {name: value for name, value in os.environ.items() if name != FOLDER_VARIABLE}
    done = subprocess.run(WORDS, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert FOLDER_VARIABLE in done.stderr
    assert "Traceback" not in done.stderr


def test_it_says_what_it_is_and_keeps_resources_from_one_process_to_the_next(
    tmp_path: Path,
) -> None:
    configure = provider_pb2.ConfigureRequest(variables={"aws:config:region": "us-east-1"})
    inputs: struct_pb2.Struct = to_struct({"cidrBlock": "10.0.0.0/16"})
    with plugin(tmp_path) as first:
        info = first.GetPluginInfo(struct_pb2.Struct())
        assert info.version.endswith("+emulation")
        first.Configure(configure)
        dry = first.Create(provider_pb2.CreateRequest(urn=VPC, properties=inputs, preview=True))
        assert dry.id == ""
        made = first.Create(provider_pb2.CreateRequest(urn=VPC, properties=inputs))
    with plugin(tmp_path) as second:
        found = second.Read(provider_pb2.ReadRequest(id=made.id, urn=VPC))
        assert found.properties["cidrBlock"] == "10.0.0.0/16"
        second.Delete(provider_pb2.DeleteRequest(id=made.id, urn=VPC))
        assert second.Read(provider_pb2.ReadRequest(id=made.id, urn=VPC)).id == ""


def test_it_ends_with_an_engine_that_was_killed(tmp_path: Path) -> None:
    command = f"{shlex.join(WORDS)} & wait"
    environment = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
    with subprocess.Popen(["sh", "-c", command], env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().strip().isdigit()
        parent.kill()
        # the plug-in holds the other end of this pipe for as long as it lives
        assert parent.stdout.read() == b""


@pytest.fixture
def engine() -> Iterator[tuple[str, queue.Queue[str]]]:
    """An engine that listens to what plug-ins tell; its address and what it heard."""
    heard: queue.Queue[str] = queue.Queue()

    def log(request: engine_pb2.LogRequest, _: grpc.ServicerContext) -> struct_pb2.Struct:
        heard.put(request.message)
        return struct_pb2.Struct()

    handler = grpc.unary_unary_rpc_method_handler(
        log,
        request_deserializer=engine_pb2.LogRequest.FromString,
        response_serializer=_serialize,
    )
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("pulumirpc.Engine", {"Log": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", heard
    server.stop(grace=None).wait()


def test_the_engine_is_told_that_nothing_is_real(
    tmp_path: Path, engine: tuple[str, queue.Queue[str]]
) -> None:
    address, heard = engine
    with plugin(tmp_path, address) as provider:
        provider.GetPluginInfo(struct_pb2.Struct())
        told = heard.get(timeout=10)
    assert told.startswith("EMULATION: no cloud is touched")
    assert str(tmp_path) in told


def _serialize(message: struct_pb2.Struct) -> bytes:
    data: bytes = message.SerializeToString()
    return data
