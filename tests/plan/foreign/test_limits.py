"""Files that ask for more work than any recipe: each ends soon, with a message that names the file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.errors import ProblemsFound
from infra.plan.foreign.assumed import Told
from infra.spec.work import MAX_STEPS, TooMuchWorkError, Work
from tests.plan.foreign.importing import argvs, imported, judged

# Of processor time; an operator's file has ten, on a machine that does other things, too.
LIMIT_S = 10.0
STEPS = f"takes more than {MAX_STEPS} steps"
POD = (
    "apiVersion: v1\nkind: Deployment\nmetadata: {name: a}\n"
    "spec:\n  replicas: %s\n  template:\n    spec:\n      containers:\n"
)
SLURM = "model: {path: x}\nresources: {gpus_per_node: %d, agg_workers: 512, agg_nodes: %d}\nbackend: {type: vllm}\n"
DOUBLES = "".join(
    f"        - {{name: A{i}, value: $(A{i - 1})$(A{i - 1})}}\n" for i in range(1, 60)
)
BOMBS: Mapping[str, tuple[str, str]] = {
    "loops.sh": ("for a in {1..250}; do for b in {1..250}; do for c in {1..250}; do\n done; done; done\n", STEPS),
    "doubled.sh": ("A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 60, "becomes longer than 100000 characters"),
    "array.sh": ("a=(x y)\n" + 'a=("${a[@]}" "${a[@]}")\n' * 40, STEPS),
    "width.sh": ("vllm serve x --tensor-parallel-size 999999999\n", "The number is beyond 1024"),
    "joined.sh": ('a=("' + "x" * 9_000 + '")\n' + 'a=("${a[@]}" "${a[@]}")\n' * 13 + 'b="${a[*]}"\n', STEPS),
    "keys.sh": ("declare -A a\nfor i in {1..250}; do for j in {1..250}; do a[$i-$j]=1; done; done\n", STEPS),
    "functions.sh": ("f() { g; g; }\ng() { f; f; for i in {1..200}; do f; done; }\nf\n", STEPS),
    "deep.sh": (
        "f() { " + "{ " * 35 + "g" + "; }" * 35 + "; }\ng() { " + "{ " * 35 + "f" + "; }" * 35 + "; }\nf\n",
        "nests more than 60",
    ),
    "inside.sh": (
        "X='" + "echo a;" * 10_000 + "'\nfor i in {1..250}; do for j in {1..250}; do bash -c \"$X\"; done; done\n",
        STEPS,
    ),
    "words.sh": ("echo" + " a" * 5_000 + "\nvllm serve x\n", "a command of more than 4096 words"),
    "patterns.sh": (
        "X=" + "a" * 90_000 + "\nfor i in {1..250}; do for j in {1..250}; do case $X in "
        + "*a" * 1_000 + "b) true;; esac; done; done\nvllm serve x\n",
        STEPS,
    ),
    "places.sh": ("case " + "a" * 90_000 + " in *" + "?" * 45_000 + "b) true;; esac\nvllm serve x\n", STEPS),
    "processes.sh": (
        "for i in {1..250}; do for j in {1..9}; do vllm serve m --port $i & done; done\n",
        "It starts 2250 processes; at most 1024",
    ),
    "devices.yaml": (SLURM % (999_999_999, 1), STEPS),
    "nodes.yaml": (SLURM % (1, 999_999_999), STEPS),
    "references.yaml": (
        POD % 1 + "      - name: a\n        env:\n        - {name: A0, value: xxxxxxxxxxxxxxxx}\n" + DOUBLES
        + "        command: [vllm, serve, $(A59)]\n",
        STEPS,
    ),
    "pods.yaml": (
        POD % 999_999_999 + "      - name: a\n        command: [bash, -c, 'for i in {1..250}; do echo $i; done']\n",
        STEPS,
    ),
    "aliases.yaml": (
        "apiVersion: v1\nkind: Pod\nx: &x |\n  " + "echo a; " * 100_000 + "\nspec:\n  containers:\n"
        + "  - {name: a, command: [bash, -c, *x]}\n" * 3_000,
        STEPS,
    ),
    "flow.yaml": ("a: " + "[" * 10_000 + "]" * 10_000 + "\n", "nests more than 40 levels"),
    "block.yaml": ("".join(" " * i + "a:\n" for i in range(1_200)) + " " * 1_200 + "a: 1\n", "nests more than 40"),
    "digits.yaml": ("services:\n  a: {image: x, scale: " + "9" * 1_000_000 + "}\n", "1000000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_asks_for_too_much_is_refused_soon(name: str, tmp_path: Path) -> None:
    text, said = BOMBS[name]
    begun = time.process_time()
    with pytest.raises(ProblemsFound) as caught:
        judged(tmp_path, text, name)
    assert time.process_time() - begun < LIMIT_S
    assert said in str(caught.value)
    assert name in caught.value.where


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve x --hf-overrides '" + '{"a":' * 1_500 + "1" + "}" * 1_500 + "'\n",
        "vllm serve x --api-server-count 999999999 --port " + "9" * 5_000 + "\n",
        "vllm serve x --max-model-len 1e999k --gpu-memory-utilization inf --swap-space nan\n",
        "shift " + "9" * 5_000 + "\necho ${" + "1" * 5_000 + "}\nvllm serve x\n",
        "vllm serve x --gpu-memory-utilization.a.b c\n",
    ],
    ids=["deep", "long", "infinite", "shift", "dotted"],
)  # fmt: skip
def test_numbers_and_json_that_are_too_long_are_read_and_judged(text: str, tmp_path: Path) -> None:
    begun = time.process_time()
    judged(tmp_path, text)
    assert time.process_time() - begun < LIMIT_S
    assert [argv[:2] for argv in argvs(imported(tmp_path, text))] == [("vllm", "serve")]


def test_what_a_message_quotes_of_a_long_word_is_short(tmp_path: Path) -> None:
    text = (
        "vllm serve moonshotai/Kimi-K2.5 --hf-overrides '"
        + '{"a":' * 1_500
        + "1"
        + "}" * 1_500
        + "'\n"
    )
    problems = judged(tmp_path, text, told=Told(engine="vllm:0.22.1")).problems
    (found,) = [problem for problem in problems if problem.rule == "unknown-flag"]
    assert len(found.what) < 1_000
    assert "it nests more than 64 deep" in found.what


def test_work_is_refused_before_it_is_made() -> None:
    work = Work(10)
    work.spend(10)
    with pytest.raises(TooMuchWorkError) as caught:
        work.spend_text(10**9, 7)
    assert caught.value.line == 7
