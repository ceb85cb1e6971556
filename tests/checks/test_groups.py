"""Every flag and variable of every release is a process's own, or equal on all processes of a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from infra.catalog.flags import FlagFact
from infra.catalog.read_releases import read_release, read_versions
from infra.checks.rules import RULES
from infra.checks.view import view_plan
from infra.engines.registry import ENGINES
from infra.plan.imported import parse_plan
from infra.spec.stack import EngineName
from tests.checks.rule_cases import CATALOG, FILE, right_document

# by engine, two nodes of one rank
STACKS: dict[EngineName, str] = {
    "vllm": "h200-2n-tp16",
    "vllm-ascend": "ascend-2n-tp16",
    "sglang": "sglang-2n-tp16",
}
RELEASES = [
    pytest.param(engine, version, id=f"{engine}-{version}")
    for engine in STACKS
    for version in read_versions(CATALOG, engine)
]
RULES_OF_GROUPS = (
    "group-flags-differ",
    "group-flags-uneven",
    "group-variables-differ",
    "group-variables-uneven",
)


def found(
    engine: EngineName, version: str, words: Sequence[str], env: dict[str, str]
) -> dict[str, set[str]]:
    """Rule → flags and variables that it names, where the second node alone is given these."""
    document = right_document(STACKS[engine])
    document["engine"]["version"] = version
    for process in document["processes"]:  # nothing but the program and its model
        process["argv"] = process["argv"][:3]
    second = document["processes"][1]
    second["argv"] = [*second["argv"], *words]
    second["env"] = {**second["env"], **env}
    view = view_plan(parse_plan(document, FILE), CATALOG)
    return {
        rule: {finding.field.rpartition(".")[2] for finding in RULES[rule].findings(view)}
        for rule in RULES_OF_GROUPS
    }


def flags_of(engine: EngineName, version: str) -> Iterable[FlagFact]:
    release = read_release(CATALOG, engine, version)
    return CATALOG.flags(release.flags_catalogue).by_name.values()


def otherwise(fact: FlagFact) -> tuple[str, ...]:
    """Words that set a flag to another value than its default."""
    name = fact.options[-1] if fact.negation is None else f"--{fact.name}"
    if fact.value_type == "bool":
        return (fact.negation,) if fact.default is True and fact.negation else (name,)
    for value in (*fact.choices, '{"some": "thing"}', "7", "0.5", "other"):
        is_json = value.startswith("{")
        fits = {"json": is_json, "int": value == "7", "size": value == "7", "float": value == "0.5"}
        is_one = (
            fits.get(fact.value_type, not is_json) if not fact.choices else value in fact.choices
        )
        if is_one and str(fact.default) != value:
            return (name, value)
    return ()  # it has one value, which is the default


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_each_flag_that_is_no_process_own_is_found_where_one_node_alone_has_it(
    engine: EngineName, version: str
) -> None:
    settings = ENGINES[engine].group_settings
    names: set[str] = set()
    words: list[str] = []
    for fact in flags_of(engine, version):
        own = fact.name in settings.own_flags or fact.name in ("help", "version")
        if not own and (given := otherwise(fact)):
            names.add(fact.name)
            words += given
    told = found(engine, version, words, {})
    loose = names & settings.loose_flags
    silent = (
        {"enable-dbo", "ubatch-size"} if engine == "vllm-ascend" and version >= "0.22" else set()
    )
    assert told["group-flags-differ"] == names - loose - silent
    assert told["group-flags-uneven"] == loose
    assert len(names) > 100


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_no_flag_of_a_process_own_is_found(engine: EngineName, version: str) -> None:
    settings = ENGINES[engine].group_settings
    words = [
        word
        for fact in flags_of(engine, version)
        if fact.name in settings.own_flags - {"node-rank", "headless", "model", "model-path"}
        for word in otherwise(fact)
    ]
    told = found(engine, version, words, {})
    assert len(words) > 50
    assert told["group-flags-differ"] | told["group-flags-uneven"] == set()


@pytest.mark.parametrize(("engine", "version"), RELEASES)
def test_each_variable_is_own_or_warned_of_or_refused(engine: EngineName, version: str) -> None:
    settings = ENGINES[engine].group_settings
    release = read_release(CATALOG, engine, version)
    given = right_document(STACKS[engine])["processes"][1]["env"]
    known = CATALOG.environment_names(release.envs_catalogues).names - set(given)
    names = {
        *known,
        "NCCL_ALGO",
        "NCCL_CUMEM_ENABLE",
        "NCCL_DEBUG",
        "GLOO_SOCKET_IFNAME",
        "POD_NAME",
    }
    told = found(engine, version, (), dict.fromkeys(names, "some-text"))
    step = {name for name in names if settings.step_variables.fullmatch(name)}
    own = {name for name in names if settings.own_variables.fullmatch(name)} - step
    assert told["group-variables-differ"] == step
    assert told["group-variables-uneven"] == names - step - own - {"POD_NAME"}
    assert {"NCCL_DEBUG", "GLOO_SOCKET_IFNAME"} <= own
    assert "NCCL_ALGO" in step


def test_what_is_declared_exists_in_some_release() -> None:
    known = {f.name for e in STACKS for v in read_versions(CATALOG, e) for f in flags_of(e, v)}
    for engine in STACKS:
        settings = ENGINES[engine].group_settings
        # some lists are of all families: their names are known to one of them
        assert settings.own_flags | settings.loose_flags <= known | {"model"}


def test_the_value_that_a_release_takes_by_itself_is_no_difference() -> None:
    assert found("vllm", "0.22.1", ("--dtype", "auto"), {})["group-flags-differ"] == set()


def test_what_a_pod_fills_in_is_not_compared() -> None:
    told = found("vllm", "0.22.1", ("--max-num-seqs", "$(SEQS)"), {"NCCL_ALGO": "$(ALGO)"})
    assert told["group-flags-differ"] | told["group-variables-differ"] == set()
