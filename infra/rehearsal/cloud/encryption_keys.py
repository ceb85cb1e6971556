"""Keys of the emulated cloud: those that a program makes, and those that the operator has.

What a key cannot encrypt: KMS Developer Guide, "Key states" and "Key spec reference", checked 2026-11-27.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.rehearsal.cloud.kind import Kind, Made, Request
from infra.rehearsal.cloud.question import Lookup, Question, missing
from infra.rehearsal.cloud.store import OwnKey, Store

KEY = "aws:kms/key:Key"


def known_keys(store: Store) -> dict[str, OwnKey]:
    """Every key of the account by its ARN."""
    made = {str(each.outputs["arn"]): OwnKey() for each in store.of_type(KEY)}
    return {**made, **store.account.keys}


def encrypts(store: Store, arn: str) -> bool:
    """Whether a disk, or a file system, can be encrypted with a key."""
    found = known_keys(store).get(arn)
    return found is not None and (found.state, found.spec) == ("Enabled", OwnKey().spec)


def _make_key(request: Request) -> Made:
    identity = f"{request.digits[:8]}-0000-4000-8000-{request.digits[-12:]}"
    arn = f"arn:aws:kms:{request.region}:{request.account_id}:key/{identity}"
    return Made(id=identity, computed={"arn": arn, "keyId": identity})


def _key(question: Question) -> dict[str, object]:
    """A key by its ARN or its id."""
    wanted = question.text("keyId")
    for arn, key in known_keys(question.store).items():
        if wanted in (arn, arn.rpartition("/")[2]):
            return {
                "id": arn.rpartition("/")[2],
                "arn": arn,
                "awsAccountId": question.store.account.account_id,
                "enabled": key.state == "Enabled",
                "keyState": key.state,
                "keySpec": key.spec,
                "customerMasterKeySpec": key.spec,
                "keyUsage": key.usage,
                "keyManager": "CUSTOMER",
            }
    raise missing("KMS Key", wanted)


KINDS: Mapping[str, Kind] = {KEY: Kind(noun="KMS Key", make=_make_key)}
KEY_LOOKUPS: Mapping[str, Lookup] = {"aws:kms/getKey:getKey": _key}
