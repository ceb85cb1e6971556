"""`ansible/` consumes what is rendered: nothing that a host must hold is written there a second time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

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


# They run on the controller alone: no module travels, whatever `pipelining` says.
ON_CONTROLLER = {"assert", "debug", "import_tasks", "include_tasks", "set_fact"}


def tasks_of(listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tasks of a list, those in blocks too."""
    for task in listed:
        if "block" in task:
            yield from tasks_of(task["block"] + task.get("rescue", []) + task.get("always", []))
        else:
            yield task


def test_no_module_is_sent_to_hosts() -> None:
    """So ansible.cfg needs no `pipelining`, and no secret lies in a file that a module is copied into."""
    files = [PROJECT / "ansible/tune.yml", PROJECT / "ansible/launch.yml"]
    plays = [play for file in files for play in yaml.safe_load(file.read_text())]
    lists = [play["tasks"] for play in plays]
    lists += [yaml.safe_load(file.read_text()) for file in (PROJECT / "ansible/tasks").iterdir()]
    tasks = [task for listed in lists for task in tasks_of(listed)]
    sent = [
        task["name"]
        for task in tasks
        if task.get("delegate_to") != "localhost"
        and "moe_agent" not in task
        and not {key.removeprefix("ansible.builtin.") for key in task} & ON_CONTROLLER
    ]
    assert sent == []
    assert [play["gather_facts"] for play in plays] == [False, False]
    assert sum("moe_agent" in task for task in tasks) > 5
