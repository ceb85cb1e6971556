"""What an operator may write as a source of weights, and what the agent gets of it."""

from __future__ import annotations

import pytest

from infra.catalog.load import Catalog
from infra.errors import StackError
from infra.render.weight_source import weight_source

ID, REVISION = "kimi-k2.5-int4", "abc"
BELOW = f"{ID}/{REVISION}"


@pytest.mark.parametrize(
    ("text", "document"),
    [
        (None, {"kind": "huggingface"}),
        ("huggingface", {"kind": "huggingface"}),
        ("modelscope", {"kind": "modelscope"}),
        (
            "huggingface+https://hf-mirror.com/",
            {"kind": "huggingface", "endpoint": "https://hf-mirror.com"},
        ),
        ("s3://b/p/q", {"kind": "s3", "bucket": "b", "prefix": f"p/q/{BELOW}"}),
        ("s3://b", {"kind": "s3", "bucket": "b", "prefix": BELOW}),
        (
            "s3+https://minio:9000/b/p",
            {"kind": "s3", "bucket": "b", "prefix": f"p/{BELOW}", "endpoint": "https://minio:9000"},
        ),
        ("http://10.0.0.1/w", {"kind": "web", "url": f"http://10.0.0.1/w/{BELOW}"}),
        ("/mnt", {"kind": "folder", "paths": [f"/mnt/{BELOW}", f"/mnt/{ID}", "/mnt"]}),
    ],
)
def test_a_source_is_understood(
    catalog: Catalog, text: str | None, document: dict[str, object]
) -> None:
    found = weight_source(text, catalog.checkpoint(ID), REVISION)
    if document["kind"] in {"huggingface", "modelscope"}:
        document = {**document, "repository": "moonshotai/Kimi-K2.5", "revision": REVISION}
    assert (found.document, found.host) == (document, None)


def test_another_host_is_named(catalog: Catalog) -> None:
    found = weight_source("host:old-0", catalog.checkpoint(ID), REVISION)
    assert (found.document, found.host) == ({}, "old-0")


def test_a_hub_takes_its_own_token_and_others_none(catalog: Catalog) -> None:
    checkpoint = catalog.checkpoint(ID)
    assert weight_source(None, checkpoint, REVISION).secret == "hf_token"
    assert weight_source("/mnt", checkpoint, REVISION).secret is None


@pytest.mark.parametrize(
    "text",
    ["ftp://x", "huggingface+ftp://x", "s3://", "s3+ftp://x/b", "host:", "models"],
)
def test_anything_else_is_refused_with_the_forms(catalog: Catalog, text: str) -> None:
    with pytest.raises(StackError, match="Write huggingface"):
        weight_source(text, catalog.checkpoint(ID), REVISION)


def test_a_wrong_word_of_the_command_line_is_not_called_the_stacks(catalog: Catalog) -> None:
    with pytest.raises(StackError, match="--source: 'ftp://x' has the scheme ftp"):
        weight_source("ftp://x", catalog.checkpoint(ID), REVISION, "--source")


def test_what_no_hub_has_must_be_said_where_it_is(catalog: Catalog) -> None:
    made_here = catalog.checkpoint("tiny-qwen3-moe")
    with pytest.raises(StackError, match=r"No hub has tiny-qwen3-moe\. Name the folder"):
        weight_source(None, made_here, REVISION)
    assert weight_source("/srv", made_here, REVISION).shown == "/srv"
