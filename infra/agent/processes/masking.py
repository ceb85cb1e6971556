"""Takes secrets out of what leaves a host: values that are known here in every form, and texts that look like one."""

import base64
import binascii
import json
import os
import re
from typing import Dict, Iterable, List, Set, Tuple
from urllib.parse import quote, quote_plus

from ..host import Host

MASK = b"***"
# A shorter value would be found by chance in the middle of words.
MIN_BYTES = 6
SECRET_NAME = re.compile(
    rb"(?i)api[_-]?key|access[_-]?key|private[_-]?key|secret|passw|passphrase|credential|authorization"
    rb"|(?:^|[_-])(?:token|key|auth|pat)$"
)
_VALUE = (
    rb"(?:\\\"[^\"\\\n]{0,4096}(?:\\\")?|\"[^\"\n]{0,4096}\"?|'[^'\n]{0,4096}'?|[^\s,;&\"'}\\]+)"
)
# Each with what has to stand in a text, in lower case, for it to be looked for; it leaves its first group and masks the
# rest. Nothing in them repeats what repeats, and where they begin they do not begin again within what they have passed:
# their time grows with the length of a text alone, whoever wrote it.
LOOKS_SECRET: Tuple[Tuple[Tuple[bytes, ...], "re.Pattern[bytes]"], ...] = (
    ((b"private key",), re.compile(
        rb"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
        rb"(?:[\s\S]{0,16384}?(?=-----END)|[\s\S]{0,16384})"
    )),
    ((b"eyj",), re.compile(
        rb"()(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
    )),
    ((b"hf_", b"gh", b"github_pat_", b"glpat-", b"nvapi-", b"sk-", b"xox", b"npm_", b"pypi-"), re.compile(
        rb"()(?<![A-Za-z0-9])(?:(?:hf_|gh[oprsu]_|github_pat_|glpat-|nvapi-|xox[a-z]-|npm_|pypi-)[A-Za-z0-9_-]{8,}"
        rb"|sk-[A-Za-z0-9_-]{12,})"
    )),
    ((b"akia", b"asia"), re.compile(rb"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ((b"aiza",), re.compile(rb"()\bAIza[0-9A-Za-z_-]{35}")),
    ((b"bearer", b"basic"), re.compile(rb"((?i:\b(?:bearer|basic))\s{1,8})[A-Za-z0-9._~+/=-]{6,}")),
    ((b"authorization",), re.compile(
        rb"((?i:authorization)[\"']?\s{0,8}[=:]\s{0,8}[\"']?(?:[A-Za-z0-9-]{1,20}\s{1,8})?)[^\s\"',]{6,}"
    )),
    ((b"-",), re.compile(
        rb"((?i:--?(?:[a-z0-9]{1,20}-){0,4}(?:api-key|token|password|passphrase|secret(?:-key)?))"
        rb"(?:=|\s{1,8}|\x00|[\"'],\s{0,8}[\"']))[^\s\x00\"',]+"
    )),
    ((b"key", b"secret", b"passw", b"passphrase", b"_token", b"-token", b"credential"), re.compile(
        rb"((?i:(?:(?:api|access|private|account)[_-]?key|secret|passw(?:or)?d|passphrase)[\w-]{0,40}|[_-]token)"
        rb"\\?[\"']?\s{0,8}[=:]\s{0,8})" + _VALUE
    )),
    ((b"token",), re.compile(
        rb"((?i:(?<![\w-])token)[\"']?\s{0,2}[=:]\s{0,2}[\"']?)(?![0-9]+\b)[A-Za-z0-9._~+/=-]{12,}"
    )),
    ((b"://",), re.compile(rb"(://[^/\s:@]{1,256}:)[^@\s/]{1,512}(?=@)")),
    ((b"x-amz-", b"x-goog-", b"sig", b"accessid", b"accesskeyid", b"key", b"token", b"policy="), re.compile(
        rb"((?i:(?:[?&;]|%26|\b)(?:x-(?:amz|goog)-(?:signature|credential|security-token)|sig(?==[a-z0-9%+/_-]{16})|signature|googleaccessid"
        rb"|awsaccesskeyid|key-pair-id)|[?&;](?:access_token|token|key|policy|sig))(?:=|%3[Dd]))[^&\s\"'<>,]+"
    )),
)  # fmt: skip


def forms_of(value: bytes) -> Set[bytes]:
    """A secret as programs write it: plain, in URLs, JSON and hexadecimal, and in base64 wherever it begins there."""
    text = value.decode("utf-8", "replace")
    found = {value, binascii.hexlify(value), binascii.hexlify(value).upper()}
    for written in (quote(value, safe=""), quote(value), quote_plus(value)):
        found.add(written.encode("ascii"))
    found.add(json.dumps(text)[1:-1].encode("ascii"))
    found.add(json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "replace"))
    for before in range(3):
        # what stands before and behind it takes part in the first and last letters
        whole = base64.b64encode(b"\0" * before + value)
        inner = whole[(0, 2, 3)[before] : (before + len(value)) * 8 // 6]
        found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return {form for form in found if len(form) >= MIN_BYTES}


class Mask:
    """What must not leave this host.

    Args:
        values: secrets that are known; those of variables are added as they are seen.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        """Begin with the known ones."""
        self._known: Set[bytes] = set()
        self._forms: List[bytes] = []
        self.learn(values)

    def learn(self, values: Iterable[bytes]) -> None:
        """Further secrets, each as a whole and without the white space around it."""
        new = {value.strip() for value in values} - self._known
        self._known |= new
        forms = set(self._forms)
        for value in new:
            if len(value) >= MIN_BYTES:
                forms |= forms_of(value)
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, content: bytes) -> bytes:
        """The content without secrets."""
        for form in self._forms:
            content = content.replace(form, MASK)
        small = content.lower()
        for signs, pattern in LOOKS_SECRET:
            if any(sign in small for sign in signs):
                content = pattern.sub(rb"\1" + MASK, content)
        return content

    def environment(self, variables: Dict[bytes, bytes]) -> bytes:
        """Lines `NAME=value`, sorted; variables that hold secrets by their name show none."""
        lines: List[bytes] = []
        for name, value in sorted(variables.items()):
            is_secret = SECRET_NAME.search(name) is not None
            lines.append(name + b"=" + (MASK if is_secret else self.text(value)))
        return b"\n".join(lines) + b"\n"


def known_secrets(host: Host, folder: str) -> List[bytes]:
    """The contents of a stack's credentials."""
    try:
        names = os.listdir(host.path(folder))
    except OSError:
        return []
    return [host.read_bytes(os.path.join(folder, name)) for name in names]


def secret_values(variables: Dict[bytes, bytes]) -> List[bytes]:
    """The values of variables that hold secrets by their name."""
    return [value for name, value in variables.items() if SECRET_NAME.search(name)]
