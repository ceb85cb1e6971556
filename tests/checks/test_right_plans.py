"""What a rule once refused and the engines and routers take."""

from __future__ import annotations

import json

import pytest

from tests.checks.cases import (
    GB200,
    Change,
    Document,
    both,
    every,
    flag,
    one_model,
    process,
    without,
)
from tests.checks.test_rules import document_of, judged

MOONCAKE = "sglang-pd-mooncake"


def rules_of(stack: str, change: Change) -> dict[str, str]:
    document = json.loads(document_of(stack))
    change(document)
    return {problem.rule: problem.what for problem in judged(document)}


@pytest.mark.parametrize(
    "option", ["--max-concurrent-requests", "--rate-limit-tokens-per-second", "--redis-pool-max"]
)
def test_a_router_takes_the_negative_numbers_that_its_release_takes(option: str) -> None:
    assert "router-number" not in rules_of(MOONCAKE, flag("router/0", option, "-1"))
    assert "router-number" in rules_of(GB200, flag("router/0", "--queue-size", "-1"))


def test_the_proxy_of_vllm_ascend_is_no_wheel() -> None:
    assert "router-number" not in rules_of("a3-2p1d", flag("router/0", "--max-retries", "-1"))


@pytest.mark.parametrize(
    "template",
    ["tool_chat_template_kimi.txt", "kimi.j2", "template_basic.jinja", "templates/kimi", "{{ x }}"],
)
def test_vllm_takes_what_may_be_a_file(template: str) -> None:
    found = rules_of("h200-tp8", flag("unified-0/0", "--chat-template", template))
    assert "chat-template" not in found


@pytest.mark.parametrize("template", ["kimi.j2", "kimi_k2.txt"])
def test_sglang_takes_two_kinds_of_files_alone(template: str) -> None:
    found = rules_of("h200-sglang-tp8", flag("unified-0/0", "--chat-template", template))
    assert "chat-template" in found


def served(role: str, *names: str) -> Change:
    """Names of every process of a role; none removes the flag."""

    def change_of(name: str) -> Change:
        def change(document: Document) -> None:
            flag(name, "--served-model-name", None)(document)
            if names:
                process(document, name)["argv"] += ["--served-model-name", *names]

        return change

    return every(role, change_of)


def weights(role: str, path: str) -> Change:
    return every(role, lambda name: one_model(name, path))


@pytest.mark.parametrize(
    "change",
    [
        both(
            weights("prefill", "/m/x"),
            weights("decode", "/m/x"),
            served("prefill"),
            served("decode", "/m/x"),
        ),
        both(served("prefill", "a", "b"), served("decode", "a")),
        both(served("prefill", "b", "a"), served("decode", "a", "b")),
        both(served("prefill", "$NAME"), served("decode", "a")),
    ],
)
def test_processes_with_a_common_name_serve_one_model(change: Change) -> None:
    assert "served-name-differs" not in rules_of(GB200, change)


def test_a_name_that_only_some_share_is_not_common() -> None:
    change = both(served("prefill", "a", "b"), served("decode", "b"))
    both_serve_b = rules_of(GB200, change)
    assert "served-name-differs" not in both_serve_b
    one_of_them = both(change, flag("prefill-1/0", "--served-model-name", "a"))
    assert "serves" in rules_of(GB200, one_of_them)["served-name-differs"]


def test_the_model_is_the_name_where_no_flag_gives_one() -> None:
    found = rules_of(GB200, both(served("prefill"), served("decode", "a")))
    assert "None" not in found["served-name-differs"]
    assert "/models/" in found["served-name-differs"]


def two_routers(document: Document) -> None:
    """The first prefill group becomes a deployment with another name, behind a router of its own."""
    first = process(document, "router/0")
    pairs = list(zip(first["argv"], first["argv"][1:], strict=False))
    urls = [url for word, url in pairs if word == "--prefill" and "192.0.2.1:" in url]
    words = ["vllm-router", "--host", "0.0.0.0", "--port", "8001", "--worker-urls", *urls]
    document["processes"].append(first | {"id": "router/1", "argv": words})
    for url in urls:
        at = first["argv"].index(url)
        first["argv"][at - 1 : at + 1] = []
    for row in document["processes"]:
        if row["group"] == "prefill/0":
            flag(row["id"], "--served-model-name", "other")(document)


def test_each_router_has_a_name_of_its_own() -> None:
    assert "served-name-differs" not in rules_of(GB200, two_routers)
    one_of_it = both(two_routers, flag("prefill-0/3", "--served-model-name", "x"))
    assert rules_of(GB200, one_of_it)["served-name-differs"].startswith(
        "prefill-0/3 serves x, and prefill-0/0 serves other"
    )


def test_a_gateway_of_several_models_may_list_different_names() -> None:
    change = both(served("decode", "x"), flag("router/0", "--enable-igw", ""))
    assert "served-name-differs" not in rules_of(GB200, change)
    assert "served-name-differs" in rules_of(GB200, served("decode", "x"))


def test_without_a_router_groups_are_deployments_of_their_own() -> None:
    assert "served-name-differs" not in rules_of(
        GB200, both(served("decode", "x"), without("router/0"))
    )
