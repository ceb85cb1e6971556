"""What changes for one stack when its engine's release is exchanged for another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from infra.catalog.changes import Changed, ReleaseChanges, release_changes
from infra.catalog.load import Catalog
from infra.checks.judge import judge_stack
from infra.checks.rule_releases import changed_clauses
from infra.checks.rules import RULES
from infra.checks.view import PlanView, view_plan
from infra.errors import Problem, ProblemsFound, StackError
from infra.inventory.hosts import Inventory
from infra.plan.compile import address_book, analyse_stack, compile_plan
from infra.plan.process import Plan
from infra.spec.load import LoadedStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Something that the stack's processes use, and on which roles: a flag, a key, or a variable."""

    name: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The stack on one release: its plan where it can be placed, each role's recipe, and everything that is found."""

    plan: Plan | None
    recipes: Mapping[str, str | None]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What an upgrade means for a stack.

    Args:
        changes: of the releases, whatever the stack uses.
        removed_flags: flags of the stack's commands that the new release refuses.
        renamed_flags: flags of its commands, with the new canonical name.
        removed_keys: keys inside JSON flags of its commands.
        removed_variables: variables that its processes are given for nothing.
        defaults_set: changed defaults of flags that its commands set: nothing changes.
        defaults_taken: changed defaults that its processes take.
        rules_started, rules_ceased: (rule, clause) that hold for one of the releases alone.
        appearing, vanishing: findings of one side alone, each compiled for its release.
        unchanged: findings about the old release's commands, were they started as they are on the new one.
        recipes: (role, old recipe, new recipe) where another one matches, or none does any more.
        commands_added, commands_dropped: flags that compiling for the new release adds or leaves out.
    """

    changes: ReleaseChanges
    removed_flags: tuple[Used, ...]
    renamed_flags: tuple[tuple[Used, str], ...]
    removed_keys: tuple[Used, ...]
    removed_variables: tuple[Used, ...]
    defaults_set: tuple[Changed, ...]
    defaults_taken: tuple[Changed, ...]
    rules_started: tuple[tuple[str, str], ...]
    rules_ceased: tuple[tuple[str, str], ...]
    appearing: tuple[Problem, ...]
    vanishing: tuple[Problem, ...]
    unchanged: tuple[Problem, ...]
    recipes: tuple[tuple[str, str | None, str | None], ...]
    commands_added: tuple[Used, ...]
    commands_dropped: tuple[Used, ...]


def judge_release(stack: LoadedStack, catalog: Catalog, inventory: Inventory | None) -> Side:
    """A stack as far as it can be placed on the release that it names, judged by every rule."""
    try:
        resolved, topology, problems = analyse_stack(stack, catalog)
        if resolved is None or topology is None:
            return Side(plan=None, recipes={}, problems=problems)
        plan = compile_plan(resolved, topology, address_book(topology, inventory), catalog)
    except ProblemsFound as error:
        return Side(plan=None, recipes={}, problems=error.problems)
    recipes: dict[str, str | None] = {each.role: each.recipe for each in resolved.roles}
    found = (*problems, *judge_stack(plan, stack, catalog))
    return Side(plan=plan, recipes=recipes, problems=found)


def judge_unchanged(
    plan: Plan, version: str, stack: LoadedStack, catalog: Catalog
) -> tuple[Problem, ...]:
    """What another release says of a plan's commands as they are."""
    engine = replace(plan.engine, version=version)
    return judge_stack(replace(plan, engine=engine), stack, catalog)


