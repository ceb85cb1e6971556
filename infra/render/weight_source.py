"""Where a stack's checkpoints are copied from: `weights.source` as the agent understands it.

| written | meaning |
|---|---|
| nothing | the hub that the catalogue names for the checkpoint |
| `huggingface`, `modelscope` | that hub |
| `huggingface+https://mirror`, `modelscope+https://mirror` | a mirror with that hub's API |
| `s3://bucket/prefix` | `<prefix>/<checkpoint>/<revision>/` of a bucket on AWS |
| `s3+https://store/bucket/prefix` | the same in another store with S3's API |
| `https://server/path` | `<path>/<checkpoint>/<revision>/` of a web server, with a manifest.json |
| `/path` | `<path>/<checkpoint>/<revision>`, `<path>/<checkpoint>` or the folder itself, on any of the hosts |
| `host:NAME` | another host of the inventory, which holds it already |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.catalog.schema import Checkpoint
from infra.errors import StackError

HUBS = ("huggingface", "modelscope")
_WHERE = "weights.source"
_FORMS = (
    "Write huggingface, modelscope, huggingface+https://MIRROR, s3://BUCKET/PREFIX, "
    "s3+https://STORE/BUCKET/PREFIX, https://SERVER/PATH, /PATH or host:NAME."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSource:
    """An origin of one checkpoint.

    Args:
        document: what the agent gets; empty where only another host is asked.
        host: the host that holds it, for `host:NAME`.
        shown: how messages call it.
        secret: the stack's secret that it takes, if the stack declares it.
    """

    document: Mapping[str, object] = field(repr=False)
    host: str | None
    shown: str
    secret: str | None


def weight_source(text: str | None, checkpoint: Checkpoint, revision: str) -> WeightSource:
    """The origin of one checkpoint at one revision.

    Raises:
        StackError: the text is none of the forms above.
    """
    text = (text or checkpoint.hub).rstrip("/") or "/"
    below = f"{checkpoint.id}/{revision}"
    kind, _, rest = text.partition("+")
    if kind in HUBS:
        return _hub(kind, rest, checkpoint, revision)
    if text.startswith(("s3://", "s3+")):
        return _s3(text, below)
    if text.startswith(("http://", "https://")):
        return _source({"kind": "web", "url": f"{text}/{below}"}, text)
    if text.startswith("/"):
        paths = [f"{text}/{below}", f"{text}/{checkpoint.id}", text]
        return _source({"kind": "folder", "paths": paths}, text)
    if text.startswith("host:") and text != "host:":
        return WeightSource(document={}, host=text[5:], shown=text[5:], secret=None)
    raise StackError(_WHERE, f"{text!r} is no source of weights.", _FORMS)


def _hub(kind: str, endpoint: str, checkpoint: Checkpoint, revision: str) -> WeightSource:
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise StackError(_WHERE, f"{endpoint!r} is no address of a mirror.", _FORMS)
    document = {"kind": kind, "repository": checkpoint.repository, "revision": revision}
    return WeightSource(
        document={**document, **({"endpoint": endpoint} if endpoint else {})},
        host=None,
        shown=f"{checkpoint.repository} at {endpoint or kind}",
        secret="hf_token" if kind == "huggingface" else "modelscope_token",
    )


def _s3(text: str, below: str) -> WeightSource:
    scheme, _, rest = text.partition("://")
    store, _, place = rest.partition("/") if scheme != "s3" else ("", "", rest)
    bucket, _, prefix = place.partition("/")
    if scheme not in {"s3", "s3+http", "s3+https"} or not bucket:
        raise StackError(_WHERE, f"{text!r} names no bucket.", _FORMS)
    document: dict[str, object] = {"kind": "s3", "bucket": bucket}
    document["prefix"] = f"{prefix}/{below}".strip("/")
    if store:
        document["endpoint"] = f"{scheme[3:]}://{store}"
    return _source(document, text)


def _source(document: Mapping[str, object], shown: str) -> WeightSource:
    return WeightSource(document=document, host=None, shown=shown, secret=None)
