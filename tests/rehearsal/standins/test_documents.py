"""JSON read and written without the json module is the same JSON."""

from __future__ import annotations

import json

import pytest

from infra.rehearsal.standins.documents import format_document, parse_document

VALUE = {"a": [1, 2.5, True, None, 'é\n"'], "b": {}, "c": [], "d": {"e": -1}}


def test_what_is_written_is_what_was_meant() -> None:
    assert json.loads(format_document(VALUE)) == VALUE
    assert json.loads(format_document(VALUE, "    ")) == VALUE


def test_what_json_writes_is_read() -> None:
    assert parse_document(" " + json.dumps(VALUE, indent=1) + "\n") == VALUE


@pytest.mark.parametrize("text", ["", "{", '{"a":}', "1 2", "nil"])
def test_a_broken_document_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_document(text)
