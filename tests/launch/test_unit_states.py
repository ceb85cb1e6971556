from __future__ import annotations

import pytest

from infra.engines.phases import Phase
from infra.launch.progress import Progress, clock_text
from infra.launch.secret import Secret, revealed
from infra.launch.unit_states import UnitState, error_line, plain, says_serving, why_ended


def state(**changes: object) -> UnitState:
    fields: dict[str, object] = {
        "process": "decode-0/0",
        "host": "decode-0",
        "unit": "moe-s-engine@0.service",
        "load_state": "loaded",
        "active_state": "failed",
        "sub_state": "failed",
        "result": "exit-code",
        "exit_status": 1,
        "restarts": 0,
        "job": 0,
        "since": None,
        "log_tail": (),
        **changes,
    }
    return UnitState(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["", "  "], ""),
        (["INFO 11-20 14:00:00 [a.py:1] Loading", "it just ends"], "it just ends"),
        (
            [
                "(EngineCore_DP0 pid=5) ERROR 11-20 14:00:00 [core.py:9] ValueError: No available memory",
                "RuntimeError: Engine core initialization failed. See root cause above.",
            ],
            "ValueError: No available memory",
        ),
        (
            ["docker: Error response from daemon: bind source path does not exist: /x.", "See --help."],
            "docker: Error response from daemon: bind source path does not exist: /x.",
        ),
        (
            ["vllm: error: unrecognized arguments: --bogus"],
            "vllm: error: unrecognized arguments: --bogus",
        ),
        (
            ["OSError: address in use", "ERROR: ld.so: '/x.so' from LD_PRELOAD cannot be preloaded"],
            "OSError: address in use",
        ),
    ],
)  # fmt: skip
def test_the_line_that_says_why(lines: list[str], expected: str) -> None:
    assert error_line(lines) == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_tail": ("ValueError: x",)}, "it ended with exit code 1: ValueError: x"),
        ({"result": "signal", "exit_status": 9}, "it was ended by signal 9"),
        ({"result": "oom-kill"}, "systemd ended it (oom-kill)"),
        ({"load_state": "not-found", "active_state": "inactive"}, "is not installed"),
        ({"load_state": "masked", "active_state": "inactive", "exit_status": 0}, "is masked"),
        ({"load_state": "masked", "log_tail": ("ValueError: x",)}, "exit code 1: ValueError: x"),
        (
            {"active_state": "inactive", "result": "success", "exit_status": 0},
            "it ended with exit code 0",
        ),
    ],
)
def test_how_a_process_ended(changes: dict[str, object], words: str) -> None:
    ended = state(**changes)
    assert ended.has_ended
    assert words in why_ended(ended)


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (
            (
                "ValueError: of the run before",
                "moe-s-router@0.service: Main process exited, code=exited, status=3/NOTIMPLEMENTED",
                "moe-s-router@0.service: Failed with result 'exit-code'.",
                "loading the tokenizer",
                "moe-s-router@0.service: Main process exited, code=killed, status=9/KILL",
                "moe-s-router@0.service: Failed with result 'oom-kill'.",
                "moe-s-router@0.service: Scheduled restart job, restart counter is at 2.",
                "ValueError: of the run that goes on",
            ),
            "systemd ended it (oom-kill): loading the tokenizer",
        ),
        (
            ("moe-s-router@0.service: Main process exited, code=killed, status=9/KILL", "up again"),
            "it was ended by signal 9",
        ),
        (("up again",), "systemd has started it again, 2 times by now"),
    ],
)
def test_how_a_process_had_ended_that_runs_again(tail: tuple[str, ...], words: str) -> None:
    """What systemd says of the run that goes on is no word about the one before."""
    again = {"active_state": "active", "sub_state": "running", "result": "success"}
    assert why_ended(state(**again, exit_status=0, restarts=2, log_tail=tail)).startswith(words)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ({"active_state": "inactive", "job": 17}, ("waiting", False, True)),
        ({"active_state": "failed", "job": 17}, ("waiting", False, True)),
        ({"active_state": "inactive"}, ("inactive", True, False)),
        ({"active_state": "deactivating", "job": 17}, ("deactivating", False, False)),
        ({"active_state": "inactive", "load_state": "not-found"}, ("not-installed", True, False)),
    ],
)
def test_a_start_that_systemd_has_wait_has_not_ended(
    unit: dict[str, object], expected: tuple[str, bool, bool]
) -> None:
    found = state(**unit)
    assert (found.state, found.has_ended, found.is_running) == expected


def test_lines_lose_their_prefixes() -> None:
    assert plain("(APIServer pid=12) INFO 11-20 14:00:00 [launcher.py:38] Starting") == "Starting"
    assert plain("Loading safetensors: 37/64") == "Loading safetensors: 37/64"


def test_logs_that_claim_to_serve() -> None:
    assert says_serving(["x", "INFO:     Application startup complete."])
    assert not says_serving(["Loading"])


def test_progress_says_who_is_awaited_for_how_long_and_the_limit() -> None:
    said: list[str] = []
    progress = Progress(said.append, 10.0, 100.0)
    assert not progress.is_due(105.0)
    assert progress.is_due(110.0)
    phases = {
        "decode-0/1": Phase(2, 0.6, "weights 38 of 64 shards"),
        "decode-0/2": Phase(7, 0.0, "graph capture"),
        "decode-0/3": Phase(2, 0.5, "weights 37 of 64 shards"),
    }
    progress.show(342.0, 1800.0, {"prefill": (8, 8), "decode": (3, 16)}, phases)
    assert said == [
        (
            "prefill 8/8, decode 3/16 proven; waiting for decode-0/3: weights 37 of 64 shards; "
            "1 more: weights; 1 more: graph capture (4 min 2 s of 30 min)"
        )
    ]
    assert not progress.is_due(343.0)


def test_times_in_words() -> None:
    assert [clock_text(s) for s in (0, 59.9, 60, 61)] == ["0 s", "59 s", "1 min", "1 min 1 s"]


def test_a_secret_prints_as_stars() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert revealed({"api_key": secret}) == {"api_key": "hunter2"}
