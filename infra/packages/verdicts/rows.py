"""Commands that meet the rows of `infra/catalog/combinations/`, to be put to the releases that a row is about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from infra.catalog.combinations import TIMES, Combination, combinations
from infra.catalog.flags import FlagCatalogue, FlagFact
from infra.catalog.versions import version_numbers
from infra.packages.verdicts.questions import Question

# One process of each engine that is given a row's settings, alone on its host.
BASES: Mapping[str, str] = {
    "sglang": "h200-sglang-tp8",
    "vllm": "h200-tp8",
    "vllm-ascend": "a3-longctx-tp16",
}
KIND = "row"
_OTHER = 8  # of a setting that another one is held against
_HALF = 4  # of two sizes that divide it each, and not together
_ODD = 3  # divides neither that nor the number of a host's devices
# What a setting is refused without, whatever stands beside it: so that a row's own words are heard.
_BESIDE: Mapping[str, Mapping[str, Any]] = {
    "eplb-algorithm": {"expert-parallel-size": 8},
    "enable-pdmux": {"chunked-prefill-size": -1, "disable-overlap-schedule": True},
    "enable-elastic-ep": {"enable-eplb": True, "enable-expert-parallel": True},
    "enable-eplb": {"enable-expert-parallel": True},
    "kv-transfer-config.kv_connector": {"kv-transfer-config.kv_role": "kv_producer"},
    "prefill-context-parallel-size": {"tensor-parallel-size": 4},
    "speculative-config.disable_padded_drafter_batch": {
        "speculative-config.num_speculative_tokens": 3
    },
    "speculative-config.enable_adaptive_verification": {
        "speculative-config.num_speculative_tokens": 3
    },
    "speculative-config.method": {"speculative-config.num_speculative_tokens": 3},
    "speculative-eagle-topk": {"speculative-num-steps": 3, "speculative-num-draft-tokens": 4},
}
_PLAIN: Mapping[str, str] = {"int": "2", "size": "2", "float": "0.5", "json": "{}"}
_REAL: Mapping[str, Any] = {  # of values that are looked up, and of keys of JSON flags
    "attention-backend": "FLASHMLA",
    "attention-config.backend": "FLASHMLA",
    "compilation-config.cudagraph_capture_sizes": [1, 2],
    "compilation-config.max_cudagraph_capture_size": 2,
    "kv-transfer-config.kv_connector": "NixlConnector",
    "numa-bind-cpus": "0-3",
    "numa-bind-nodes": "0",
    "spec-method": "ngram",
    "speculative-algorithm": "NGRAM",
    "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
    "speculative-config.method": "ngram",
    "speculative-config.tensor_parallel_size": 2,
}
_VARIABLE = "env."


def row_questions(whole: Question, flags: FlagCatalogue) -> Iterator[tuple[Combination, Question]]:
    """Each row that is about a release, with a command that meets it.

    Args:
        whole: the command that is given the settings.
        flags: those of its release.
    """
    seen: set[str] = set()
    for row in rows_of(whole.package, whole.version):
        settings = settings_that_meet(row, flags)
        if settings.pop("model.is_mla", True) is None:
            continue  # no checkpoint of the catalogue is without
        settings.pop("model.architecture", None)
        change = f"with {', '.join(_told(name, value) for name, value in settings.items())}"
        if change in seen:
            continue
        seen.add(change)
        argv, env = _given(whole, settings, flags)
        subject = f"--{next(iter(row.when)).partition('.')[0]}"
        yield row, replace(whole, change=change, subject=subject, kind=KIND, argv=argv, env=env)


def rows_of(package: str, version: str) -> tuple[Combination, ...]:
    """The rows about a release, those about what it sits on among them."""
    found: list[Combination] = []
    for name in ("vllm", "vllm-ascend") if package == "vllm-ascend" else (package,):
        numbers = version_numbers(version)
        found += [row for row in combinations(name) if row.is_of(package, numbers)]
    return tuple(found)


def settings_that_meet(row: Combination, flags: FlagCatalogue) -> dict[str, Any]:
    """Setting → value, None for one that has to be left out; every condition of the row holds."""
    found: dict[str, Any] = {}
    for name, condition in row.when.items():
        fact = flags.by_name.get(name.split(TIMES)[0])
        if isinstance(condition, bool):
            found[name] = True if condition else None
            continue
        ((word, wanted),) = condition.items()
        for other in wanted if isinstance(wanted, list) else [wanted]:
            if isinstance(other, str) and other.startswith("@"):
                found.setdefault(other[1:], _OTHER)
        if TIMES in name:
            for each in name.split(TIMES):
                if word != "below":
                    found[each] = _HALF
        else:
            found[name] = _value_for(word, wanted, fact, _REAL.get(name))
    for name in row.when:
        beside = {} if found.get(name) is None else _BESIDE.get(name, {})
        known = {
            other: value
            for other, value in beside.items()
            if other.partition(".")[0] in flags.by_name
        }
        found = {**known, **found}
    return found


def _value_for(word: str, wanted: Any, fact: FlagFact | None, real: Any) -> Any:
    number = _OTHER if isinstance(wanted, str) else wanted
    if fact is not None and fact.choices and real not in fact.choices:
        real = None  # a flag of the same name of another engine
    if word == "in":
        return wanted[0]
    if word == "not_in":
        return _another(wanted, fact) if real is None or real in wanted else real
    if word == "given":
        return (_any_value(fact) if real is None else real) if wanted else None
    values: Mapping[str, Any] = {
        "has": f"garbage_collection_threshold:0.8,{wanted}",
        "not_share": 1.5,
        "not_dividing": _ODD,
    }
    if word in values:
        return values[word]
    return int(number) + {"above": 1, "below": -1, "not_above": 0}[word]


def _another(wanted: list[Any], fact: FlagFact | None) -> Any:
    """A value that is none of these; None, for none, where that is allowed."""
    if not {None, 1} & {each for each in wanted if not isinstance(each, list)}:
        return None
    if fact is not None and fact.choices:
        return next(choice for choice in fact.choices if choice not in wanted)
    if any(isinstance(each, int) for each in wanted) or (fact and fact.value_type == "int"):
        return _ODD
    return "another"


def _any_value(fact: FlagFact | None) -> Any:
    if fact is None:
        return "something"
    if fact.takes == 0:
        return True
    return fact.choices[0] if fact.choices else _PLAIN.get(fact.value_type, "something")


def _given(
    whole: Question, settings: Mapping[str, Any], flags: FlagCatalogue
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command and environment with these settings in the place of its own."""
    argv, env = list(whole.argv), dict(whole.env)
    for name, value in settings.items():
        if name.startswith(_VARIABLE):
            variable = name.removeprefix(_VARIABLE)
            env.pop(variable, None)
            if value is not None:
                env[variable] = str(value)
            continue
        flag, _, keys = name.partition(".")
        fact = flags.by_name[flag]
        old = _taken_out(argv, fact)
        argv += _words(flag, fact, _with_key(old, keys.split("."), value) if keys else value)
    return tuple(argv), env


