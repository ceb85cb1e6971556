"""The rules as an analyzer of the Pulumi engine: messages in, plain resources to the rules, diagnostics out.

Written against the protocol itself (pulumi, proto/pulumi/analyzer.proto): the package pulumi-policy 1.21 asks for
protobuf 5, and would hold everything else in this environment back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
from google.protobuf import empty_pb2, json_format  # type: ignore[import-untyped]  # as grpc
from pulumi.runtime.proto import analyzer_pb2, plugin_pb2

from infra.provision.policy.declared import UNKNOWN, Declared
from infra.provision.policy.rules import (
    ALL_RULES,
    ONE_RULES,
    TAG_DESCRIPTION,
    TAG_RULE,
    find_missing_tags,
)

PACK, VERSION = "moe-infra", "1.0.0"
REPLACE = f"{PACK}:replace_machines"
SERVICE = "pulumirpc.Analyzer"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - the mark of a secret, not one
# Unknown text, truth, number, list and object (pulumi, sdk/go/common/resource/plugin/rpc.go).
_UNKNOWN = frozenset(
    {
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)


class Analyzer:
    """Answers the engine; every finding is mandatory unless `--policy-pack-config` says otherwise."""

    def __init__(self) -> None:
        self._levels: dict[str, Any] = {}
        self._further_tags: tuple[str, ...] = ()
        self._may_go: frozenset[str] = frozenset()

    def handlers(self) -> grpc.GenericRpcHandler:
        """The methods of the protocol, by name."""
        pb = analyzer_pb2
        methods: Mapping[str, tuple[Any, Any]] = {
            "Handshake": (
                pb.AnalyzerHandshakeRequest,
                lambda _: pb.AnalyzerHandshakeResponse(),
            ),
            "GetPluginInfo": (empty_pb2.Empty, lambda _: plugin_pb2.PluginInfo(version=VERSION)),
            "GetAnalyzerInfo": (empty_pb2.Empty, lambda _: _pack_info()),
            "Configure": (pb.ConfigureAnalyzerRequest, self.configure),
            "ConfigureStack": (pb.AnalyzerStackConfigureRequest, self.configure_stack),
            "Analyze": (pb.AnalyzeRequest, self.analyze),
            "AnalyzeStack": (pb.AnalyzeStackRequest, self.analyze_stack),
            "Remediate": (pb.AnalyzeRequest, lambda _: pb.RemediateResponse()),
            "Cancel": (empty_pb2.Empty, lambda _: empty_pb2.Empty()),
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    lambda request, _, answer=answer: answer(request),
                    request_deserializer=message.FromString,
                    response_serializer=lambda response: response.SerializeToString(),
                )
                for name, (message, answer) in methods.items()
            },
        )

    def configure(self, request: Any) -> Any:
        """Take levels and properties of rules from `--policy-pack-config`."""
        self._levels = {
            name: config.enforcementLevel for name, config in request.policyConfig.items()
        }
        if TAG_RULE in request.policyConfig:
            properties = json_format.MessageToDict(request.policyConfig[TAG_RULE].properties)
            self._further_tags = tuple(str(tag) for tag in properties.get("tags", ()))
        return empty_pb2.Empty()

    def configure_stack(self, request: Any) -> Any:
        """Take the hosts whose machines may go from the stack's own configuration."""
        self._may_go = frozenset(request.config.get(REPLACE, "").split(","))
        return analyzer_pb2.AnalyzerStackConfigureResponse()

    def analyze(self, request: Any) -> Any:
        """Judge one resource before it is made or changed."""
        resource = _declared(request, self._may_go)
        found = [
            (rule.name, rule.description, sentence)
            for rule in ONE_RULES
            for sentence in rule.judge(resource)
        ]
        found += [
            (TAG_RULE, TAG_DESCRIPTION, sentence)
            for sentence in find_missing_tags(resource, self._further_tags)
        ]
        return analyzer_pb2.AnalyzeResponse(
            diagnostics=[self._diagnostic(*each, urn=request.urn) for each in found]
        )

    def analyze_stack(self, request: Any) -> Any:
        """Judge all resources together."""
        resources = read_resources(request.resources, self._may_go)
        urns = {(each.type, each.name): urn for urn, each in resources.items()}
        return analyzer_pb2.AnalyzeResponse(
            diagnostics=[
                self._diagnostic(
                    rule.name, rule.description, sentence, urn=urns[resource.type, resource.name]
                )
                for rule in ALL_RULES
                for resource, sentence in rule.judge(tuple(resources.values()))
            ]
        )

    def _diagnostic(self, rule: str, description: str, sentence: str, *, urn: str) -> Any:
        return analyzer_pb2.AnalyzeDiagnostic(
            policyName=rule,
            policyPackName=PACK,
            policyPackVersion=VERSION,
            description=description,
            message=sentence,
            enforcementLevel=self._levels.get(rule, analyzer_pb2.MANDATORY),
            urn=urn,
        )


def read_resources(messages: Sequence[Any], may_go: Collection[str] = ()) -> dict[str, Declared]:
    """Resources by URN, each with those that its properties come from.

    Args:
        messages: as the engine sends them.
        may_go: names of hosts whose machines may be replaced.
    """
    plain = {message.urn: _declared(message, may_go) for message in messages}
    return {
        message.urn: replace(
            plain[message.urn],
            refers_to={
                name: tuple(plain[urn] for urn in known.urns if urn in plain)
                for name, known in message.propertyDependencies.items()
            },
        )
        for message in messages
    }


def _declared(message: Any, may_go: Collection[str]) -> Declared:
    properties = _plain(json_format.MessageToDict(message.properties))
    name = message.name or message.urn.rpartition("::")[2]
    return Declared(
        type=message.type,
        name=name,
        properties=properties if isinstance(properties, dict) else {},
        is_protected=message.options.protect,
        ignores=tuple(message.options.ignoreChanges),
        may_go=name in may_go,
    )


def _plain(value: object) -> object:
    """A value of the wire: secrets opened, whole numbers as int, what is unknown marked."""
    if isinstance(value, dict):
        if value.get(_SIGNATURE) == _SECRET:
            return _plain(value.get("value"))
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return UNKNOWN if isinstance(value, str) and value in _UNKNOWN else value


def _pack_info() -> Any:
    return analyzer_pb2.AnalyzerInfo(
        name=PACK,
        displayName="moe-infra",
        version=VERSION,
        supportsConfig=True,
        policies=list(_policies()),
    )


def _policies() -> Iterator[Any]:
    kinds = analyzer_pb2.PolicyType
    one, every = kinds.Value("POLICY_TYPE_RESOURCE"), kinds.Value("POLICY_TYPE_STACK")
    rows = [(rule.name, rule.description, one) for rule in ONE_RULES]
    rows += [(TAG_RULE, TAG_DESCRIPTION, one)]
    rows += [(rule.name, rule.description, every) for rule in ALL_RULES]
    for name, description, kind in rows:
        policy = analyzer_pb2.PolicyInfo(
            name=name,
            displayName=name,
            description=description,
            enforcementLevel=analyzer_pb2.MANDATORY,
            policy_type=kind,
        )
        if name == TAG_RULE:
            tags = {"type": "array", "items": {"type": "string"}}
            policy.configSchema.properties.update({"tags": tags})
        yield policy
