from __future__ import annotations

import subprocess
import sys
from typing import Any

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
from google.protobuf import empty_pb2, struct_pb2  # type: ignore[import-untyped]  # as grpc
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from infra.provision.policy import rules
from infra.provision.policy.analyzer import PACK, Analyzer, read_resources
from infra.provision.policy.declared import UNKNOWN

UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
TAGS = {"Name": "x", "moe-infra:stack": "mine"}
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}


def struct(**values: Any) -> struct_pb2.Struct:
    message = struct_pb2.Struct()
    message.update(values)
    return message


def urn(token: str, name: str) -> str:
    return f"urn:pulumi:mine::moe-infra::{token}::{name}"


def request(token: str, **properties: Any) -> Any:
    return analyzer_pb2.AnalyzeRequest(
        type=token, urn=urn(token, "x"), name="x", properties=struct(**properties)
    )


def findings(answer: Any) -> dict[str, str]:
    return {each.policyName: each.message for each in answer.diagnostics}


def test_a_violation_is_mandatory_and_names_its_resource_and_rule() -> None:
    answer = Analyzer().analyze(request(rules.INGRESS_RULE, cidrIpv4="0.0.0.0/0"))
    found = {each.policyName: each for each in answer.diagnostics}
    assert set(found) == {"no-ingress-from-the-world", rules.TAG_RULE}
    first = found["no-ingress-from-the-world"]
    assert (first.enforcementLevel, first.policyPackName) == (analyzer_pb2.MANDATORY, PACK)
    assert first.urn == urn(rules.INGRESS_RULE, "x")
    assert "0.0.0.0/0" in first.message


def test_what_a_preview_does_not_know_is_neither_right_nor_wrong() -> None:
    answer = Analyzer().analyze(request(rules.INGRESS_RULE, cidrIpv4=UNKNOWN_TEXT))
    assert "no-ingress-from-the-world" not in findings(answer)
    (read,) = read_resources([request_resource(rules.SUBNET, "a", vpcId=UNKNOWN_TEXT)]).values()
    assert read.properties["vpcId"] is UNKNOWN


def test_secrets_are_judged_and_never_repeated() -> None:
    tags = {**SECRET, "value": {"Name": "hush", "moe-infra:stack": "mine"}}
    assert findings(Analyzer().analyze(request("aws:ec2/vpc:Vpc", tags=tags))) == {}


def test_levels_and_further_tags_come_from_the_configuration() -> None:
    analyzer = Analyzer()
    advisory, tags = (analyzer_pb2.PolicyConfig() for _ in range(2))
    advisory.enforcementLevel = analyzer_pb2.ADVISORY
    tags.enforcementLevel = analyzer_pb2.MANDATORY
    tags.properties.update({"tags": ["owner"]})
    wanted = {"protected-weights": advisory, rules.TAG_RULE: tags}
    analyzer.configure(analyzer_pb2.ConfigureAnalyzerRequest(policyConfig=wanted))
    whole = {"Name": "x", "moe-infra:stack": "mine"}
    answer = analyzer.analyze(request(rules.BUCKET, tags=whole))
    levels = {each.policyName: each.enforcementLevel for each in answer.diagnostics}
    assert levels == {
        "protected-weights": analyzer_pb2.ADVISORY,
        rules.TAG_RULE: analyzer_pb2.MANDATORY,
    }
    assert findings(answer)[rules.TAG_RULE] == "It lacks the tags owner."


def test_hosts_that_may_go_come_from_the_stacks_own_configuration() -> None:
    def rules_about(name: str, analyzer: Analyzer) -> set[str]:
        asked = request(rules.INSTANCE, launchTemplate={"id": "lt-1"}, tags=TAGS)
        asked.name = name
        return set(findings(analyzer.analyze(asked)))

    analyzer = Analyzer()
    assert rules_about("decode-0", analyzer) == {"machines-stand"}
    wanted = {"moe-infra:replace_machines": "decode-0,decode-1"}
    analyzer.configure_stack(analyzer_pb2.AnalyzerStackConfigureRequest(config=wanted))
    assert rules_about("decode-1", analyzer) == set()
    assert rules_about("decode-2", analyzer) == {"machines-stand"}


def test_what_the_program_ignores_is_read() -> None:
    asked = request(rules.INSTANCE, launchTemplate={"id": "lt-1"}, tags=TAGS)
    asked.options.ignoreChanges.append("launchTemplate")
    assert findings(Analyzer().analyze(asked)) == {}


def request_resource(token: str, name: str, **properties: Any) -> Any:
    return analyzer_pb2.AnalyzerResource(
        type=token, urn=urn(token, name), name=name, properties=struct(**properties)
    )


def test_a_stack_is_judged_by_what_its_properties_come_from() -> None:
    group = request_resource(rules.SECURITY_GROUP, "hosts")
    template = request_resource(
        rules.TEMPLATE, "hosts", networkInterfaces=[{"interfaceType": "efa-only"}]
    )
    template.propertyDependencies["networkInterfaces"].urns.append(group.urn)
    rule = request_resource(rules.INGRESS_RULE, "in", ipProtocol="-1")
    for name in ("securityGroupId", "referencedSecurityGroupId"):
        rule.propertyDependencies[name].urns.append(group.urn)
    asked = analyzer_pb2.AnalyzeStackRequest(resources=[group, template, rule])
    (only,) = Analyzer().analyze_stack(asked).diagnostics
    assert only.urn == group.urn
    assert "out to the group itself" in only.message


def test_the_pack_is_served_as_the_engine_starts_it() -> None:
    words = (sys.executable, "-P", "-m", "infra.provision.policy")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            info = analyzer_pb2_grpc.AnalyzerStub(channel).GetAnalyzerInfo(empty_pb2.Empty())
        process.terminate()
        assert process.wait(timeout=10) == 0
    named = {rule.name for rule in rules.ONE_RULES} | {rule.name for rule in rules.ALL_RULES}
    assert {policy.name for policy in info.policies} == named | {rules.TAG_RULE}
    assert info.supportsConfig
