"""Whether an engine makes progress: alive and green, and not one token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from infra.agent.group.progress import (
    Counters,
    Patience,
    Sample,
    Track,
    advance,
    ask,
    ask_token,
    begin_asking,
    hear,
    judge,
    new_track,
    parse,
)

VLLM = Counters(
    ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ("vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
)
PATIENCE = Patience(first_s=1800.0, silent_s=60.0, stuck_s=120.0, idle_s=600.0)
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
    assert judge(track, 126.0, PATIENCE) == "rank 0 has requests and has made no token for 120 s"


def test_an_idle_engine_does_not_hang_however_long() -> None:
    idle = Sample({"0": 0.0}, {"0": 50.0})
    assert judge(follow((5.0, idle), (9000.0, idle)), 9000.0, PATIENCE) == ""


def test_one_rank_hangs_among_others_that_serve() -> None:
    track = new_track(0.0)
    for number in range(30):
        at = 5.0 * number
        track = advance(track, Sample({"0": 1.0, "1": 1.0}, {"0": at, "1": 7.0}), at)
    assert judge(track, 145.0, PATIENCE).startswith("rank 1 has requests")


def test_a_prefill_rank_makes_progress_by_its_prompts() -> None:
    text = (
        'vllm:num_requests_running{engine="0",model_name="m"} 1.0\n'
        'vllm:generation_tokens_total{engine="0",model_name="m"} 4.0\n'
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 4096.0\n'
    )
    assert parse(text, VLLM) == Sample({"0": 1.0}, {"0": 4100.0})


def test_other_lines_and_garbage_are_skipped() -> None:
    text = '# HELP x\nvllm:num_requests_running{engine="0"}\nvllm:num_requests_swapped{engine="0"} 9\n\xff\n'
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


IDLE = Sample({"0": 0.0}, {"0": 50.0})
SERVED = Sample({"0": 0.0}, {"0": 51.0})


def test_requests_that_wait_are_work_though_none_runs() -> None:
    """vllm#39863: running 0, waiting 3, and for hours not a token."""
    text = (
        'vllm:num_requests_running{engine="0"} 0.0\n'
        'vllm:num_requests_waiting{engine="0"} 3.0\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0\n'
        'vllm:generation_tokens_total{engine="0"} 50.0\n'
    )
    waiting = parse(text, VLLM)
    assert waiting == BUSY
    track = follow((5.0, waiting), (126.0, waiting))
    assert judge(track, 126.0, PATIENCE) == "rank 0 has requests and has made no token for 120 s"


def test_a_rank_that_was_idle_is_asked_for_a_token_and_one_that_serves_is_not() -> None:
    assert begin_asking(new_track(0.0), 9000.0, PATIENCE).asked is None  # it loads
    track = follow((5.0, IDLE), (604.0, IDLE))
    assert begin_asking(track, 604.0, PATIENCE).asked is None
    assert begin_asking(track, 605.0, PATIENCE).asked == 605.0
    assert begin_asking(follow((5.0, IDLE), (600.0, SERVED)), 605.0, PATIENCE).asked is None
    assert begin_asking(follow((5.0, IDLE), (604.0, BUSY)), 605.0, PATIENCE).asked is None


def test_silence_of_a_rank_that_was_asked_for_a_token_is_a_hang() -> None:
    track = begin_asking(follow((5.0, IDLE)), 605.0, PATIENCE)
    track = advance(track, IDLE, 724.0)
    assert judge(track, 724.0, PATIENCE) == ""
    again = hear(begin_asking(track, 725.0, PATIENCE), 725.0, token=False)
    assert again.asked == 605.0
    track = advance(again, IDLE, 726.0)
    words = "was idle, was asked for a token and has given none for 120 s"
    assert judge(track, 726.0, PATIENCE) == words


def test_a_token_or_an_answer_that_tells_nothing_ends_the_asking() -> None:
    track = begin_asking(follow((5.0, IDLE)), 605.0, PATIENCE)
    for token in (True, None):
        heard = hear(track, 606.0, token=token)
        assert (heard.asked, heard.served) == (None, 606.0)
        assert begin_asking(heard, 1205.0, PATIENCE).asked is None
        assert begin_asking(heard, 1206.0, PATIENCE).asked == 1206.0
    # who was frozen together with its watcher has made the token when it is looked at again
    grown = advance(track, SERVED, 9000.0)
    assert (grown.asked, judge(grown, 9000.0, PATIENCE)) == (None, "")


@pytest.fixture
def engine() -> Iterator[tuple[str, list[tuple[str, str, object]], list[int]]]:
    """The base of an endpoint, what it was asked (path, key, body), and the statuses of its next answers."""
    asked: list[tuple[str, str, object]] = []
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, self.headers.get("Authorization", ""), body))
            self.send_response(statuses.pop(0))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked, statuses
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("answers", "token"), [([200, 200], True), ([200, 503], False), ([401], None), ([200, 400], None)]
)  # fmt: skip
def test_every_rank_behind_an_endpoint_is_asked(
    answers: list[int],
    token: bool | None,
    engine: tuple[str, list[tuple[str, str, object]], list[int]],
) -> None:
    base, asked, statuses = engine
    statuses += answers
    one = {"url": f"{base}/v1/completions", "headers": {}, "body": {"max_tokens": 1}}
    assert ask_token([one, one], "k", 5.0) is token
    assert asked == [("/v1/completions", "Bearer k", {"max_tokens": 1})] * len(answers)


def test_nobody_there_gives_no_token() -> None:
    one: dict[str, object] = {
        "url": "http://127.0.0.1:1/health_generate",
        "headers": {},
        "body": None,
    }
    assert ask_token([one], "", 5.0) is False
