"""Where checkpoints come from: hubs, S3, a web server, a folder, another host; each lists its files and opens one.

Every origin has `list_files() -> Listing` and `open_file(name, offset)`, whose answer has `readinto`
and `close`.

Sources: Hugging Face's `GET /api/models/REPO/revision/REV` (`sha`) and `/tree/REV?recursive=1` (`type`, `path`,
`size`, `oid`: a git blob's SHA-1, `lfs.oid`: the content's SHA-256), 1,000 rows a page with a `Link` header;
ModelScope's `/api/v1/models/REPO/repo/files?Revision=&Recursive=true` (`Data.Files[]`: `Path`, `Type`, `Size`,
`Sha256`) and `/repo?Revision=&FilePath=`, as its own client and public scripts use them. Both were spoken to in
tests through stand-ins of those shapes, not live (read 2026-11-20).
"""

import http.client
import json
import os
import re
import time
import urllib.parse
import xml.etree.ElementTree as ET
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from ..host import Host, Refused
from ..trees import Tree, open_file, open_tree
from .manifest import MANIFEST, VERIFIED, Entry, entry_of, parse_manifest
from .s3_signing import canonical_query, find_credentials, signed_headers
from .web import (
    Answer,
    Hopeless,
    get,
    get_document,
    origin_of,
    range_header,
    refuse_in_plain,
    skip_to,
)

HUGGING_FACE = "https://huggingface.co"
MODELSCOPE = "https://modelscope.cn"
NEXT_PAGE = re.compile(r'<([^>]+)>;\s*rel="next"')
NOT_WEIGHTS = (".gitattributes",)
MAX_PAGES = 100
S3_DEFAULT_REGION = "us-east-1"


class Listing(NamedTuple):
    """What an origin has of a checkpoint.

    Args:
        files: sorted by name.
        commit: what the revision is at this moment, where the origin says so.
    """

    files: List[Entry]
    commit: Optional[str]


class HuggingFace:
    """The hub at huggingface.co, or a mirror with its API."""

    def __init__(self, source: Dict[str, Any], _host: Host, timeout_s: float) -> None:
        """Take endpoint, repository, revision and token of a request."""
        self.endpoint = str(source.get("endpoint") or HUGGING_FACE).rstrip("/")
        self._repository = str(source["repository"])
        self._revision = str(source.get("commit") or source["revision"])
        self._timeout_s = timeout_s
        self._private = _token_header(source, self.endpoint)

    def list_files(self) -> Listing:
        """Every file at the revision, with the checksum that the hub keeps of it."""
        base = "{}/api/models/{}".format(self.endpoint, self._repository)
        revision = urllib.parse.quote(self._revision, safe="")
        head = json.loads(get_document(self._get("{}/revision/{}".format(base, revision))))
        commit = str(head.get("sha") or self._revision)
        url = "{}/tree/{}?recursive=1".format(base, commit)
        entries = []
        for _ in range(MAX_PAGES):
            answer = self._get(url)
            following = NEXT_PAGE.search(answer.response.getheader("Link") or "")
            rows = json.loads(get_document(answer))
            entries += [_hugging_face_entry(row) for row in rows if row.get("type") == "file"]
            if following is None:
                return Listing(_kept(entries), commit)
            url = urllib.parse.urljoin(url, following.group(1))
        raise Hopeless("{} lists more than {} pages".format(self.endpoint, MAX_PAGES))

    def open_file(self, name: str, offset: int) -> Answer:
        """A file from a byte on."""
        path = "{}/resolve/{}/{}".format(
            self._repository, urllib.parse.quote(self._revision, safe=""), urllib.parse.quote(name)
        )
        answer = self._get("{}/{}".format(self.endpoint, path), range_header(offset))
        skip_to(answer, offset)
        return answer

    def _get(self, url: str, headers: Optional[Dict[str, str]] = None) -> Answer:
        # the next page may lie anywhere
        private = self._private if origin_of(url) == origin_of(self.endpoint) else {}
        try:
            return get(url, self._timeout_s, headers, private)
        except Hopeless as error:
            hint = "" if self._private else "; no hf_token was sent"
            raise Hopeless("{}{}".format(error, hint)) from error


