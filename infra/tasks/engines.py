"""`fab engines`: the pinned engine releases, and what an upgrade changes for a stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.catalog.advisories import advisories_of, package_of
from infra.catalog.changes import Changed, ReleaseChanges, holes_of, release_changes
from infra.catalog.load import Catalog
from infra.catalog.schema import Release
from infra.checks.upgrade import Side, Upgrade, Used, compare_stack, judge_release
from infra.errors import StackError
from infra.spec.load import LoadedStack, load_stack, stack_names
from infra.spec.nearest import nearest
from infra.tasks.check import problem_document, problem_line
from infra.tasks.choice import chosen_inventory, chosen_name, same_choice
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, table
from infra.tasks.stack_options import chosen_stack

HEAD = ("engine", "version", "flags", "variables", "models", "advisories", "image", "stacks")
NO_DEFAULT = "(decided at start)"


def run(options: Options, output: Output) -> int:
    """Print the releases, or what one changes against another; 2 when a stack would not be accepted any more."""
    catalog, versions = Catalog(), options.pair("diff")
    has_stack = options.text("stack") is not None or options.text("file") is not None
    if versions is None:
        return _list(options, output, catalog, has_stack=has_stack)
    if not has_stack:
        return _diff_releases(versions, output, catalog)
    return _diff_stack(versions, options, output, catalog)


def _list(options: Options, output: Output, catalog: Catalog, *, has_stack: bool) -> int:
    """The table of releases; with a stack, those of its engine."""
    users = _users()
    stack = chosen_stack(options) if has_stack else None
    pinned = (stack.spec.engine.name, stack.spec.engine.version) if stack else None
    releases = [
        catalog.release(engine, version)
        for engine in catalog.engines
        for version in catalog.releases(engine)
        if pinned is None or engine == pinned[0]
    ]
    rows = [_release_document(release, catalog, users) for release in releases]
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": None if stack is None else stack.name,
            "ok": True,
            "engines": rows,
        }
    )
    output.data(table([HEAD, *(_row(row) for row in rows)]))
    lines = [f"{each.engine} {each.version}: {', '.join(holes_of(each))}" for each in releases]
    _section(
        output, "releases with advisories", [line for line in lines if not line.endswith(": ")]
    )
    _section(
        output,
        "what each lets somebody do (`fab check` says which of them a stack meets)",
        _meanings(releases),
    )
    if stack is not None and pinned is not None:
        others = [r.version for r in releases if r.version != pinned[1]]
        newest = others[-1] if others else "VERSION"
        output.next_command(f"fab engines {same_choice(options)} --diff {pinned[1]} {newest}")
    else:
        output.next_command("fab engines --stack NAME --diff A B")
    return 0


def _meanings(releases: Sequence[Release]) -> list[str]:
    """A line for each hole of some releases: its id, and what somebody can do by it; sorted."""
    found: dict[str, dict[str, None]] = {}
    for release in releases:
        for each in advisories_of(*package_of(release)):
            found.setdefault(each.id, {})[each.what] = None
    return [f"{name}: {'; '.join(words)}" for name, words in sorted(found.items())]


def _users() -> Mapping[tuple[str, str], list[str]]:
    """(engine, version) → the shipped stacks that pin it."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in stack_names():
        engine = load_stack(name).spec.engine
        found.setdefault((engine.name, engine.version), []).append(name)
    return found


def _release_document(
    release: Release, catalog: Catalog, users: Mapping[tuple[str, str], list[str]]
) -> dict[str, object]:
    packages = [
        catalog.package(name) for name in {release.flags_catalogue, *release.envs_catalogues}
    ]
    return {
        "engine": release.engine,
        "version": release.version,
        "base_version": release.base_version,
        "images": [image.reference for image in release.images],
        "num_flags": len(catalog.flags(release.flags_catalogue).by_name),
        "num_variables": len(catalog.environment_names(release.envs_catalogues).names),
        "advisories": list(holes_of(release)),
        "num_models": len(frozenset().union(*(package.models for package in packages))),
        "stacks": users.get((release.engine, release.version), []),
    }


def _row(document: Mapping[str, object]) -> tuple[str, ...]:
    images, stacks, holes = document["images"], document["stacks"], document["advisories"]
    return (
        *(
            str(document[key])
            for key in ("engine", "version", "num_flags", "num_variables", "num_models")
        ),
        str(len(holes)) if isinstance(holes, list) else "0",
        str(images[0]) if isinstance(images, list) and images else "none",
        ", ".join(stacks) if isinstance(stacks, list) and stacks else "none",
    )


