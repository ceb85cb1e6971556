"""What the masks take out of texts, what they leave, and that their work grows with a text alone."""

from __future__ import annotations

import base64
import json
import re
import time
from urllib.parse import quote, quote_plus

import pytest

from infra.agent.processes.masking import LOOKS_SECRET, Mask

# Put together here, so that no scanner finds a key in this file.
JWT = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0.c2lnbmF0dXJl"
SECRET = 'p@ss/word+1 "x"é'
PEM = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEabc-\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"cookie {JWT} end", "cookie *** end"),
        ("ghp_" + "a" * 36, "***"),
        ("pull github_pat_" + "11AB" * 8 + ", ghs_" + "x" * 20, "pull ***, ***"),
        ("nvapi-" + "aB3_-" * 8, "***"),
        ("xoxb-" + "1234567890-abc", "***"),
        ("id AKIA" + "ABCDEFGHIJKLMNOP", "id ***"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/b", "aws_secret_access_key = ***"),
        ("X-Api-Key: abc123\r\n", "X-Api-Key: ***\r\n"),
        ('"x-api-key": "abc123", "a": 1', '"x-api-key": ***, "a": 1'),
        ("Authorization: token abcdefgh", "Authorization: token ***"),
        ("'--api-key', 'abc', '--port', '1'", "'--api-key', '***', '--port', '1'"),
        ("--hf-token=abc --port 1", "--hf-token=*** --port 1"),
        ("password=abc&x=1", "password=***&x=1"),
        ("token=" + "a1" * 10, "token=***"),
        ("s3://h/x?X-Amz-Signature=abc&X-Amz-Credential=k%2Fus&e=1", "s3://h/x?X-Amz-Signature=***&X-Amz-Credential=***&e=1"),
        ("X-Amz-Security-Token=IQo", "X-Amz-Security-Token=***"),
        ("https://a/b?sv=1&sig=abc%3D&se=2", "https://a/b?sv=1&sig=***&se=2"),
        ("https://a/b?Expires=1&Policy=eyJ&Signature=x~&Key-Pair-Id=K", "https://a/b?Expires=1&Policy=***&Signature=***&Key-Pair-Id=***"),
        ("GoogleAccessId=a@b.c&Expires=1", "GoogleAccessId=***&Expires=1"),
        (f"before\n{PEM}\nafter", "before\n-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nafter"),
    ],
)  # fmt: skip
def test_a_shape_that_only_secrets_have_is_masked(text: str, left: str) -> None:
    assert Mask(()).text(text.encode()).decode() == left


@pytest.mark.parametrize(
    "text",
    [
        "sha256:" + "0123456789abcdef" * 4,
        "revision 3ca0f5a9c6a2bd2a4b3b7b1c0f5e4d3c2b1a0987 of moonshotai/Kimi-K2.5",
        "cmpl-8f14e45fceea167a5a36dedd4bea2543 finished: 12 tokens",
        "eos_token_id=163585 pad_token_id: 163839 token: 163586 max_tokens=8192",
        "tokenizer='/models/k2' tokenizer_mode=auto kv_cache_dtype=fp8 key=value",
        "traceparent 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "NCCL INFO Signal caught, sig=11 in task-runner-queue-3",
        "an image iVBORw0KGgoAAAANSUhEUgAAAAUA/+8=",
    ],
)
def test_what_a_log_is_read_for_stays(text: str) -> None:
    assert Mask(()).text(text.encode()).decode() == text


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        SECRET.encode().hex(),
    ],
)
def test_a_known_secret_is_masked_as_programs_write_it(written: str) -> None:
    assert Mask([SECRET.encode()]).text(f"<{written}>".encode()) == b"<***>"


@pytest.mark.parametrize("before", [b"", b"a", b"ab", b"abc", b"user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_secret_is_masked_wherever_it_begins_in_base64(
    before: bytes, encode: object
) -> None:
    secret = b"sesame-open-1234"
    text = encode(before + secret + b"!tail")  # type: ignore[operator]  # one of the two
    left = Mask([secret]).text(text)
    assert b"***" in left
    longest = max(left.split(b"***"), key=len)
    assert b"same-open" not in base64.b64decode(
        longest + b"=" * (-len(longest) % 4), altchars=b"-_"
    )


EVIL = (
    b"eyJ-", b"eyJa.", b"-a", b"--a-", b"secret", b"password ", b"://a:", b"sk-a ", b"ghp_ ", b"token=", b"_token",
    b"-----BEGIN PRIVATE KEY-----",
    b"X-Amz-Signature", b"authorization: ", b"api-key", b'api_key\\"', b"Basic ", b"&sig",
    b"?key", b"a", b" ", b"\n", b"%26sig",
)  # fmt: skip


# 20 patterns over a megabyte of what each might stumble on, twice
@pytest.mark.slow
@pytest.mark.parametrize("piece", EVIL)
def test_twice_the_text_is_twice_the_work(piece: bytes) -> None:
    def taken_s(size: int) -> float:
        text = piece * (size // len(piece))
        begun = time.process_time()
        Mask(()).text(text)
        return time.process_time() - begun

    taken_s(1 << 16)
    assert taken_s(1 << 22) < 8 * taken_s(1 << 20) + 0.2


def test_what_has_to_stand_in_a_text_is_in_lower_case() -> None:
    for signs, pattern in LOOKS_SECRET:
        assert isinstance(pattern, re.Pattern)
        assert all(sign == sign.lower() for sign in signs)
