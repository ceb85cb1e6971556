"""Objects that no cluster would take are refused before any is made."""

from __future__ import annotations

import pytest

from infra.errors import StackError
from infra.render.pod_objects import (
    MAX_ANNOTATION_BYTES,
    MAX_LABEL,
    MAX_OBJECT_BYTES,
    PodObject,
    refuse_large,
)


def made(**metadata: object) -> PodObject:
    template = {"metadata": metadata, "spec": {"containers": []}}
    return PodObject(
        name="a",
        document={"kind": "Set", "metadata": {"name": "s"}, "spec": {"template": template}},
    )


def test_an_object_that_fits_is_made() -> None:
    refuse_large(
        [made(labels={"a": "b" * MAX_LABEL}, annotations={"a": "b" * (MAX_ANNOTATION_BYTES - 1)})]
    )


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (made(labels={"a": "b" * (MAX_LABEL + 1)}), "Set s: Its label a has more than 63"),
        (made(annotations={"a": "é" * (MAX_ANNOTATION_BYTES // 2)}), "Its annotations have 262145"),
        (made(name="x" * MAX_OBJECT_BYTES), "1000000 are the most of an object"),
    ],
)
def test_an_object_that_is_too_large_is_refused(one: PodObject, said: str) -> None:
    with pytest.raises(StackError, match=said):
        refuse_large([one])
