"""The operator's own key, by which disks and stored weights are encrypted, and the key of a bucket that exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pulumi
import pulumi_aws as aws
from pulumi_aws import cloudcontrol, kms

from infra.errors import Problem
from infra.provision.asking import Asking, last_line
from infra.provision.aws.account import Account
from infra.provision.config_problems import account_problem

KEY = "moe-infra:kms_key_arn"
# The two kinds of use that disks and stored objects want (KMS Developer Guide, "Key spec", checked 2026-11-27).
SYMMETRIC, FOR_DATA = "SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT"
_ARN = re.compile(r"arn:[a-z-]+:kms:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):key/(?P<id>\S+)")
_BUCKET_TYPE = "AWS::S3::Bucket"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKey:
    """A key of KMS, as it answers.

    Args:
        state: `Enabled`, or why it encrypts nothing.
        spec: of its material.
        usage: what it may be used for.
    """

    arn: str
    state: str
    spec: str
    usage: str


def key_problems(found: FoundKey, stack: str) -> Iterator[Problem]:
    """Why a key encrypts no disk and no bucket."""
    if found.state != "Enabled":
        fix = f"Type: aws kms enable-key --key-id {found.arn}"
        if found.state == "PendingDeletion":
            fix = f"Type: aws kms cancel-key-deletion --key-id {found.arn}"
        yield replace(_problem(f"The key is {found.state}.", found.arn, stack), fix=fix)
    if (found.spec, found.usage) != (SYMMETRIC, FOR_DATA):
        what = f"The key is {found.spec} for {found.usage}; disks and buckets want a symmetric one for data."
        yield _problem(what, _example(found.arn), stack)


def place_problem(arn: str, region: str, account_id: str | None, stack: str) -> Problem | None:
    """A key that is not of the stack's region and account, where disks and buckets cannot use it.

    Args:
        arn: of the key.
        region: of the stack.
        account_id: of the credentials; None where nobody may ask.
        stack: its name.
    """
    match = _ARN.fullmatch(arn)
    if match is None:
        return _problem(f"{arn} is not the ARN of a key.", _example(arn), stack)
    if match["region"] != region:
        what = f"The key is in {match['region']}; the stack is in {region}."
        return _problem(what, _arn_in(arn, region, match["account"]), stack)
    if account_id not in (None, match["account"]):
        what = (
            f"The key is of account {match['account']}; your credentials are those of {account_id}."
        )
        return _problem(what, _arn_in(arn, region, str(account_id)), stack)
    return None


def find_key(asking: Asking, account: Account) -> None:
    """Look at the key that the configuration names."""
    arn = account.kms_key_arn
    if arn is None:
        return
    caller = asking.ask(
        KEY,
        "answer on which account this is",
        arn,
        lambda: str(aws.get_caller_identity().account_id),
    )
    wrong = place_problem(arn, account.region, caller, asking.stack)
    asking.note(wrong)
    if wrong is not None:
        return
    found = asking.ask(KEY, f"key {arn}", _example(arn), lambda: _read_key(arn))
    if found is not None:
        asking.note(*key_problems(found, asking.stack))


def bucket_key(bucket: str | None) -> str | None:
    """The ARN of the key that a bucket of the operator's is encrypted with; None for none, or AWS's own.

    Whoever reads from such a bucket needs the key, too. What may not be asked is a warning.
    """
    if bucket is None:
        return None
    try:
        answer = cloudcontrol.get_resource(type_name=_BUCKET_TYPE, identifier=bucket)
        named = _named_key(json.loads(answer.properties))
        # an ARN says it all, also of another account's key, which nobody here may look at
        return named if named is None or _ARN.fullmatch(named) else _read_key(named).arn
    except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception with the provider's message
        pulumi.log.warn(
            f"Whether bucket {bucket} is encrypted with a key of yours was not seen: {last_line(error)}. If it is, let "
            "the role that reads the weights do kms:Decrypt in the key's own policy."
        )
        return None


def _named_key(properties: dict[str, object]) -> str | None:
    """What the encryption of a bucket names: the id, the alias or the ARN of a key."""
    encryption = properties.get("BucketEncryption")
    rules = (
        encryption.get("ServerSideEncryptionConfiguration")
        if isinstance(encryption, dict)
        else None
    )
    for rule in rules or ():
        named = (rule.get("ServerSideEncryptionByDefault") or {}).get("KMSMasterKeyID")
        if named:
            return str(named)
    return None


def _read_key(identity: str) -> FoundKey:
    """A key by id, alias or ARN.

    Raises:
        Exception: there is none, or nobody may ask (the SDK raises nothing narrower).
    """
    found = kms.get_key(key_id=identity)
    return FoundKey(
        arn=str(found.arn),
        state=str(found.key_state),
        spec=str(found.key_spec),
        usage=str(found.key_usage),
    )


def _arn_in(arn: str, region: str, account_id: str) -> str:
    return f"{':'.join(arn.split(':')[:3])}:{region}:{account_id}:key/KEY"


def _example(arn: str) -> str:
    """Another key beside the one that is named."""
    match = _ARN.fullmatch(arn)
    place = (match["region"], match["account"]) if match else ("us-east-1", "123456789012")
    return _arn_in(arn if match else "arn:aws:kms:", *place)


def _problem(what: str, example: str, stack: str) -> Problem:
    return account_problem(KEY, what, example, stack)
