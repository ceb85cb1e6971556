"""Whether an engine makes progress: alive and green, and not one token."""

from __future__ import annotations

from infra.agent.group.progress import (
    Counters,
    Patience,
    Sample,
    Track,
    advance,
    ask,
    judge,
    new_track,
    parse,
)

VLLM = Counters(
    "vllm:num_requests_running", ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
)
PATIENCE = Patience(first_s=1800.0, silent_s=60.0, stuck_s=120.0)
BUSY = Sample({"0": 3.0}, {"0": 50.0})


def follow(*answers: tuple[float, Sample | None]) -> Track:
    """What is known after these answers, of an engine that was started at 0."""
    track = new_track(0.0)
    for at, sample in answers:
        track = advance(track, sample, at)
    return track


def test_requests_without_a_token_for_two_minutes_are_a_hang() -> None:
    track = follow((5.0, BUSY), (120.0, BUSY))
    assert judge(track, 120.0, PATIENCE) == ""
    track = follow((5.0, BUSY), (120.0, BUSY), (126.0, BUSY))
    assert judge(track, 126.0, PATIENCE) == "rank 0 runs requests and has made no token for 120 s"


def test_an_idle_engine_does_not_hang_however_long() -> None:
    idle = Sample({"0": 0.0}, {"0": 50.0})
    assert judge(follow((5.0, idle), (9000.0, idle)), 9000.0, PATIENCE) == ""


def test_one_rank_hangs_among_others_that_serve() -> None:
    track = new_track(0.0)
    for number in range(30):
        at = 5.0 * number
        track = advance(track, Sample({"0": 1.0, "1": 1.0}, {"0": at, "1": 7.0}), at)
    assert judge(track, 145.0, PATIENCE).startswith("rank 1 runs requests")


def test_a_prefill_rank_makes_progress_by_its_prompts() -> None:
    text = (
        'vllm:num_requests_running{engine="0",model_name="m"} 1.0\n'
        'vllm:generation_tokens_total{engine="0",model_name="m"} 4.0\n'
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 4096.0\n'
    )
    assert parse(text, VLLM) == Sample({"0": 1.0}, {"0": 4100.0})


def test_other_lines_and_garbage_are_skipped() -> None:
    text = '# HELP x\nvllm:num_requests_running{engine="0"}\nvllm:num_requests_waiting{engine="0"} 9\n\xff\n'
    assert parse(text, VLLM) == Sample({}, {})
    assert parse("vllm:num_requests_running 2\n", VLLM) == Sample({"": 2.0}, {})


def test_loading_is_not_silence_and_has_a_limit_of_its_own() -> None:
    assert judge(follow((5.0, None)), 1800.0, PATIENCE) == ""
    words = judge(follow((5.0, None)), 1801.0, PATIENCE)
    assert words == "does not answer 1800 s after its start"


def test_silence_after_the_first_answer_is_a_hang() -> None:
    track = follow((5.0, BUSY), (30.0, None), (40.0, None), (50.0, None))
    assert judge(track, 65.0, PATIENCE) == ""
    assert judge(track, 66.0, PATIENCE) == "has not answered for 60 s"


def test_a_watcher_that_was_frozen_asks_again_before_it_judges() -> None:
    track = follow((5.0, BUSY), (600.0, None), (605.0, None))
    assert judge(track, 606.0, PATIENCE) == ""
    assert judge(advance(track, None, 610.0), 610.0, PATIENCE) == "has not answered for 60 s"
    grown = Sample({"0": 3.0}, {"0": 51.0})
    again = advance(advance(track, grown, 610.0), None, 615.0)
    assert judge(again, 671.0, PATIENCE) == ""


def test_an_address_where_nobody_listens_is_no_answer() -> None:
    assert ask("http://127.0.0.1:1/metrics", VLLM) is None