def _taken_out(argv: list[str], fact: FlagFact) -> str | None:
    """Remove a flag with its values in whatever spelling; its last value."""
    value: str | None = None
    while (
        at := next((i for i, word in enumerate(argv) if word in fact.options), None)
    ) is not None:
        end = at + 1
        while end < len(argv) and not argv[end].startswith("--"):
            value, end = argv[end], end + 1
        del argv[at:end]
    return value


def _with_key(old: str | None, keys: list[str], value: Any) -> dict[str, Any] | None:
    document: dict[str, Any] = json.loads(old) if old and old.startswith("{") else {}
    inner = document
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner.pop(keys[-1], None)
    if value is not None:
        inner[keys[-1]] = value
    return document or None


def _words(flag: str, fact: FlagFact, value: Any) -> list[str]:
    if value is None:
        return []
    if value is False:
        return [fact.negation or f"--no-{flag}"]
    word = f"--{flag}" if f"--{flag}" in fact.options else max(fact.options, key=len)
    if value is True:
        return [word] if fact.takes == 0 else [word, "true"]
    return [word, json.dumps(value) if isinstance(value, dict) else str(value)]


def _told(name: str, value: Any) -> str:
    shown = name.removeprefix(_VARIABLE) if name.startswith(_VARIABLE) else f"--{name}"
    return f"no {shown}" if value is None else shown if value is True else f"{shown} {value}"
