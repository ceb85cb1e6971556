"""Systematic damage to a process: flags dropped, misspelt, given other values or added, and variables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# What nobody asked for: each is right somewhere and wrong on most plans.
STRANGERS: tuple[tuple[str, ...], ...] = (
    ("--enable-dbo",),
    ("--enable-eplb",),
    ("--headless",),
    ("--all2all-backend", "mori"),
    ("--swap-space", "100"),
    ("--api-server-count", "2"),
    ("--data-parallel-hybrid-lb",),
    ("--data-parallel-external-lb",),
    ("--data-parallel-size-local", "7"),
    ("--nnodes", "3"),
    ("--node-rank", "1"),
    ("--quantization", "ascend"),
    ("--quantization", "none-such"),
    ("--kv-cache-dtype", "fp8"),
    ("--decode-context-parallel-size", "3"),
    ("--pipeline-parallel-size", "2"),
    ("--tensor-parallel-size", "3"),
    ("--max-num-batched-tokens", "1"),
    ("--distributed-executor-backend", "ray"),
    ("--attention-backend", "none-such"),
    ("--speculative-config", '{"method":"eagle3","num_speculative_tokens":3}'),
    ("--additional-config", '{"enable_kv_nz":true}'),
    ("--enable-two-batch-overlap",),
    ("--disaggregation-ib-device", "mlx5_0,mlx5_0"),
    ("--disaggregation-decode-tp", "3"),
    ("--page-size", "7"),
    ("--dp-size", "3"),
    ("--ep-size", "3"),
    ("--context-length", "999999"),
    ("--chat-template", "none-such"),
    ("--mem-fraction-static", "0.1"),
)
STRANGE_VARIABLES: Mapping[str, str] = {
    "VLLM_PORT": "tcp://192.0.2.9:8000",
    "ASCEND_LAUNCH_BLOCKING": "1",
    "VLLM_ASCEND_ENABLE_FLASHCOMM1": "1",
    "VLLM_ASCEND_BALANCE_SCHEDULING": "1",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": "none-such",
    "VLLM_MOONCAKE_BOOTSTRAP_PORT": "none-such",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A process's command and environment with one thing changed.

    Args:
        change: what was changed, in words; unique among a process's mutants.
        subject: the flag or the variable that was changed.
        kind: how, so that a sample can be spread over all kinds of damage.
    """

    change: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    subject: str
    kind: str


def mutants(
    argv: Sequence[str],
    env: Mapping[str, str],
    strangers: Sequence[Sequence[str]] = STRANGERS,
) -> Iterator[Mutant]:
    """Every mutant of one process; none equals the process itself.

    Args:
        argv: the process's command.
        env: its environment.
        strangers: flags with their values that are added, one at a time.
    """
    words = tuple(argv)
    for start, end in _spans(words):
        yield from _mutants_of_flag(words, start, end, env)
    for added in strangers:
        yield Mutant(f"added {' '.join(added)}", (*words, *added), env, added[0], "added")
    for name in env:
        without = {key: value for key, value in env.items() if key != name}
        yield Mutant(f"{name} unset", words, without, name, "variable unset")
        other = {**env, name: "none-such"}
        yield Mutant(f"{name}=none-such", words, other, name, "variable")
    for name, value in STRANGE_VARIABLES.items():
        yield Mutant(f"{name}={value}", words, {**env, name: value}, name, "strange variable")


def _mutants_of_flag(
    words: tuple[str, ...], start: int, end: int, env: Mapping[str, str]
) -> Iterator[Mutant]:
    name, values = words[start], words[start + 1 : end]
    yield Mutant(f"without {name}", words[:start] + words[end:], env, name, "dropped")
    renamed = (f"{name}-none-such",)
    misspelt = words[:start] + renamed + words[start + 1 :]
    yield Mutant(f"{name} misspelt", misspelt, env, name, "misspelt")
    if len(values) != 1:
        return
    valueless = words[: start + 1] + words[end:]
    yield Mutant(f"{name} without its value", valueless, env, name, "valueless")
    for value in _other_values(values[0]):
        change = f"{name} {values[0]} → {value}"
        kind = "key" if value.startswith("{") and value.endswith("}") else "value"
        yield Mutant(change, (*words[: start + 1], value, *words[end:]), env, name, kind)


def _spans(words: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """First word and the one behind the last, of each flag with its values."""
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    yield from zip(starts, [*starts[1:], len(words)], strict=True)


def _other_values(value: str) -> Iterator[str]:
    """Values of the same kind around this one, and values of another kind."""
    found: list[str] = []
    if value.lstrip("-").isdecimal():
        number = int(value)
        near = (0, number + 1, number - 1, number * 2, number // 2, 3, -1, 1_000_000)
        found = [*map(str, near), "none-such"]
    elif value.startswith("{"):
        found = [*_other_maps(json.loads(value)), value[:-1]]
    elif _is_number(value):
        found = [str(number) for number in (0, float(value) / 2, float(value) * 2, 1.5)]
    else:
        found = ["none-such", f"{value}x"]
    yield from dict.fromkeys(other for other in found if other != value)


def _other_maps(value: Mapping[str, object]) -> Iterator[str]:
    yield json.dumps({**value, "no_such_key": 1})
    for key, inner in value.items():
        yield json.dumps({name: each for name, each in value.items() if name != key})
        yield json.dumps({**value, key: "none-such"})
        if isinstance(inner, int):
            yield json.dumps({**value, key: inner + 1})
            yield json.dumps({**value, key: 0})
        if isinstance(inner, Mapping):
            for deeper in _other_maps(inner):
                yield json.dumps({**value, key: json.loads(deeper)})


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