def _diff_releases(versions: tuple[str, str], output: Output, catalog: Catalog) -> int:
    """What differs between two releases, whatever a stack uses.

    Raises:
        StackError: no engine, or more than one, has both.
    """
    old, new = versions
    both = [name for name in catalog.engines if {old, new} <= set(catalog.releases(name))]
    if len(both) != 1:
        known = sorted({version for name in catalog.engines for version in catalog.releases(name)})
        missing = next((each for each in versions if each not in known), None)
        what = (
            f"No engine has both {old} and {new}."
            if not both
            else f"{' and '.join(both)} have both."
        )
        fix = nearest(missing, known) if missing else "Add --stack NAME: its engine is meant."
        raise StackError("--diff", what, fix)
    changes = release_changes(catalog.release(both[0], old), catalog.release(both[0], new), catalog)
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": None,
            "ok": True,
            "engine": both[0],
            "from": old,
            "to": new,
            "release": _changes_document(changes),
        }
    )
    output.data(f"{both[0]} {old} → {new}")
    for title, lines in _release_lines(changes):
        _section(output, title, lines)
    output.next_command(f"fab engines --stack NAME --diff {old} {new}")
    return 0


def _diff_stack(
    versions: tuple[str, str], options: Options, output: Output, catalog: Catalog
) -> int:
    """What an upgrade changes for a stack."""
    name = chosen_name(options)
    stack, inventory = chosen_stack(options), chosen_inventory(options, name)
    engine = stack.spec.engine.name
    for version in versions:
        catalog.release(engine, version)  # an unknown one is named before anything is compiled
    sides = [judge_release(_pinned(options, version), catalog, inventory) for version in versions]
    upgrade = compare_stack((sides[0], versions[0]), (sides[1], versions[1]), stack, catalog)
    is_ok = not any(problem.blocks for problem in sides[1].problems)
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": stack.name,
            "ok": is_ok,
            "engine": engine,
            "from": versions[0],
            "to": versions[1],
            **_upgrade_document(upgrade),
            "release": _changes_document(upgrade.changes),
        }
    )
    output.data(f"{stack.name}: {engine} {versions[0]} → {versions[1]}")
    for title, lines in _stack_lines(upgrade):
        _section(output, title, lines)
    output.data(_verdict(sides[1], versions[1]))
    if is_ok:
        output.next_command(f"fab check {same_choice(options)} --set engine.version={versions[1]}")
    return 0 if is_ok else StackError.exit_code


def _pinned(options: Options, version: str) -> LoadedStack:
    """The chosen stack on another release of its engine."""
    words = (*options.words("set"), f"engine.version='{version}'")
    return chosen_stack(Options({**options.given, "set": list(words)}))


def _verdict(side: Side, version: str) -> str:
    errors = sum(problem.blocks for problem in side.problems)
    if errors:
        return f"{version} would be refused: {errors} error{'' if errors == 1 else 's'}."
    return f"{version} is accepted by every rule that needs no host."


def _section(output: Output, title: str, lines: list[str]) -> None:
    output.data("")
    output.data(f"{title}: {'none' if not lines else len(lines)}")
    for line in lines:
        output.data(f"  {line}")


def _stack_lines(upgrade: Upgrade) -> list[tuple[str, list[str]]]:
    return [
        (
            "flags of its commands that are gone",
            [_used_line(each) for each in upgrade.removed_flags],
        ),
        (
            "flags of its commands with a new name",
            [f"{_used_line(each)}: now --{to}" for each, to in upgrade.renamed_flags],
        ),
        (
            "keys of its JSON flags that are gone",
            [_used_line(each) for each in upgrade.removed_keys],
        ),
        (
            "its variables that are no longer read",
            [_used_line(each, dashes="") for each in upgrade.removed_variables],
        ),
        ("flags that compiling adds", [_used_line(each) for each in upgrade.commands_added]),
        (
            "flags that compiling leaves out",
            [_used_line(each) for each in upgrade.commands_dropped],
        ),
        (
            "rules that start to hold",
            [f"{name}: {clause}" for name, clause in upgrade.rules_started],
        ),
        (
            "rules that cease to hold",
            [f"{name}: {clause}" for name, clause in upgrade.rules_ceased],
        ),
        (
            "recipes that change",
            [f"{role}: {old or 'none'} → {new or 'none'}" for role, old, new in upgrade.recipes],
        ),
        (
            "findings about its commands as they are now",
            [problem_line(problem) for problem in upgrade.unchanged],
        ),
        (
            "findings that appear when it is compiled anew",
            [problem_line(problem) for problem in upgrade.appearing],
        ),
        ("findings that vanish then", [problem_line(problem) for problem in upgrade.vanishing]),
        (
            "changed defaults that it sets itself",
            [_changed_line(each) for each in upgrade.defaults_set],
        ),
        (
            "changed defaults that it takes",
            [_changed_line(each) for each in upgrade.defaults_taken],
        ),
    ]


