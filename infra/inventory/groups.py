"""Groups of an Ansible inventory: who contains whom, and whose variables win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Variables = dict[str, object]
# Groups that every inventory has.
ALWAYS = ("all", "ungrouped")


@dataclass(slots=True)
class Group:
    """One group, wherever in the file its parts are written."""

    name: str
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    variables: Variables = field(default_factory=dict)
    priority: int = 1


@dataclass(slots=True)
class Groups:
    """All groups of a file by name, in the order of first mention."""

    by_name: dict[str, Group] = field(default_factory=dict)

    def add(self, name: str, parent: str | None) -> Group:
        """The group of that name, now also a child of `parent`."""
        group = self.by_name.setdefault(name, Group(name))
        if parent is not None and parent not in group.parents:
            group.parents.append(parent)
            self.by_name[parent].children.append(name)
        return group

    def hosts_of(self, name: str) -> list[str]:
        """The hosts of a group as it lists them, then those of its children."""
        found = dict.fromkeys(self.by_name[name].hosts)
        for child in self.by_name[name].children:
            found.update(dict.fromkeys(self.hosts_of(child)))
        return list(found)

    def of_host(self, direct: list[str]) -> list[str]:
        """The groups that list a host and all that contain them, in file order."""
        found: set[str] = set()
        for name in direct:
            found.update(self._upwards(name))
        if "ungrouped" in direct and any(name not in ALWAYS for name in direct):
            found.remove("ungrouped")  # whatever the file says
        return [name for name in self.by_name if name in found]

    def cycle(self) -> list[str]:
        """Groups that contain each other, the first one again at the end; empty when there are none."""
        done: set[str] = set()
        for start in self.by_name:
            path = self._cycle_from(start, [], done)
            if path:
                return path
        return []

    def variables_of(self, direct: list[str]) -> Variables:
        """What groups say of a host: Ansible's order, by depth, then priority, then name; the last wins."""
        everybody, *groups = self.in_precedence(direct)
        merged: Variables = {}
        for name in groups:
            if name in self.by_name:
                merged = merge_variables(merged, self.by_name[name].variables)
        # Ansible joins them before they meet `all`: a map of theirs that says nothing hides none of it.
        return (
            merge_variables(self.by_name[everybody].variables, merged)
            if everybody in self.by_name
            else merged
        )

    def in_precedence(self, direct: list[str]) -> list[str]:
        """Every group of a host, `all` and `ungrouped` among them, the one that wins last."""
        own = [name for name in self.of_host(direct) if name != "all"]
        return ["all", *(sorted(own, key=self._rank) if own else ["ungrouped"])]

    def _rank(self, name: str) -> tuple[int, int, str]:
        return self._depth(name), self.by_name[name].priority, name

    def _depth(self, name: str) -> int:
        """`all` is 0; a group is one deeper than its deepest parent; a group without parent lies in `all`."""
        if name == "all":
            return 0
        return 1 + max((self._depth(parent) for parent in self.by_name[name].parents), default=0)

    def _upwards(self, name: str) -> Iterator[str]:
        yield name
        for parent in self.by_name[name].parents:
            yield from self._upwards(parent)

    def _cycle_from(self, name: str, path: list[str], done: set[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        done.add(name)
        for parent in self.by_name[name].parents:
            found = self._cycle_from(parent, [*path, name], done)
            if found:
                return found
        return []


def merge_variables(outer: Mapping[str, object], inner: Mapping[str, object]) -> Variables:
    """Inner variables win; `moe` maps merge key by key."""
    merged = {**outer, **inner}
    first, second = outer.get("moe"), inner.get("moe")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        merged["moe"] = {**first, **second}
    return merged
