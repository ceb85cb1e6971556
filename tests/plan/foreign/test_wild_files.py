"""What files in the wild do that no format asks for: wrappers, other markups, commands inside other people's YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.checks.foreign import judge_recipe
from infra.errors import ProblemsFound
from infra.render.import_report import import_listing
from tests.plan.foreign.importing import CATALOG, argvs, imported

SERVE = "vllm serve moonshotai/Kimi-K2-Thinking --tensor-parallel-size 8"


@pytest.mark.parametrize(
    "wrapper",
    ["uv run", "./run-with-libraries.sh", "nsys profile -o trace", "conda run -n serving"],
)
def test_words_before_an_engine_are_taken_for_a_wrapper_and_said(
    tmp_path: Path, wrapper: str
) -> None:
    recipe = imported(tmp_path, f"export HF_HUB_OFFLINE=1\n{wrapper} {SERVE}\n")
    assert argvs(recipe) == [tuple(SERVE.split())]
    assert recipe.assembled.plan.processes[0].env["HF_HUB_OFFLINE"] == "1"
    (note,) = recipe.not_understood
    assert (note.line, note.text, note.why) == (
        2,
        wrapper,
        "taken for a wrapper of what follows it",
    )


@pytest.mark.parametrize("silent", ["echo", "grep -r", "pip install", "curl", "git log --grep"])
def test_what_only_prints_or_asks_starts_nothing(tmp_path: Path, silent: str) -> None:
    with pytest.raises(ProblemsFound) as caught:
        imported(tmp_path, f"{silent} {SERVE}\n")
    assert "`vllm serve` stands on line 1" in caught.value.what


def test_an_engine_in_a_text_of_its_own_is_named_by_its_line(tmp_path: Path) -> None:
    script = (
        f"# {SERVE}\nrun_on() {{ srun bash -s <<< \"$2\"; }}\n\nrun_on head '{SERVE} --port 1'\n"
    )
    with pytest.raises(ProblemsFound) as caught:
        imported(tmp_path, script)
    (problem,) = caught.value.problems
    assert (problem.rule, problem.line) == ("not-followed", 4)
    assert "shell script of its own" in problem.fix


def test_a_command_in_yaml_of_no_known_format_is_named_by_its_line(tmp_path: Path) -> None:
    text = f"resources:\n  accelerators: H200:8\nrun: |\n  echo starting\n  {SERVE}\n"
    with pytest.raises(ProblemsFound) as caught:
        imported(tmp_path, text, "task.yaml")
    (problem,) = caught.value.problems
    assert (problem.rule, problem.line) == ("not-followed", 5)


RESTRUCTURED = """\
Serving
=======

.. code-block:: bash
   :linenos:

   export HF_HUB_OFFLINE=1

One host
--------

Prose about ``vllm serve`` is prose.

.. code-block:: console

    $ vllm serve a/b --port 8001

.. code-block:: python

    import vllm

Another
-------

.. code:: sh

  vllm serve c/d \\
    --port 8002
"""


def test_a_restructured_guide_is_read_by_its_blocks(tmp_path: Path) -> None:
    recipe = imported(tmp_path, RESTRUCTURED, "serving.rst")
    assert recipe.format == "reStructuredText page"
    assert argvs(recipe) == [
        ("vllm", "serve", "a/b", "--port", "8001"),
        ("vllm", "serve", "c/d", "--port", "8002"),
    ]
    assert [p.env.get("HF_HUB_OFFLINE") for p in recipe.assembled.plan.processes] == ["1", "1"]
    lines = [seat.launch.line for seat in recipe.assembled.seats.values()]
    assert lines == [16, 27]


def test_a_chip_that_the_catalogue_lacks_is_named(tmp_path: Path) -> None:
    pod = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: serving}}
spec:
  nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-h100-80gb}}
  containers:
    - {{name: engine, image: "vllm/vllm-openai:v0.22.1", command: [bash, -c, {SERVE}]}}
"""
    recipe = imported(tmp_path, pod, "pod.yaml")
    (note,) = (each for each in recipe.facts.assumptions if each.what == "accelerator")
    assert note.why.startswith("the catalogue has no nvidia-h100-80gb (line 5)")


def test_the_same_gap_on_several_lines_is_listed_once(tmp_path: Path) -> None:
    recipe = imported(tmp_path, f"make ready\n{SERVE} &\nmake ready\n")
    listing = import_listing(recipe, judge_recipe(recipe, CATALOG))
    assert "  lines 1, 3: make ready: make is not followed\n" in listing