def _release_lines(changes: ReleaseChanges) -> list[tuple[str, list[str]]]:
    return [
        ("flags that are gone", [f"--{name}" for name in changes.removed_flags]),
        ("flags with a new name", [f"--{a}: now --{b}" for a, b in changes.renamed_flags.items()]),
        ("keys of JSON flags that are gone", [f"--{name}" for name in changes.removed_keys]),
        ("variables that are no longer read", list(changes.removed_variables)),
        ("models that are gone", list(changes.removed_models)),
        ("advisories that are mended", list(changes.mended_holes)),
        ("advisories that are new", list(changes.new_holes)),
        ("changed defaults", [_changed_line(each) for each in changes.defaults]),
        (
            "changed defaults of variables",
            [_changed_line(each, "") for each in changes.variable_defaults],
        ),
        ("new flags", [f"--{name}" for name in changes.added_flags]),
    ]


def _used_line(used: Used, dashes: str = "--") -> str:
    return f"{dashes}{used.name} ({', '.join(used.roles)})"


def _changed_line(changed: Changed, dashes: str = "--") -> str:
    return f"{dashes}{changed.name}: {_shown(changed.old)} → {_shown(changed.new)}"


def _shown(value: object) -> str:
    return NO_DEFAULT if value is None else str(value)


def _upgrade_document(upgrade: Upgrade) -> dict[str, object]:
    return {
        "removed_flags": [_used_document(each) for each in upgrade.removed_flags],
        "renamed_flags": [{**_used_document(each), "to": to} for each, to in upgrade.renamed_flags],
        "removed_keys": [_used_document(each) for each in upgrade.removed_keys],
        "removed_variables": [_used_document(each) for each in upgrade.removed_variables],
        "added_by_compiling": [_used_document(each) for each in upgrade.commands_added],
        "left_out_by_compiling": [_used_document(each) for each in upgrade.commands_dropped],
        "rules_started": [_rule_document(each) for each in upgrade.rules_started],
        "rules_ceased": [_rule_document(each) for each in upgrade.rules_ceased],
        "recipes": [{"role": role, "old": old, "new": new} for role, old, new in upgrade.recipes],
        "unchanged": [problem_document(each) for each in upgrade.unchanged],
        "appearing": [problem_document(each) for each in upgrade.appearing],
        "vanishing": [problem_document(each) for each in upgrade.vanishing],
        "defaults_set": [_changed_document(each) for each in upgrade.defaults_set],
        "defaults_taken": [_changed_document(each) for each in upgrade.defaults_taken],
    }


def _changes_document(changes: ReleaseChanges) -> dict[str, object]:
    return {
        "removed_flags": list(changes.removed_flags),
        "renamed_flags": dict(changes.renamed_flags),
        "added_flags": list(changes.added_flags),
        "removed_keys": list(changes.removed_keys),
        "defaults": [_changed_document(each) for each in changes.defaults],
        "removed_variables": list(changes.removed_variables),
        "variable_defaults": [_changed_document(each) for each in changes.variable_defaults],
        "removed_models": list(changes.removed_models),
        "mended_advisories": list(changes.mended_holes),
        "new_advisories": list(changes.new_holes),
    }


def _used_document(used: Used) -> dict[str, object]:
    return {"name": used.name, "roles": list(used.roles)}


def _changed_document(changed: Changed) -> dict[str, object]:
    return {"name": changed.name, "old": changed.old, "new": changed.new}


def _rule_document(rule: tuple[str, str]) -> dict[str, object]:
    return {"rule": rule[0], "releases": rule[1]}
