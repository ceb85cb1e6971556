"""`ansible/` consumes what is rendered: nothing that a host must hold is written there a second time."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.spec.load import PROJECT


def test_playbooks_name_no_item_of_any_profile(catalog: Catalog) -> None:
    profiles = [catalog.tuning(name) for name in catalog.ids("tuning")]
    # an id without a dot is a word of everybody's language
    items = {item.id for profile in profiles for item in profile.items if "." in item.id}
    assert len(items) > 10
    folder = PROJECT / "ansible"
    files = [*folder.glob("*.yml"), *folder.glob("tasks/*.yml"), *folder.glob("*/*.py")]
    assert len(files) > 3
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert [item for item in sorted(items) if item in text] == [], path
