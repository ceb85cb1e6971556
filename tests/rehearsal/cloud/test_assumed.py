from __future__ import annotations

import re

from infra.rehearsal.cloud.assumed import ASSUMED
from infra.spec.load import PROJECT


def test_the_page_lists_what_the_emulation_assumes_and_nothing_else() -> None:
    page = (PROJECT / "docs" / "provisioning.md").read_text(encoding="utf-8")
    table = page.partition("## What the emulated cloud assumes")[2]
    rows = re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert rows[1:] == [(each.what, each.if_wrong) for each in ASSUMED]
