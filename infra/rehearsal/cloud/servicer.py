"""The provider protocol: messages in, plain values to the emulated cloud, messages out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
from google.protobuf import empty_pb2  # type: ignore[import-untyped]  # as grpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2

from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.package_types import package_version
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cloud.wire import has_unknown, to_python, to_struct

SERVICE = "pulumirpc.ResourceProvider"
_Answer = Callable[[Any], Any]


class CloudServicer:
    """Answers the engine as the provider of a package; every refusal of the cloud becomes an error of the call."""

    def __init__(self, folder: Path, package: str) -> None:
        self._store = Store(folder)
        self._package = package
        self._region = ""

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods of the protocol that custom resources need, by name."""
        pb = provider_pb2
        methods: Mapping[str, tuple[Any, _Answer]] = {
            "Handshake": (pb.ProviderHandshakeRequest, lambda _: pb.ProviderHandshakeResponse()),
            "GetPluginInfo": (empty_pb2.Empty, self._plugin_info),
            "Attach": (plugin_pb2.PluginAttach, lambda _: empty_pb2.Empty()),
            "CheckConfig": (pb.CheckRequest, lambda request: pb.CheckResponse(inputs=request.news)),
            "DiffConfig": (
                pb.DiffRequest,
                lambda _: pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE),
            ),
            "Configure": (pb.ConfigureRequest, self._configure),
            "Invoke": (pb.InvokeRequest, self._invoke),
            "Check": (pb.CheckRequest, self._check),
            "Diff": (pb.DiffRequest, self._diff),
            "Create": (pb.CreateRequest, self._create),
            "Read": (pb.ReadRequest, self._read),
            "Update": (pb.UpdateRequest, self._update),
            "Delete": (pb.DeleteRequest, self._delete),
            "Cancel": (empty_pb2.Empty, lambda _: empty_pb2.Empty()),
        }
        return method_handlers(methods)

    def _plugin_info(self, _: Any) -> Any:
        return plugin_pb2.PluginInfo(version=f"{package_version(self._package)}+emulation")

    def _configure(self, request: Any) -> Any:
        self._region = request.variables.get(f"{self._package}:config:region", "")
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def _invoke(self, request: Any) -> Any:
        answer = look_up(self._store, self._region, request.tok, to_python(request.args))
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(answer))
        return response

    def _check(self, request: Any) -> Any:
        inputs = to_python(request.news)
        token = operations.type_of(request.urn)
        failures = operations.check(token, request.urn, inputs, to_python(request.olds))
        return provider_pb2.CheckResponse(
            inputs=to_struct(inputs),
            failures=[
                provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in failures
            ],
        )

    def _diff(self, request: Any) -> Any:
        token = operations.type_of(request.urn)
        names, replaced = operations.changes(
            token, to_python(request.old_inputs), to_python(request.news)
        )
        kinds = provider_pb2.DiffResponse
        return kinds(
            changes=kinds.DIFF_SOME if names else kinds.DIFF_NONE,
            diffs=names,
            replaces=replaced,
            deleteBeforeReplace=operations.goes_first(token, request.urn, to_python(request.news)),
        )

    def _create(self, request: Any) -> Any:
        inputs = to_python(request.properties)
        if request.preview or has_unknown(inputs):
            outputs = operations.preview(operations.type_of(request.urn), inputs)
            return provider_pb2.CreateResponse(id="", properties=to_struct(outputs))
        resource = operations.create(self._store, self._region, request.urn, inputs)
        return provider_pb2.CreateResponse(id=resource.id, properties=to_struct(resource.outputs))

    def _read(self, request: Any) -> Any:
        resource = self._store.get(operations.type_of(request.urn), request.id)
        if resource is None:
            return provider_pb2.ReadResponse(id="")
        return provider_pb2.ReadResponse(
            id=resource.id,
            properties=to_struct(resource.outputs),
            inputs=to_struct(resource.inputs),
        )

    def _update(self, request: Any) -> Any:
        inputs = to_python(request.news)
        if request.preview or has_unknown(inputs):
            outputs = operations.preview_change(
                operations.type_of(request.urn),
                to_python(request.old_inputs),
                to_python(request.olds),
                inputs,
            )
            return provider_pb2.UpdateResponse(properties=to_struct(outputs))
        resource = operations.update(self._store, self._region, request.id, request.urn, inputs)
        return provider_pb2.UpdateResponse(properties=to_struct(resource.outputs))

    def _delete(self, request: Any) -> Any:
        operations.delete(self._store, request.id, request.urn)
        return empty_pb2.Empty()


def method_handlers(methods: Mapping[str, tuple[Any, _Answer]]) -> grpc.GenericRpcHandler:
    """The protocol's handlers, by method: the message that it takes, and what answers it."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            name: grpc.unary_unary_rpc_method_handler(
                _refusing(answer),
                request_deserializer=message.FromString,
                response_serializer=lambda response: response.SerializeToString(),
            )
            for name, (message, answer) in methods.items()
        },
    )


def _refusing(answer: _Answer) -> Callable[[Any, grpc.ServicerContext], Any]:
    """A method whose refusals become the error of the call."""

    def respond(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return answer(request)
        except RefusedError as error:
            return context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    return respond
