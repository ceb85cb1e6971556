"""A key of the operator's own: what it encrypts, who may use it to read, and which keys are refused beforehand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ProblemsFound
from infra.rehearsal.cloud.store import OwnKey, Store
from tests.provision.belongings import REGION, own_stack
from tests.provision.test_standing_machines import launched

Record = Callable[..., Any]
ID = "key/01234567-89ab-cdef-0123-456789abcdef"
KEY = f"arn:aws:kms:us-east-2:000000000000:{ID}"
WEIGHTS = {"path": "/models", "source": "s3://their-weights/kimi"}


def owning(**facts: str) -> Callable[[Store], Mapping[str, str]]:
    """An account with the key."""

    def prepare(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, keys={KEY: OwnKey(**facts)})
        return {}

    return prepare


def volumes(recorded: Any) -> set[str | None]:
    templates = recorded.of_type("LaunchTemplate").values()
    return {each["blockDeviceMappings"][0]["ebs"].get("kmsKeyId") for each in templates}


def decrypting(recorded: Any) -> list[dict[str, Any]]:
    """What lets the reader of the weights use a key."""
    policy = recorded.of_type("RolePolicy")["read-weights"]["policy"]
    return [each for each in json.loads(policy)["Statement"] if each["Action"] == "kms:Decrypt"]


@pytest.mark.parametrize("stack", ["h200-tp8", "eks-b200-tp8"])
def test_a_key_encrypts_disks_and_the_bucket_that_is_made(record: Record, stack: str) -> None:
    recorded = record(stack, prepare=owning(), kms_key_arn=KEY)
    assert volumes(recorded) == {KEY}
    ((_, encryption),) = recorded.of_type("BucketServerSideEncryptionConfiguration").items()
    (rule,) = encryption["rules"]
    chosen = {"kmsMasterKeyId": KEY, "sseAlgorithm": "aws:kms"}
    assert rule["applyServerSideEncryptionByDefault"] == chosen
    (allowed,) = decrypting(recorded)
    assert allowed["Resource"] == KEY
    assert allowed["Condition"] == {"StringLike": {"kms:ViaService": "s3.*"}}
    assert recorded.inventory["weights"]["kms_key_arn"] == KEY


def test_without_a_key_those_of_aws_are_used(record: Record) -> None:
    recorded = record("h200-tp8")
    assert volumes(recorded) == {None}
    assert recorded.of_type("BucketServerSideEncryptionConfiguration") == {}
    assert decrypting(recorded) == []
    assert "kms_key_arn" not in recorded.inventory["weights"]


@pytest.mark.parametrize(
    ("storage", "kind"), [("fsx-lustre", "LustreFileSystem"), ("efs", "FileSystem")]
)
def test_a_key_encrypts_file_systems(
    record: Record, tmp_path: Path, storage: str, kind: str
) -> None:
    root = own_stack(tmp_path, "h200-tp8", weights={"path": "/models", "storage": storage})
    key = KEY.replace("us-east-2", REGION)

    def prepare(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, keys={key: OwnKey()})
        return {}

    recorded = record("mine", root=root, prepare=prepare, kms_key_arn=key)
    assert recorded.of_type(kind)["weights"]["kmsKeyId"] == key
    assert recorded.inventory["weights"]["kms_key_arn"] == key


@pytest.mark.parametrize(
    ("facts", "said", "fix"),
    [
        ({"state": "Disabled"}, "The key is Disabled", f"aws kms enable-key --key-id {KEY}"),
        ({"state": "PendingDeletion"}, "is PendingDeletion", "aws kms cancel-key-deletion"),
        ({"spec": "RSA_2048"}, "The key is RSA_2048 for ENCRYPT_DECRYPT", "set kms_key_arn"),
        ({"spec": "HMAC_256", "usage": "GENERATE_VERIFY_MAC"}, "HMAC_256 for GENERATE", "set kms"),
    ],
)
def test_a_key_that_encrypts_nothing_is_refused_before_anything_is_made(
    record: Record, facts: dict[str, str], said: str, fix: str
) -> None:
    with pytest.raises(ProblemsFound, match=said) as refused:
        record("h200-tp8", prepare=owning(**facts), kms_key_arn=KEY)
    assert fix in str(refused.value)


@pytest.mark.parametrize(
    ("arn", "said"),
    [
        (f"arn:aws:kms:us-east-1:000000000000:{ID}", "in us-east-1; the stack is in us-east-2"),
        (f"arn:aws:kms:us-east-2:111111111111:{ID}", "is of account 111111111111"),
        ("arn:aws:kms:us-east-2:000000000000:alias/mine", "is not the ARN of a key of KMS"),
        (ID, "is not the ARN of a key of KMS"),
        (
            KEY.replace("0123456789", "9876543210").replace("01234567", "76543210"),
            "There is no key",
        ),
    ],
)
def test_a_key_of_another_place_is_refused(record: Record, arn: str, said: str) -> None:
    with pytest.raises(ProblemsFound, match=said) as refused:
        record("h200-tp8", prepare=owning(), kms_key_arn=arn)
    assert [each.field for each in refused.value.problems] == ["moe-infra:kms_key_arn"]
    assert "pulumi config set kms_key_arn arn:aws:kms:us-east-2:000000000000:key/KEY" in str(
        refused.value
    ) or said.startswith("is not the ARN")


def test_a_key_that_may_not_be_looked_at_is_a_warning(record: Record) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        owning()(store)
        store.account = replace(store.account, forbidden=("getKey",))
        return {}

    recorded = record("h200-tp8", prepare=prepare, kms_key_arn=KEY)
    assert any(f"key {KEY} was not looked at" in line for line in recorded.said)


def test_machines_that_stand_keep_their_key(record: Record) -> None:
    standing = launched(record("h200-tp8"))

    def prepare(store: Store) -> Mapping[str, str]:
        owning()(store)
        return standing(store)

    with pytest.raises(ProblemsFound, match=r"another kms_key_arn \(none; now arn") as refused:
        record("h200-tp8", prepare=prepare, kms_key_arn=KEY)
    assert [each.rule for each in refused.value.problems] == ["machines-stand"]


THEIRS = KEY.replace("000000000000", "111111111111")


@pytest.mark.parametrize(
    ("named", "key"), [(KEY, KEY), (KEY.rpartition("/")[2], KEY), (THEIRS, THEIRS)]
)
def test_a_bucket_s_own_key_may_be_used_by_whoever_reads_it(
    record: Record, tmp_path: Path, named: str, key: str
) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        owning()(store)
        store.account = replace(store.account, bucket_keys={"their-weights": named})
        return {}

    root = own_stack(tmp_path, "h200-tp8", weights=WEIGHTS)
    recorded = record("mine", root=root, prepare=prepare)
    assert [each["Resource"] for each in decrypting(recorded)] == [key]
    assert volumes(recorded) == {None}


def test_a_bucket_whose_key_may_not_be_asked_is_a_warning(record: Record, tmp_path: Path) -> None:
    def prepare(store: Store) -> Mapping[str, str]:
        store.account = replace(store.account, forbidden=("getResource",))
        return {}

    root = own_stack(tmp_path, "h200-tp8", weights=WEIGHTS)
    recorded = record("mine", root=root, prepare=prepare)
    assert decrypting(recorded) == []
    assert any(
        "their-weights is encrypted with a key of yours was not seen" in s for s in recorded.said
    )
