"""Groups of an Ansible inventory: who contains whom, and whose variables win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from infra.spec.work import Work

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
    """All groups of a file by name, in the order of first mention.

    What is asked of groups is asked for every host: answers are kept, and each path through them is walked once.

    Args:
        work: the budget of the inventory.
    """

    work: Work
    by_name: dict[str, Group] = field(default_factory=dict)
    _depths: dict[str, int] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _variables: dict[tuple[str, ...], Variables] = field(default_factory=dict)

    def add(self, name: str, parent: str | None) -> Group:
        """The group of that name, now also a child of `parent`."""
        group = self.by_name.setdefault(name, Group(name))
        self._places.setdefault(name, len(self._places))
        if parent is not None and parent not in group.parents:
            self.work.spend(1 + len(group.parents))
            group.parents.append(parent)
            self.by_name[parent].children.append(name)
        return group

    def hosts_of(self, name: str) -> list[str]:
        """The hosts of a group as it lists them, then those of its children."""
        found: dict[str, None] = {}
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            group = self.by_name[waiting.pop()]
            if group.name in seen:
                continue
            seen.add(group.name)
            self.work.spend(1 + len(group.hosts) + len(group.children))
            found.update(dict.fromkeys(group.hosts))
            waiting += reversed(group.children)
        return list(found)

    def of_host(self, direct: list[str]) -> list[str]:
        """The groups that list a host and all that contain them, in file order."""
        found: set[str] = set()
        waiting = list(direct)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                parents = self.by_name[name].parents
                self.work.spend(1 + len(parents))
                waiting += parents
        if "ungrouped" in direct and any(name not in ALWAYS for name in direct):
            found.remove("ungrouped")  # whatever the file says
        return sorted(found, key=self._places.__getitem__)

    def cycle(self) -> list[str]:
        """Groups that contain each other, the first one again at the end; empty when there are none."""
        done: set[str] = set()
        for start in self.by_name:
            path: dict[str, Iterator[str]] = {}
            name: str | None = start
            while name is not None:
                if name in path:
                    names = list(path)
                    return [*names[names.index(name) :], name]
                if name not in done:
                    path[name] = iter(self.by_name[name].parents)
                name = _next_parent(path, done)
        return []

    def variables_of(self, direct: list[str]) -> Variables:
        """What groups say of a host: Ansible's order, by depth, then priority, then name; the last wins."""
        key = tuple(direct)
        if key not in self._variables:
            everybody, *groups = self.in_precedence(direct)
            merged: Variables = {}
            for name in groups:
                if name in self.by_name:
                    merged = merge_variables(merged, self.by_name[name].variables)
                    self.work.spend(1 + len(merged))
            # Ansible joins them before they meet `all`: a map of theirs that says nothing hides none of it.
            if everybody in self.by_name:
                merged = merge_variables(self.by_name[everybody].variables, merged)
            self._variables[key] = merged
        return self._variables[key]

    def in_precedence(self, direct: list[str]) -> list[str]:
        """Every group of a host, `all` and `ungrouped` among them, the one that wins last."""
        own = [name for name in self.of_host(direct) if name != "all"]
        return ["all", *(sorted(own, key=self._rank) if own else ["ungrouped"])]

    def _rank(self, name: str) -> tuple[int, int, str]:
        return self._depth(name), self.by_name[name].priority, name

    def _depth(self, name: str) -> int:
        """`all` is 0; a group is one deeper than its deepest parent; a group without parent lies in `all`."""
        waiting = [name]
        while waiting:
            group = self.by_name[waiting[-1]]
            above = [one for one in group.parents if one not in self._depths]
            if above and group.name != "all" and group.name not in self._depths:
                self.work.spend(len(above))
                waiting += above
                continue
            deepest = max((self._depths[one] for one in group.parents), default=0)
            self._depths[group.name] = 0 if group.name == "all" else 1 + deepest
            waiting.pop()
        return self._depths[name]


def merge_variables(outer: Mapping[str, object], inner: Mapping[str, object]) -> Variables:
    """Inner variables win; `moe` maps merge key by key."""
    merged = {**outer, **inner}
    first, second = outer.get("moe"), inner.get("moe")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        merged["moe"] = {**first, **second}
    return merged


def _next_parent(path: dict[str, Iterator[str]], done: set[str]) -> str | None:
    """The next group of a walk upwards, None at its end; whoever has no further parents is done.

    Args:
        path: groups from the first one upwards, with their parents that are not looked at yet.
        done: groups that lie on no circle.
    """
    while path:
        last = next(reversed(path))
        parent = next(path[last], None)
        if parent is not None:
            return parent
        done.add(last)
        del path[last]
    return None
