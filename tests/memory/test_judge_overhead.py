"""The overhead model is judged on public start-up logs, and docs/estimates.md says how it fares."""

from __future__ import annotations

from statistics import median

import pytest

from infra.catalog.figures import read_loading_rates
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml
from tests.memory.judge_overhead import PATH, StartUpLog, estimates_document, read_logs

LOGS = read_logs()
TIMES = PROJECT / "tests" / "cases" / "start_up_times.yaml"


def test_the_stored_document_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == estimates_document(), (
        "run python -m tests.memory.judge_overhead"
    )


def test_there_are_enough_logs_over_enough_accelerators() -> None:
    assert len(LOGS) >= 15
    assert len({log.accelerator for log in LOGS}) >= 5
    assert len({log.name for log in LOGS}) == len(LOGS)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.name)
def test_a_log_adds_up_and_names_its_source(log: StartUpLog) -> None:
    assert 0 < log.measured_gib < log.total_gib * log.share
    assert log.source
    assert log.total_is in {"log", "known"}
    assert log.share_is in {"log", "default"}


def test_the_model_was_not_fitted_to_its_judges() -> None:
    """Kimi-K2-Thinking on H200 gave the constant of vLLM; the rest of its family runs elsewhere."""
    assert not [log for log in LOGS if "Kimi-K2-Thinking" in log.model]


def test_vllm_is_rarely_promised_more_than_it_has() -> None:
    """What `fab estimate` promises too little is there; what it promises too much does not start."""
    errors = [log.error_gib for log in LOGS if log.engine == "vllm"]
    assert sum(error >= 0 for error in errors) >= 0.8 * len(errors)


def test_the_time_of_a_start_is_the_median_of_what_is_known() -> None:
    starts = read_yaml(TIMES)
    assert len(starts) >= 5
    assert all(start["source"] for start in starts)
    known = median(start["seconds"] for start in starts)
    assert read_loading_rates().start_s["vllm"] == round(known)
    assert f"then {known:.0f} s (vLLM" in PATH.read_text(encoding="utf-8")
