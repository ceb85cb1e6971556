"""Whoever looks for secrets finds them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.rehearsal.cloud.spying import Spy

SPY = Spy({"key": "sk-oneThatClientsHave", "token": "hf_notForAnybodysEyes"})
KEY = SPY.values["key"]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (f'{{"stringData": {{"api_key": "{KEY}"}}}}', {"key"}),
        (f"{KEY} {SPY.values['token']}", {"key", "token"}),
        *(
            (base64.b64encode(f"{'#' * number}{KEY}{'#' * number}".encode()).decode(), {"key"})
            for number in range(4)
        ),
        (KEY[:-1], set()),
        (base64.b64encode(KEY[:-2].encode()).decode(), set()),
        ("", set()),
    ],
)
def test_a_text_shows_a_secret_as_it_is_or_in_base64(text: str, seen: set[str]) -> None:
    assert SPY.sees_in(text) == seen


def test_files_are_named_by_what_they_show(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "one.json").write_text(KEY)
    (folder / "other.json").write_bytes(b"\xff\xfe nothing")
    assert SPY.sees_under(tmp_path) == {str(folder / "one.json"): {"key"}}


def test_an_empty_folder_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nothing to look at"):
        SPY.sees_under(tmp_path)
