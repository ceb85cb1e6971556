"""`cpu-1p1d`, whose engines are real: what it needs, what it looks at, and (slow, once installed) that it serves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from infra.catalog.load import Catalog
from infra.errors import PrerequisiteError
from infra.plan.compile import compile_file
from infra.rehearsal.installed import cache_folder
from infra.rehearsal.real_engines import (
    INSTALLER,
    STAMP,
    VERSION,
    are_processors,
    engine_binds,
    has_real_engines,
    installed_engine,
    total,
)
from infra.spec.load import stack_names
from tests.rehearsal.command import FAB, Shell

# Two engines load on processors that other tests may use too.
LIMIT_S = 1200
METRICS = """\
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 3.0
vllm:request_success_totally 7.0
vllm:nixl_xfer_time_seconds_count{engine="0"} 1.0
"""


def test_a_metric_is_summed_over_its_labels() -> None:
    assert total(METRICS, "vllm:request_success_total") == 5
    assert total(METRICS, "vllm:nixl_xfer_time_seconds_count") == 1
    assert total(METRICS, "vllm:no_such") == 0


def test_of_all_stacks_it_alone_has_real_engines(catalog: Catalog) -> None:
    plan = compile_file("cpu-1p1d", catalog=catalog).plan
    assert has_real_engines(plan, catalog)
    for name in stack_names():
        assert not has_real_engines(compile_file(name, catalog=catalog).plan, catalog)


def test_an_accelerator_that_nobody_knows_is_no_processor(catalog: Catalog) -> None:
    assert not are_processors(["no-such", "h200"], catalog)
    assert are_processors(["no-such", "cpu"], catalog)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"MOE_INFRA_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/moe-infra"),
        ({"HOME": "/h"}, "/h/.cache/moe-infra"),
    ],
)
def test_the_cache_is_that_of_the_scripts(variables: dict[str, str], folder: str) -> None:
    assert cache_folder(variables) == Path(folder)


def test_half_an_installation_is_none(tmp_path: Path) -> None:
    folder = tmp_path / f"cpu-engine-{VERSION}"
    (folder / "bin").mkdir(parents=True)
    with pytest.raises(PrerequisiteError, match=INSTALLER):
        installed_engine({"MOE_INFRA_CACHE": str(tmp_path)})
    (folder / STAMP).write_text("1 2\n")
    with pytest.raises(PrerequisiteError, match=f"{INSTALLER} again"):
        installed_engine({"MOE_INFRA_CACHE": str(tmp_path)})


def test_another_release_is_not_rehearsed_on_processors(catalog: Catalog) -> None:
    sets = ("engine.version=0.33.0",)
    plan = compile_file("cpu-1p1d", sets=sets, catalog=catalog).plan
    with pytest.raises(PrerequisiteError, match=r"not vllm 0\.33\.0"):
        engine_binds(plan)


@pytest.mark.lab
def test_without_the_engine_it_says_how_to_get_it(shell: Shell, tmp_path: Path) -> None:
    empty = Shell(shell.temporary, {"MOE_INFRA_CACHE": str(tmp_path / "cache")})
    empty.fab("rehearse", "--stack", "cpu-1p1d").refused(3, INSTALLER)


@pytest.mark.lab
@pytest.mark.slow  # real engines: minutes, 6 GB installed and 5 GB of memory
def test_real_engines_serve_a_token(shell: Shell) -> None:
    try:
        installed_engine(os.environ)
    except PrerequisiteError as error:
        pytest.skip(str(error))
    process = shell.start(FAB, "rehearse", "--stack", "cpu-1p1d", "--json")
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    report = json.loads(out)
    assert report["served_by"] == {"prefill": "prefill-0/0", "decode": "decode-0/0"}
    steps = {step["name"]: step for step in report["steps"]}
    assert not steps["start"]["simulated"]
    assert not steps["verify"]["simulated"]
    assert "fetched over NIXL" in steps["start"]["detail"]
