"""Origins of weights: what they list, what they give, and what they keep from other servers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.agent.host import Host, Refused
from infra.agent.staging.s3_signing import Credentials, canonical_query, signed_headers
from infra.agent.staging.sources import open_origin
from infra.agent.staging.web import Hopeless, get_document
from tests.agent.simulated_hub import COMMIT, Hub, git_sha1
from tests.agent.stubborn_host import StubbornHost

FILES = {
    "config.json": b"{}",
    "model-00001.safetensors": b"one" * 1000,
    "model-00002.safetensors": b"two" * 1000,
    "sub/tokenizer.model": b"words",
}
SHARD = "model-00001.safetensors"


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub(("127.0.0.1", 0), {**FILES, ".gitattributes": b"*"})
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def source(hub: Hub, kind: str, **keys: object) -> dict[str, Any]:
    common = {"kind": kind, "endpoint": hub.url, "repository": "org/kimi", "revision": "main"}
    return {**common, **keys}


def origin(described: dict[str, Any], host: Host | None = None) -> Any:
    return open_origin(described, host or Host(), 5.0)


def content(place: Any, name: str, offset: int = 0) -> bytes:
    return get_document(place.open_file(name, offset))


def test_hugging_face_lists_checksums_of_large_and_of_small_files(hub: Hub) -> None:
    hub.spoiling = {"page": 2}
    listing = origin(source(hub, "huggingface")).list_files()
    assert [entry.name for entry in listing.files] == sorted(FILES)
    by_name = {entry.name: entry for entry in listing.files}
    assert by_name[SHARD].sha256 == hashlib.sha256(FILES[SHARD]).hexdigest()
    assert by_name["config.json"].sha256 is None
    assert by_name["config.json"].git_sha1 == git_sha1(b"{}")
    assert listing.commit == COMMIT


def test_hugging_face_gives_a_file_from_a_byte_on(hub: Hub) -> None:
    place = origin(source(hub, "huggingface", commit=COMMIT))
    assert content(place, SHARD, 10) == FILES[SHARD][10:]
    assert content(place, "sub/tokenizer.model") == b"words"


def test_a_token_goes_to_the_hub_and_not_to_the_store_that_it_redirects_to(hub: Hub) -> None:
    hub.spoiling = {"token": "hf_secret", "redirect": True}
    place = origin(source(hub, "huggingface", token="hf_secret"))
    assert content(place, SHARD, 5) == FILES[SHARD][5:]
    first, second = hub.headers_seen
    assert first["authorization"] == "Bearer hf_secret"
    assert "authorization" not in second
    assert second["range"] == "bytes=5-"


def test_a_refused_token_is_hopeless_and_says_that_none_was_sent(hub: Hub) -> None:
    hub.spoiling = {"token": "hf_secret"}
    with pytest.raises(Hopeless, match=r"401.*no hf_token was sent"):
        origin(source(hub, "huggingface")).list_files()


def test_modelscope_lists_and_gives(hub: Hub) -> None:
    place = origin(source(hub, "modelscope"))
    entries = {entry.name: entry for entry in place.list_files().files}
    assert sorted(entries) == sorted(FILES)
    assert entries["config.json"].sha256 == hashlib.sha256(b"{}").hexdigest()
    assert content(place, SHARD, 7) == FILES[SHARD][7:]


def test_s3_lists_objects_where_there_is_no_manifest(hub: Hub) -> None:
    place = origin({"kind": "s3", "endpoint": hub.url, "bucket": "bucket", "prefix": "kimi"})
    entries = {entry.name: entry for entry in place.list_files().files}
    assert (entries[SHARD].size_bytes, entries[SHARD].sha256) == (3000, None)
    assert content(place, SHARD, 2999) == b"e"


def test_s3_takes_checksums_from_a_manifest(hub: Hub) -> None:
    rows = [{"name": "config.json", "size_bytes": 2, "sha256": "a" * 64}]
    hub.files["manifest.json"] = json.dumps({"files": rows}).encode()
    place = origin({"kind": "s3", "endpoint": hub.url, "bucket": "bucket", "prefix": "kimi/"})
    assert [entry.sha256 for entry in place.list_files().files] == ["a" * 64]


def test_s3_requests_are_signed_with_roots_own_key(hub: Hub, tmp_path: Path) -> None:
    host = StubbornHost(tmp_path)
    text = "[default]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n"
    host.put("/root/.aws/credentials", text)
    described = {"kind": "s3", "endpoint": hub.url, "bucket": "bucket", "prefix": "kimi"}
    content(origin({**described, "region": "eu-west-1"}, host), SHARD, 1)
    signed = hub.headers_seen[-1]
    assert signed["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA/")
    assert "/eu-west-1/s3/aws4_request" in signed["authorization"]
    assert "secret" not in str(signed)


def test_a_signature_is_the_one_of_amazons_own_example() -> None:
    """Amazon S3 API reference, `Authenticating requests: examples`, GET object with a range (2013-05-24)."""
    keys = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None)
    url = "https://examplebucket.s3.amazonaws.com/test.txt"
    headers = signed_headers(url, "us-east-1", keys, 1369353600.0, {"Range": "bytes=0-9"})
    assert headers["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_a_query_is_in_the_order_that_is_signed() -> None:
    assert canonical_query({"prefix": "a/b c", "list-type": "2"}) == "list-type=2&prefix=a%2Fb%20c"


def test_a_web_folder_needs_its_manifest(hub: Hub) -> None:
    place = origin({"kind": "web", "url": f"{hub.url}/store"})
    with pytest.raises(Hopeless, match="404"):
        place.list_files()
    rows = [{"name": "config.json", "size_bytes": 2}]
    hub.files["manifest.json"] = json.dumps({"files": rows}).encode()
    assert [entry.name for entry in place.list_files().files] == ["config.json"]
    assert content(place, "config.json") == b"{}"


def test_a_folder_lists_what_lies_there(tmp_path: Path) -> None:
    host = StubbornHost(tmp_path)
    host.put("/mnt/kimi/sub/tokenizer.model", b"words")
    host.put("/mnt/kimi/.cache/left", b"no")
    place = origin({"kind": "folder", "paths": ["/mnt/none", "/mnt/kimi"]}, host)
    entries = place.list_files().files
    assert [(entry.name, entry.size_bytes) for entry in entries] == [("sub/tokenizer.model", 5)]
    with pytest.raises(Hopeless, match="no folder"):
        origin({"kind": "folder", "paths": ["/mnt/none"]}, host).list_files()


def test_an_empty_origin_is_no_checkpoint(hub: Hub) -> None:
    hub.files.clear()
    with pytest.raises(Hopeless, match="no file of this checkpoint"):
        origin(source(hub, "modelscope")).list_files()


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Refused, match="'ftp' is no source"):
        origin({"kind": "ftp"})
