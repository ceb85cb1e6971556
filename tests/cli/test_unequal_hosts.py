"""Two hosts of a super-pod that are not alike: every check that one look can tell, each with its words.

The hosts are simulated: the mount is real, devices and images are told by stand-ins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.cli.kept_hosts import FACTS, Kept, kept_rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.fault]

STACK = "a3-dp4tp4"
# Eight ranks of four dies: two hosts of one super-pod.
SETS = ("--set", "roles.unified.data_parallel=8", "--set", "roles.unified.load_balancing=internal")
ODD = "unified-1"


@dataclass(frozen=True)
class Spoilt:
    """What is wrong with the second host, and what the preflight says of it.

    Args:
        check: its id.
        severity: of the worst finding.
        says: words of what was observed.
        facts: Python that changes `d`, what the stand-ins know of the host; "" for nothing.
        change: a shell command; "" for none.
        undo: likewise.
    """

    check: str
    severity: str
    says: tuple[str, ...]
    facts: str = ""
    change: str = ""
    undo: str = ""


SPOILT = (
    Spoilt("accelerator-count", "block", ("15 devices",), facts="d['devices_absent']=[15]"),
    Spoilt("accelerator-type", "block", ("Ascend310P",), facts="d['product_name']='Ascend310P'"),
    Spoilt("accelerator-memory", "block", ("a device has 32768 MiB",), facts="d['memory_mib']=32768"),
    Spoilt(
        "super-pod", "block", ("super-pod 2, while unified-0 has super-pod 1",), facts="d['super_pod_id']=2"
    ),
    Spoilt(
        "image-digest",
        "block",
        ("sha256:0000", "while unified-0 has sha256:"),
        facts="[i.update(digest='sha256:'+'0'*64) for i in d['images']]",
    ),
    Spoilt(
        "weights-room",
        "block",
        ("/models lies on tmpfs (/models)",),
        change="sudo mount -t tmpfs -o size=1m tmpfs /models",
        undo="sudo umount /models",
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def pod() -> Iterator[Kept]:
    with kept_rehearsal(STACK, SETS) as kept:
        yield kept


@pytest.fixture(scope="module")
def told(pod: Kept) -> dict[str, tuple[str, str]]:
    """What one look finds at the second host while all of it is spoilt."""
    facts = "; ".join(one.facts for one in SPOILT if one.facts)
    program = (
        f"import json; p='{FACTS}'; d=json.load(open(p)); {facts}; open(p,'w').write(json.dumps(d))"
    )
    keep, back = f"sudo cp {FACTS} /tmp/was", f"sudo cp /tmp/was {FACTS}"
    with ExitStack() as undone:
        undone.enter_context(pod.changed(ODD, f'{keep}; sudo python3 -c "{program}"', back))
        for one in SPOILT:
            if one.change:
                undone.enter_context(pod.changed(ODD, one.change, one.undo))
        return pod.told(ODD)


@pytest.mark.parametrize("spoilt", SPOILT, ids=[one.check for one in SPOILT])
def test_what_differs_on_one_host_is_told(told: dict[str, tuple[str, str]], spoilt: Spoilt) -> None:
    severity, said = told.get(spoilt.check, ("", ""))
    assert severity == spoilt.severity, told
    assert [word for word in spoilt.says if word not in said] == [], said


def test_as_they_were_they_are_alike(pod: Kept, told: dict[str, tuple[str, str]]) -> None:
    assert set(pod.told(ODD)) & {one.check for one in SPOILT} == set()
    assert told
