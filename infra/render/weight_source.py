"""What the agent gets of a stack's `weights.source` (its forms: `infra.spec.weights_source`), for one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from infra.catalog.schema import Checkpoint
from infra.errors import StackError
from infra.spec.weights_source import (
    FIELD,
    BucketSource,
    FolderSource,
    HostSource,
    HubSource,
    WebSource,
    parse_weights_source,
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


def weight_source(
    text: str | None, checkpoint: Checkpoint, revision: str, where: str = FIELD
) -> WeightSource:
    """The origin of one checkpoint at one revision.

    Args:
        text: as in `weights.source`; None for the hub that the catalogue names.
        checkpoint: whose origin it is.
        revision: of the repository.
        where: the stack's field or the option that holds the text.

    Raises:
        StackError: the text is no source, or there is none for what no hub has.
    """
    if text is None and checkpoint.hub == "none":
        what = f"No hub has {checkpoint.id}."
        raise StackError(where, what, "Name the folder, server or host that holds it.")
    below = f"{checkpoint.id}/{revision}"
    source = parse_weights_source(checkpoint.hub if text is None else text, where)
    match source:
        case HubSource():
            return _hub(source, checkpoint, revision)
        case BucketSource():
            document = {"kind": "s3", "bucket": source.bucket}
            document["prefix"] = f"{source.prefix}/{below}".strip("/")
            if source.store is not None:
                document["endpoint"] = source.store
            return _source(document, str(text))
        case WebSource(url=url):
            return _source({"kind": "web", "url": f"{url}/{below}"}, url)
        case FolderSource(path=path):
            top = path.rstrip("/")
            paths = [f"{top}/{below}", f"{top}/{checkpoint.id}", path]
            return _source({"kind": "folder", "paths": paths}, path)
        case HostSource(name=name):
            return WeightSource(document={}, host=name, shown=name, secret=None)
        case _:
            assert_never(source)


def _hub(source: HubSource, checkpoint: Checkpoint, revision: str) -> WeightSource:
    document: dict[str, object] = {
        "kind": source.hub,
        "repository": checkpoint.repository,
        "revision": revision,
    }
    if source.endpoint is not None:
        document["endpoint"] = source.endpoint
    if source.sends_in_plain:
        document["sends_in_plain"] = True
    return WeightSource(
        document=document,
        host=None,
        shown=f"{checkpoint.repository} at {source.endpoint or source.hub}",
        secret=source.secret,
    )


def _source(document: Mapping[str, object], shown: str) -> WeightSource:
    return WeightSource(document=document, host=None, shown=shown, secret=None)
