"""The provider protocol for objects of the emulated clusters: what `pulumi-resource-kubernetes` is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
from google.protobuf import empty_pb2  # type: ignore[import-untyped]  # as grpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2

from infra.rehearsal.cloud.cluster_objects import create_object, object_changes, put_object
from infra.rehearsal.cloud.operations import type_of
from infra.rehearsal.cloud.servicer import method_handlers
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cloud.wire import has_unknown, to_python, to_struct

KUBECONFIG = "kubernetes:config:kubeconfig"


class ClusterServicer:
    """Answers the engine. The store is read anew for each answer: the cloud's own provider writes to it, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kubeconfig = ""

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods of the protocol that custom resources need, by name."""
        pb = provider_pb2
        return method_handlers(
            {
                "Handshake": (
                    pb.ProviderHandshakeRequest,
                    lambda _: pb.ProviderHandshakeResponse(),
                ),
                "GetPluginInfo": (
                    empty_pb2.Empty,
                    lambda _: plugin_pb2.PluginInfo(version="4.0.0+emulation"),
                ),
                "Attach": (plugin_pb2.PluginAttach, lambda _: empty_pb2.Empty()),
                "CheckConfig": (
                    pb.CheckRequest,
                    lambda request: pb.CheckResponse(inputs=request.news),
                ),
                "DiffConfig": (
                    pb.DiffRequest,
                    lambda _: pb.DiffResponse(changes=pb.DiffResponse.DIFF_NONE),
                ),
                "Configure": (pb.ConfigureRequest, self._configure),
                "Check": (pb.CheckRequest, lambda request: pb.CheckResponse(inputs=request.news)),
                "Diff": (pb.DiffRequest, self._diff),
                "Create": (pb.CreateRequest, self._create),
                "Read": (pb.ReadRequest, self._read),
                "Update": (pb.UpdateRequest, self._update),
                "Delete": (pb.DeleteRequest, self._delete),
                "Cancel": (empty_pb2.Empty, lambda _: empty_pb2.Empty()),
            }
        )

    def _configure(self, request: Any) -> Any:
        given = to_python(request.args).get("kubeconfig")
        self._kubeconfig = request.variables.get(KUBECONFIG, "") or str(given or "")
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def _diff(self, request: Any) -> Any:
        names, replaced = object_changes(
            type_of(request.urn), to_python(request.old_inputs), to_python(request.news)
        )
        kinds = provider_pb2.DiffResponse
        return kinds(
            changes=kinds.DIFF_SOME if names else kinds.DIFF_NONE, diffs=names, replaces=replaced
        )

    def _create(self, request: Any) -> Any:
        inputs = to_python(request.properties)
        if request.preview or has_unknown(inputs):
            return provider_pb2.CreateResponse(id="", properties=to_struct(inputs))
        store, token = Store(self._folder), type_of(request.urn)
        made = create_object(store, self._kubeconfig, request.urn, token, inputs)
        return provider_pb2.CreateResponse(id=made.id, properties=to_struct(made.outputs))

    def _read(self, request: Any) -> Any:
        found = Store(self._folder).get(type_of(request.urn), request.id)
        if found is None:
            return provider_pb2.ReadResponse(id="")
        return provider_pb2.ReadResponse(
            id=found.id, properties=to_struct(found.outputs), inputs=to_struct(found.inputs)
        )

    def _update(self, request: Any) -> Any:
        inputs = to_python(request.news)
        if request.preview or has_unknown(inputs):
            return provider_pb2.UpdateResponse(properties=to_struct(inputs))
        store, token = Store(self._folder), type_of(request.urn)
        made = put_object(store, self._kubeconfig, request.urn, token, inputs)
        return provider_pb2.UpdateResponse(properties=to_struct(made.outputs))

    def _delete(self, request: Any) -> Any:
        Store(self._folder).remove(type_of(request.urn), request.id)
        return empty_pb2.Empty()
