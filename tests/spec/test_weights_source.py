"""Every form of `weights.source`, and what is said of a text that is none."""

from __future__ import annotations

import pytest

from infra.engines.credentials import TAKEN_SECRETS
from infra.errors import StackError
from infra.spec.section import Secrets
from infra.spec.weights_source import (
    HUB_SECRETS,
    BucketSource,
    FolderSource,
    HostSource,
    HubSource,
    WebSource,
    WeightsSource,
    parse_weights_source,
    refuse_plain_token,
)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("huggingface", HubSource(hub="huggingface", endpoint=None)),
        ("huggingface/", HubSource(hub="huggingface", endpoint=None)),
        (
            "modelscope+http://192.0.2.9:8080/api/",
            HubSource(hub="modelscope", endpoint="http://192.0.2.9:8080/api"),
        ),
        (
            "huggingface+http+token://192.0.2.9",
            HubSource(hub="huggingface", endpoint="http://192.0.2.9", sends_in_plain=True),
        ),
        ("s3://weights/a/b/", BucketSource(bucket="weights", prefix="a/b", store=None)),
        (
            "s3+http://[2001:db8::1]:9000/weights",
            BucketSource(bucket="weights", prefix="", store="http://[2001:db8::1]:9000"),
        ),
        ("https://files.example.com", WebSource(url="https://files.example.com")),
        ("/mnt/weights/", FolderSource(path="/mnt/weights")),
        ("/", FolderSource(path="/")),
        ("host:old-0", HostSource(name="old-0")),
    ],
)
def test_a_form_is_taken_apart(text: str, source: WeightsSource) -> None:
    assert parse_weights_source(text) == source


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("   ", "white space"),
        ("s3://my bucket", "white space"),
        ("hugging", "begins neither with a scheme"),
        ("models/kimi", "relative path or the repository"),
        ("moonshotai/Kimi-K2.5", "relative path or the repository"),
        ("./models", "begins neither with a scheme"),
        ("hf:moonshotai/Kimi-K2.5", "has the scheme hf, and nothing of it follows"),
        ("huggingface+", "names no mirror"),
        ("huggingface+https://", "nothing of it follows"),
        ("huggingface+ftp://mirror", "no http or https address"),
        ("modelscope://mirror", "no http or https address"),
        ("gs://bucket/prefix", "has the scheme gs"),
        ("s3:bucket", "has the scheme s3, and nothing of it follows"),
        ("s3:///prefix", "names no bucket"),
        ("s3://-x-/prefix", "no name of a bucket"),
        ("s3+https://store", "names no bucket"),
        ("s3+https:///bucket", "names no server"),
        ("s3+ftp://store/bucket", "no http or https address"),
        ("https:///path", "names no server"),
        ("https://server:port/x", "names no server|no http or https address"),
        ("https://server/x?token=1", "query"),
        ("https://me:word@server/x", "login"),
        ("host:", "names no host"),
        ("host:a/b", "names no host"),
    ],
)
def test_what_is_none_is_refused_by_its_fault(text: str, said: str) -> None:
    with pytest.raises(StackError, match=said) as told:
        parse_weights_source(text)
    assert told.value.fix
    assert "me:word" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "secrets", "is_refused"),
    [
        ("huggingface+http://192.0.2.9", ["hf_token"], True),
        ("modelscope+http://192.0.2.9", ["modelscope_token"], True),
        ("modelscope+http://192.0.2.9", ["hf_token"], False),
        ("huggingface+http://192.0.2.9", [], False),
        ("huggingface+http://127.0.0.1:8080", ["hf_token"], False),
        ("huggingface+https://192.0.2.9", ["hf_token"], False),
        ("huggingface+http+token://192.0.2.9", ["hf_token"], False),
        ("huggingface", ["hf_token"], False),
    ],
)
def test_a_token_goes_over_plain_http_where_the_source_says_so_alone(
    text: str, secrets: list[str], is_refused: bool
) -> None:
    source = parse_weights_source(text)
    if not is_refused:
        refuse_plain_token(source, secrets)
        return
    with pytest.raises(StackError, match=r"over plain HTTP.*\+http\+token://192\.0\.2\.9"):
        refuse_plain_token(source, secrets)


@pytest.mark.parametrize("hub", HUB_SECRETS)
def test_the_token_of_every_hub_can_be_declared(hub: str) -> None:
    source = parse_weights_source(hub)
    assert isinstance(source, HubSource)
    assert source.secret in Secrets.model_fields
    assert source.secret in TAKEN_SECRETS
