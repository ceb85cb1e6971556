"""The emulated account on disk: one file per resource, and what the account owns already.

<folder>/account.json                 what an operator has bought and made before: see `Account`
<folder>/resources/<type>/<key>.json  one resource; deleting or editing it is drift
<folder>/created                      a line for each creation, with the resource's URN, so that ids never repeat
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "MOE_REHEARSAL_CLOUD"
"""The environment variable that names the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A capacity reservation that the account has bought.

    Args:
        kind: `odcr`, `capacity-block` or `ultraserver`.
        num_instances: how many may run in it at once.
        state: as EC2 words it; machines are launched into an active one alone.
        start: RFC 3339.
        end: RFC 3339, empty for one without an end.
    """

    kind: str
    instance_type: str
    zone_id: str
    num_instances: int
    state: str = "active"
    start: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKey:
    """A key of KMS that the operator has, as KMS words it."""

    state: str = "Enabled"
    spec: str = "SYMMETRIC_DEFAULT"
    usage: str = "ENCRYPT_DECRYPT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the account owns before the program runs.

    Args:
        keys: by their ARNs.
        bucket_keys: what the encryption of a bucket names, by the bucket's name; buckets without one are left out.
        certificates: ARNs of certificates of ACM.
        topics: names of SNS topics.
        images: architecture by id, of images that are the operator's own.
        parameters: values of public parameters that have moved on since `world` was written, and dates of the newest
            images of families at Google.
        addons: default versions of cluster add-ons that have moved on since `world` was written.
        quotas: values of quotas by their codes, where they are not the operator's usual ones (`world.QUOTAS`).
        caller_role: the role by which the operator acts.
        forbidden: look-ups that the operator may not make (`getKeyPair`).
        instances_before_capacity_runs_out: a fault for tests: so many instances can be launched, the
            next is refused; None for no fault.
    """

    account_id: str = "000000000000"
    key_pairs: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()
    keys: Mapping[str, OwnKey] = field(default_factory=dict)
    bucket_keys: Mapping[str, str] = field(default_factory=dict)
    certificates: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    addons: Mapping[str, str] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    caller_role: str = "rehearsal"
    forbidden: tuple[str, ...] = ()
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    instances_before_capacity_runs_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource as the cloud has it.

    Args:
        hidden: what the cloud knows and no property shows (addresses of further interfaces).
    """

    type: str
    id: str
    urn: str
    inputs: dict[str, object]
    outputs: dict[str, object]
    hidden: dict[str, object]


_FIELDS = tuple(each.name for each in fields(Resource))


class Store:
    """All resources of the account, read once and written through.

    Args:
        folder: of the account.
        is_written: False for an account that ends with this process.
    """

    def __init__(self, folder: Path, *, is_written: bool = True) -> None:
        self._folder = folder
        self._is_written = is_written
        self._lock = threading.RLock()
        self.account = read_account(folder)
        self._created = _read_counts(folder / "created")
        self._resources = {
            (resource.type, resource.id): resource
            for resource in _read_resources(folder / "resources")
        }

    @property
    def lock(self) -> threading.RLock:
        """Held while an operation looks and then writes."""
        return self._lock

    def of_type(self, token: str) -> list[Resource]:
        """All resources of a type."""
        return [resource for resource in self._resources.values() if resource.type == token]

    def get(self, token: str, identity: str) -> Resource | None:
        """A resource by type and id."""
        return self._resources.get((token, identity))

    def all(self) -> list[Resource]:
        """Every resource."""
        return list(self._resources.values())

    def put(self, resource: Resource) -> None:
        """Write a resource, new or changed."""
        if self._is_written:
            path = self._path(resource.type, resource.id)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, {name: getattr(resource, name) for name in _FIELDS})
        self._resources[resource.type, resource.id] = resource

    def remove(self, token: str, identity: str) -> None:
        """Forget a resource; nothing happens when it is gone."""
        self._path(token, identity).unlink(missing_ok=True)
        self._resources.pop((token, identity), None)

    def new_digits(self, urn: str) -> str:
        """Seventeen hexadecimal digits for a new id: the same for the same history of a URN."""
        self._created[urn] += 1
        if self._is_written:
            with (self._folder / "created").open("a", encoding="utf-8") as file:
                file.write(f"\n{urn}")  # ends what a killed plug-in has left of a line
        return digits(f"{urn}#{self._created[urn]}")

    def _path(self, token: str, identity: str) -> Path:
        safe = "".join(each if each.isalnum() or each in "-_." else "_" for each in identity)
        return self._folder / "resources" / token.rpartition(":")[2] / f"{safe}.json"


def digits(text: str) -> str:
    """Seventeen hexadecimal digits that follow from a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:17]


def read_account(folder: Path) -> Account:
    """What the account owns; an account without `account.json` owns nothing."""
    path = folder / "account.json"
    if not path.is_file():
        return Account()
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name in ("key_pairs", "buckets", "forbidden"):
        data[name] = tuple(data.get(name, ()))
    reservations = data.get("reservations", {})
    data["reservations"] = {name: Reservation(**facts) for name, facts in reservations.items()}
    data["keys"] = {arn: OwnKey(**facts) for arn, facts in data.get("keys", {}).items()}
    return Account(**data)


def write_account(folder: Path, account: Account) -> None:
    """Say what the account owns; the plug-in reads it when it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "account.json", asdict(account))


def _read_resources(folder: Path) -> Iterator[Resource]:
    for path in sorted(folder.glob("*/*.json")):
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue  # the account's other plug-in has just deleted it
        yield Resource(**json.loads(text))


def _read_counts(path: Path) -> Counter[str]:
    return Counter(path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())


def _write(path: Path, data: object) -> None:
    """Replace a file as a whole: a killed plug-in leaves the old or the new one.

    Without indentation: with it, Python's own encoder takes longer than all else that is done for a resource.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    scratch.write_text(json.dumps(data), encoding="utf-8")
    scratch.replace(path)