def compare_stack(
    old: tuple[Side, str], new: tuple[Side, str], stack: LoadedStack, catalog: Catalog
) -> Upgrade:
    """What becomes of a stack.

    Args:
        old: the stack on the old release, and that release's version.
        new: the same on the new one.
        stack: the file, for the lines of what is found.
        catalog: with both releases.

    Raises:
        StackError: the stack cannot be placed on the old release.
    """
    (before, old_version), (after, new_version) = old, new
    if before.plan is None:
        raise StackError(
            f"engine.version {old_version}",
            "The stack cannot be placed on this release, so there is nothing to upgrade.",
            "Run `fab check` on it first.",
        )
    engine = before.plan.engine.name
    changes = release_changes(
        catalog.release(engine, old_version), catalog.release(engine, new_version), catalog
    )
    view = view_plan(before.plan, catalog)
    flags, keys, variables = _flags(view), _keys(view), _variables(view)
    then = _flags(view_plan(after.plan, catalog)) if after.plan is not None else None
    started, ceased = _rules(engine, old_version, new_version)
    return Upgrade(
        changes=changes,
        removed_flags=_of(flags, changes.removed_flags),
        renamed_flags=tuple(
            (_used(flags, name), to) for name, to in changes.renamed_flags.items() if name in flags
        ),
        removed_keys=_of(keys, changes.removed_keys),
        removed_variables=_of(variables, changes.removed_variables),
        defaults_set=tuple(
            each for each in changes.defaults if each.name in flags or each.name in keys
        ),
        defaults_taken=tuple(
            each for each in changes.defaults if each.name not in flags and each.name not in keys
        ),
        rules_started=started,
        rules_ceased=ceased,
        appearing=_only(after.problems, before.problems, (old_version, new_version)),
        vanishing=_only(before.problems, after.problems, (old_version, new_version)),
        unchanged=_only(
            judge_unchanged(before.plan, new_version, stack, catalog),
            before.problems,
            (old_version, new_version),
        ),
        recipes=tuple(
            (role, recipe, after.recipes.get(role))
            for role, recipe in before.recipes.items()
            if after.plan is not None and recipe != after.recipes.get(role)
        ),
        commands_added=_of(then or {}, (then or {}).keys() - flags.keys()),
        commands_dropped=_of(flags, flags.keys() - then.keys()) if then is not None else (),
    )


def _flags(view: PlanView) -> Mapping[str, tuple[str, ...]]:
    """Canonical flag → roles whose commands have it; in any spelling, known to the release or not."""
    return _roles((name, process.role) for process in view.variants for name in view.flags(process))


def _keys(view: PlanView) -> Mapping[str, tuple[str, ...]]:
    """`flag.key` of every map in the commands, at any depth → roles."""
    return _roles(
        (path, process.role)
        for process in view.variants
        for name, value in view.flags(process).items()
        for path in _paths(name, value)
    )


def _variables(view: PlanView) -> Mapping[str, tuple[str, ...]]:
    return _roles((name, process.role) for process in view.variants for name in process.env)


def _paths(place: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield f"{place}.{key}"
            yield from _paths(f"{place}.{key}", inner)


def _roles(pairs: Iterator[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for name, role in pairs:
        found.setdefault(name, {})[role] = None
    return {name: tuple(roles) for name, roles in found.items()}


def _used(known: Mapping[str, tuple[str, ...]], name: str) -> Used:
    return Used(name=name, roles=known[name])


def _of(known: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> tuple[Used, ...]:
    return tuple(_used(known, name) for name in sorted(names) if name in known)


def _rules(
    engine: str, old: str, new: str
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """(rule, clause) of every rule, or part of one, that holds for one release alone: started, then ceased."""
    started, ceased = [], []
    for name, rule in RULES.items():
        begins, ends = changed_clauses(rule.releases, rule.parts, engine, (old, new))
        started += [(name, clause) for clause in begins]
        ceased += [(name, clause) for clause in ends]
    return tuple(started), tuple(ceased)


def _only(
    these: tuple[Problem, ...], those: tuple[Problem, ...], versions: tuple[str, str]
) -> tuple[Problem, ...]:
    """The findings of one side; one that differs in the version that it names alone is on both."""
    known = {_key(problem, versions) for problem in those}
    return tuple(problem for problem in these if _key(problem, versions) not in known)


def _key(problem: Problem, versions: tuple[str, str]) -> tuple[str, str, str]:
    what = problem.what
    for version in versions:
        what = what.replace(version, "*")
    return problem.rule, problem.field, what
