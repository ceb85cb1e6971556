"""Requests to S3 as it wants them signed (Signature Version 4), with the host's own credentials."""

import configparser
import hashlib
import hmac
import http.client
import json
import time
import urllib.parse
from typing import Dict, NamedTuple, Optional

from ..host import Host

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
# The instance's own metadata service, version 2 (AWS EC2 user guide: retrieve instance metadata).
METADATA_HOST = "169.254.169.254"
METADATA_S = 2.0
CREDENTIAL_FILES = ("/root/.aws/credentials",)


class Credentials(NamedTuple):
    """A key pair; `token` belongs to temporary ones."""

    key_id: str
    secret: str
    token: Optional[str]


def find_credentials(host: Host, endpoint: Optional[str]) -> Optional[Credentials]:
    """The host's key pair: root's file of the AWS tools, else the instance's role; None for neither.

    Args:
        host: where to look.
        endpoint: of a store other than AWS, whose keys no instance role gives.
    """
    for path in CREDENTIAL_FILES:
        found = _from_file(host, path)
        if found is not None:
            return found
    return None if endpoint is not None else _from_instance()


def signed_headers(
    url: str, region: str, credentials: Credentials, now_s: float, extra: Dict[str, str]
) -> Dict[str, str]:
    """The headers that make a GET of this URL the credentials' owner's.

    Args:
        url: with its query already in S3's order and encoding.
        region: of the bucket.
        credentials: the key pair.
        now_s: seconds since the epoch; S3 allows 15 minutes of difference.
        extra: further headers that are signed, such as a range.
    """
    parts = urllib.parse.urlsplit(url)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    headers = {name.lower(): value for name, value in extra.items()}
    headers.update({"x-amz-content-sha256": EMPTY_SHA256, "x-amz-date": stamp})
    if credentials.token is not None:
        headers["x-amz-security-token"] = credentials.token
    signed = dict(headers, host=parts.netloc)
    names = ";".join(sorted(signed))
    lines = ["GET", parts.path, parts.query]
    lines += ["{}:{}".format(name, signed[name].strip()) for name in sorted(signed)]
    lines += ["", names, EMPTY_SHA256]
    scope = "{}/{}/s3/aws4_request".format(stamp[:8], region)
    digest = hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()
    text = "{}\n{}\n{}\n{}".format(ALGORITHM, stamp, scope, digest)
    key = ("AWS4" + credentials.secret).encode("utf-8")
    for word in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, word.encode("utf-8"), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode("utf-8"), hashlib.sha256).hexdigest()
    headers["authorization"] = "{} Credential={}/{},SignedHeaders={},Signature={}".format(
        ALGORITHM, credentials.key_id, scope, names, signature
    )
    return headers


def canonical_query(values: Dict[str, str]) -> str:
    """A query in the order and encoding that signatures are made over."""
    quoted = sorted(
        (urllib.parse.quote(key, safe="-_.~"), urllib.parse.quote(value, safe="-_.~"))
        for key, value in values.items()
    )
    return "&".join("{}={}".format(key, value) for key, value in quoted)


def _from_file(host: Host, path: str) -> Optional[Credentials]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(host.read_bytes(path).decode("utf-8"))
        section = parser["default"]
        token = section.get("aws_session_token")
        return Credentials(section["aws_access_key_id"], section["aws_secret_access_key"], token)
    except (OSError, ValueError, KeyError, configparser.Error):
        return None


def _from_instance() -> Optional[Credentials]:
    try:
        token = _metadata(
            "PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        )
        ticket = {"X-aws-ec2-metadata-token": token}
        folder = "/latest/meta-data/iam/security-credentials/"
        role = _metadata("GET", folder, ticket).split()[0]
        found = json.loads(_metadata("GET", folder + role, ticket))
        return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["Token"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError):
        return None


def _metadata(method: str, path: str, headers: Dict[str, str]) -> str:
    connection = http.client.HTTPConnection(METADATA_HOST, timeout=METADATA_S)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ValueError("the metadata service answers {}".format(response.status))
        return response.read(65536).decode("utf-8")
    finally:
        connection.close()