class ModelScope:
    """The hub at modelscope.cn, or a mirror with its API."""

    def __init__(self, source: Dict[str, Any], _host: Host, timeout_s: float) -> None:
        """Take endpoint, repository, revision and token of a request."""
        self.endpoint = str(source.get("endpoint") or MODELSCOPE).rstrip("/")
        self._base = "{}/api/v1/models/{}/repo".format(self.endpoint, source["repository"])
        self._revision = str(source["revision"])
        self._timeout_s = timeout_s
        self._private = _token_header(source, self.endpoint)

    def list_files(self) -> Listing:
        """Every file at the revision, with its SHA-256."""
        query = urllib.parse.urlencode({"Revision": self._revision, "Recursive": "true"})
        url = "{}/files?{}".format(self._base, query)
        document = json.loads(get_document(get(url, self._timeout_s, None, self._private)))
        try:
            rows = document["Data"]["Files"]
            entries = [_modelscope_entry(row) for row in rows if row.get("Type") != "tree"]
        except (KeyError, TypeError) as error:
            text = "{} lists no files: {}".format(self.endpoint, str(document)[:200])
            raise Hopeless(text) from error
        return Listing(_kept(entries), None)

    def open_file(self, name: str, offset: int) -> Answer:
        """A file from a byte on."""
        query = urllib.parse.urlencode({"Revision": self._revision, "FilePath": name})
        url = "{}?{}".format(self._base, query)
        answer = get(url, self._timeout_s, range_header(offset), self._private)
        skip_to(answer, offset)
        return answer


class WebFolder:
    """A folder on a web server; its manifest says what is there."""

    def __init__(self, source: Dict[str, Any], _host: Host, timeout_s: float) -> None:
        """Take the URL of a request."""
        self.endpoint = str(source["url"]).rstrip("/")
        self._timeout_s = timeout_s

    def list_files(self) -> Listing:
        """What the manifest there lists."""
        content = get_document(self.open_file(MANIFEST, 0))
        return Listing(_kept(parse_manifest(content)), None)

    def open_file(self, name: str, offset: int) -> Answer:
        """A file from a byte on."""
        url = "{}/{}".format(self.endpoint, urllib.parse.quote(name))
        answer = get(url, self._timeout_s, range_header(offset))
        skip_to(answer, offset)
        return answer


class S3Folder:
    """Objects below a prefix of an S3 bucket; their checksums are in the manifest there, if there is one."""

    def __init__(self, source: Dict[str, Any], host: Host, timeout_s: float) -> None:
        """Take bucket, prefix, region and endpoint of a request, and the host's credentials."""
        endpoint = source.get("endpoint")
        bucket = str(source["bucket"])
        self._is_aws = endpoint is None
        self._region = str(source.get("region") or "")
        self._prefix = str(source["prefix"]).strip("/")
        self._timeout_s = timeout_s
        self._credentials = find_credentials(host, endpoint)
        self._bucket = bucket
        self.endpoint = "{}/{}".format(str(endpoint).rstrip("/"), bucket) if endpoint else ""
        self._place()

    def list_files(self) -> Listing:
        """What the manifest lists, else every object by name and size."""
        try:
            content = get_document(self.open_file(MANIFEST, 0))
            return Listing(_kept(parse_manifest(content)), None)
        except Hopeless:
            return Listing(_kept(self._objects()), None)

    def open_file(self, name: str, offset: int) -> Answer:
        """A file from a byte on."""
        key = "{}/{}".format(self._prefix, name) if self._prefix else name
        url = "{}/{}".format(self.endpoint, urllib.parse.quote(key, safe="/-_.~"))
        answer = self._get(url, range_header(offset))
        skip_to(answer, offset)
        return answer

    def _objects(self) -> List[Entry]:
        entries: List[Entry] = []
        following = None
        for _ in range(MAX_PAGES):
            values = {"list-type": "2", "prefix": self._prefix + "/" if self._prefix else ""}
            values.update({"continuation-token": following} if following else {})
            answer = self._get("{}/?{}".format(self.endpoint, canonical_query(values)), {})
            # expat 2.4 and newer bound what entities grow to; the store is the stack's own
            page = ET.fromstring(get_document(answer))  # noqa: S314 - as above
            namespace = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            for row in page.iter(namespace + "Contents"):
                key = row.findtext(namespace + "Key") or ""
                name = key[len(values["prefix"]) :]
                if name and not name.endswith("/"):
                    size = int(row.findtext(namespace + "Size") or 0)
                    entries.append(entry_of({"name": name, "size_bytes": size}))
            following = page.findtext(namespace + "NextContinuationToken")
            if not following:
                return entries
        raise Hopeless("{} lists more than {} pages".format(self.endpoint, MAX_PAGES))

    def _get(self, url: str, headers: Dict[str, str]) -> Answer:
        if self._credentials is None:
            return get(url, self._timeout_s, headers)
        region = self._region or S3_DEFAULT_REGION
        signed = signed_headers(url, region, self._credentials, time.time(), headers)
        return get(url, self._timeout_s, None, signed)

    def _place(self) -> None:
        """AWS has an address per region."""
        if self._is_aws:
            self._region = self._region or _region_of(self._bucket, self._timeout_s)
            self.endpoint = "https://{}.s3.{}.amazonaws.com".format(self._bucket, self._region)


