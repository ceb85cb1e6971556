"""What an operator may write as `weights.source`, taken apart; the one place that knows its forms.

| written | meaning |
|---|---|
| `huggingface`, `modelscope` | that hub; the repository is the catalogue's for the checkpoint |
| `huggingface+https://mirror`, `modelscope+https://mirror` | a mirror with that hub's API |
| `huggingface+http+token://mirror` | a mirror over plain HTTP that is sent the hub's token all the same |
| `s3://bucket/prefix` | `<prefix>/<checkpoint>/<revision>/` of a bucket on AWS |
| `s3+https://store/bucket/prefix` | the same in another store with S3's API |
| `https://server/path` | `<path>/<checkpoint>/<revision>/` of a web server, with a manifest.json |
| `/path` | `<path>/<checkpoint>/<revision>`, `<path>/<checkpoint>` or the folder itself, on any of the hosts |
| `host:NAME` | another host of the inventory, which holds it already |
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from infra.errors import StackError

Hub = Literal["huggingface", "modelscope"]

FIELD = "weights.source"
FORMS = (
    "Write huggingface, modelscope, huggingface+https://MIRROR, s3://BUCKET/PREFIX, "
    "s3+https://STORE/BUCKET/PREFIX, https://SERVER/PATH, /PATH or host:NAME."
)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
IN_PLAIN = "http+token"
HUBS: dict[str, Hub] = {"huggingface": "huggingface", "modelscope": "modelscope"}
# The secret of a stack that holds each hub's token.
HUB_SECRETS: dict[Hub, str] = {"huggingface": "hf_token", "modelscope": "modelscope_token"}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A hub, or a mirror of it at `endpoint`.

    Args:
        sends_in_plain: whether a token may travel to the mirror where everybody on the way can read it.
    """

    hub: Hub
    endpoint: str | None
    sends_in_plain: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether whoever is on the way to the mirror reads what is sent, which the operator has not allowed."""
        parts = urlsplit(self.endpoint or "")
        is_plain = parts.scheme == "http" and parts.hostname not in LOOPBACK
        return is_plain and not self.sends_in_plain

    @property
    def secret(self) -> str:
        """The name of the secret that holds the hub's token."""
        return HUB_SECRETS[self.hub]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSource:
    """A bucket; `store` is the address of a store with S3's API, None for AWS."""

    bucket: str
    prefix: str
    store: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSource:
    """A folder on a web server."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """A folder that the hosts see."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSource:
    """A host of the inventory that holds the checkpoints already."""

    name: str


WeightsSource = HubSource | BucketSource | WebSource | FolderSource | HostSource


def parse_weights_source(written: str, field: str = FIELD) -> WeightsSource:
    """The source that a text means.

    Args:
        written: as the operator wrote it.
        field: where, for the message: the stack's field or the option.

    Raises:
        StackError: it is none of the forms above; the message says what is wrong with it.
    """
    text = written.rstrip("/") or written[:1]
    if not text or any(char.isspace() for char in text):
        raise _refused(field, written, "is empty" if not text else "holds white space")
    if text.startswith("/"):
        return FolderSource(path=text)
    head, colon, name = text.partition(":")
    if head == "host":
        if not _HOST.fullmatch(name):
            raise _refused(field, written, "names no host")
        return HostSource(name=name)
    if text in HUBS:
        return HubSource(hub=HUBS[text], endpoint=None)
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise _refused(field, written, _no_source(text, scheme=head if colon else ""))
    hub, plus, transport = scheme.partition("+")
    if hub in HUBS:
        sends_in_plain = transport == IN_PLAIN
        transport = "http" if sends_in_plain else transport
        endpoint = f"{transport}://{rest}"
        _check_address(field, written, endpoint if plus else text)
        return HubSource(hub=HUBS[hub], endpoint=endpoint, sends_in_plain=sends_in_plain)
    if hub == "s3":
        return _bucket(field, written, transport if plus else None, rest)
    if scheme not in {"http", "https"}:
        raise _refused(field, written, f"has the scheme {scheme}, which nothing here speaks")
    _check_address(field, written, text)
    return WebSource(url=text)


def refuse_plain_token(source: WeightsSource, secrets: Container[str], field: str = FIELD) -> None:
    """Refuse to send the token of a hub where everybody on the way can read it, unless the source says so.

    Args:
        source: of the weights.
        secrets: names of those that the stack has.
        field: where the source was written.

    Raises:
        StackError: the mirror is asked over plain HTTP, and the stack has a token for it.
    """
    if isinstance(source, HubSource) and source.is_readable and source.secret in secrets:
        what = f"The token {source.secret} would travel to {source.endpoint} over plain HTTP."
        address = (source.endpoint or "").removeprefix("http://")
        fix = (
            f"Use https, take {source.secret} out of the stack's secrets, or write "
            f"{source.hub}+{IN_PLAIN}://{address} where nobody else is on the way."
        )
        raise StackError(field, what, fix)


def _bucket(field: str, written: str, transport: str | None, rest: str) -> BucketSource:
    store, place = None, rest
    if transport is not None:
        server, _, place = rest.partition("/")
        store = f"{transport}://{server}"
        _check_address(field, written, store)
    bucket, _, prefix = place.partition("/")
    if not bucket:
        raise _refused(field, written, "names no bucket")
    if not _BUCKET.fullmatch(bucket):
        raise _refused(field, written, f"names {bucket}, which is no name of a bucket")
    return BucketSource(bucket=bucket, prefix=prefix.strip("/"), store=store)


def _check_address(field: str, written: str, address: str) -> None:
    """Refuse what is no plain http address of a server."""
    try:
        parts = urlsplit(address)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_fine = urlsplit(""), False
    if parts.scheme not in {"http", "https"}:
        raise _refused(field, written, f"has {address}, which is no http or https address")
    if not parts.hostname or not port_is_fine:
        raise _refused(field, written, f"has {address}, which names no server")
    if parts.username is not None or parts.password is not None:
        raise StackError(
            field,
            "It holds a login, which everybody who reads the stack would see.",
            "Let the server ask for none, or use a hub, whose token is a secret of the stack.",
        )
    if parts.query or parts.fragment:
        raise _refused(field, written, "ends in a query, and files are asked for below a path")


def _no_source(text: str, *, scheme: str) -> str:
    """What is wrong with a text that has no scheme and is no path."""
    if text.endswith("+"):
        return "names no mirror"
    if scheme or text == "s3":
        return f"has the scheme {scheme or text}, and nothing of it follows"
    if _REPOSITORY.fullmatch(text):
        return (
            "is a relative path or the repository of a hub; which repository follows from the checkpoint "
            "(infra/catalog/checkpoints/), and a folder begins with /"
        )
    return "is no source of weights: it begins neither with a scheme nor with /"


def _refused(field: str, written: str, what: str) -> StackError:
    return StackError(field, f"{written!r} {what}.", FORMS)