class LocalFolder:
    """A folder that this host sees: a disk that was plugged in, or a mount."""

    def __init__(self, source: Dict[str, Any], host: Host, _timeout_s: float) -> None:
        """Take the paths of a request; the first that is a folder here counts."""
        paths = [str(path) for path in source["paths"]]
        found = [path for path in paths if os.path.isdir(host.path(path))]
        self.endpoint = (found or paths)[0]
        self._folder = host.path(self.endpoint)

    def list_files(self) -> Listing:
        """What the manifest lists, else every file by name and size."""
        if not os.path.isdir(self._folder):
            raise Hopeless("{} is no folder of this host".format(self.endpoint))
        with open_tree(self._folder) as folder:
            if folder.has(MANIFEST):
                return Listing(_kept(parse_manifest(folder.read(MANIFEST))), None)
            return Listing(_kept(list(_entries_in(folder, ""))), None)

    def open_file(self, name: str, offset: int) -> Any:
        """A file from a byte on; a link that others than root made is not followed into files that root alone reads."""
        try:
            handle = open_file(os.path.join(self._folder, name))
        except FileNotFoundError as error:
            raise Hopeless("{} is not in {}".format(name, self.endpoint)) from error
        except Refused as error:
            raise Hopeless(str(error)) from error
        stream = open(handle, "rb", buffering=0)  # noqa: SIM115 - whoever asked closes it
        stream.seek(offset)
        return stream


ORIGINS: Dict[str, Any] = {
    "huggingface": HuggingFace,
    "modelscope": ModelScope,
    "s3": S3Folder,
    "web": WebFolder,
    "folder": LocalFolder,
}


def open_origin(source: Dict[str, Any], host: Host, timeout_s: float) -> Any:
    """The origin that a request names.

    Raises:
        Refused: there is no such kind.
    """
    kind = ORIGINS.get(str(source.get("kind")))
    if kind is None:
        raise Refused("{!r} is no source of weights".format(source.get("kind")))
    return kind(source, host, timeout_s)


def _entries_in(folder: Tree, inside: str) -> Iterator[Entry]:
    """Every file below a folder by name and size; links are followed where root made them."""
    for name in folder.names():
        path = os.path.join(inside, name)
        try:
            with folder.folder(name) as below:
                if not name.startswith("."):
                    yield from _entries_in(below, path)
        except NotADirectoryError:
            size = folder.status(name).st_size
            yield entry_of({"name": path, "size_bytes": size})


def _token_header(source: Dict[str, Any], endpoint: str) -> Dict[str, str]:
    """What shows a hub the token of a request, if there is one.

    Raises:
        Hopeless: everybody on the way could read it, and the operator has not said that it may be.
    """
    token = source.get("token")
    if not token:
        return {}
    if not source.get("sends_in_plain"):
        refuse_in_plain(endpoint)
    return {"Authorization": "Bearer {}".format(token)}


def _region_of(bucket: str, timeout_s: float) -> str:
    """The region of a bucket, which S3 tells whoever asks, also where it refuses the rest (HeadBucket)."""
    connection = http.client.HTTPSConnection(bucket + ".s3.amazonaws.com", timeout=timeout_s)
    try:
        connection.request("HEAD", "/")
        return connection.getresponse().getheader("x-amz-bucket-region") or S3_DEFAULT_REGION
    finally:
        connection.close()


def _kept(entries: List[Entry]) -> List[Entry]:
    """The files that make the checkpoint, by name."""
    left = (MANIFEST, VERIFIED, *NOT_WEIGHTS)
    kept = [entry for entry in entries if entry.name not in left]
    if not kept:
        raise Hopeless("the source lists no file of this checkpoint")
    return sorted(kept, key=lambda entry: entry.name)


def _hugging_face_entry(row: Dict[str, Any]) -> Entry:
    large = row.get("lfs")
    if large:
        document = {"name": row["path"], "size_bytes": large["size"], "sha256": large["oid"]}
        return entry_of(document)
    document = {"name": row["path"], "size_bytes": row["size"], "git_sha1": row.get("oid")}
    return entry_of(document)


def _modelscope_entry(row: Dict[str, Any]) -> Entry:
    document = {"name": row["Path"], "size_bytes": row["Size"]}
    return entry_of(dict(document, sha256=row["Sha256"]) if row.get("Sha256") else document)
