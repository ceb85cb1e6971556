"""What hosts of a group run, run: by the real torch and gloo where they are installed, and by the rehearsal's stand-in.

Both must behave alike, for what is seen on simulated hosts is the stand-in's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.launch.preflight.group_collectives.starting import SCRIPT
from infra.launch.preflight.group_collectives.told import ToldHost, parse_told
from infra.rehearsal import standins
from infra.rehearsal.real_engines import installed_engine
from tests.ports import free_port

# each starts an interpreter for every rank of a group
pytestmark = pytest.mark.slow

LENT = Path(standins.__file__).parent / "lent"
START = Callable[..., "subprocess.Popen[str]"]
# Loading the real one takes seconds, and on a machine that does much else many of them.
REAL_S, SIMULATED_S = 90.0, 20.0


def real_python() -> str:
    """The interpreter of the installed engine, which has torch."""
    try:
        return str(installed_engine(os.environ) / "bin" / "python")
    except PrerequisiteError as error:
        pytest.skip(str(error))


def task(port: int, first_rank: int, num_local: int, num_ranks: int, **more: object) -> str:
    return json.dumps(
        {
            "backend": "gloo", "device": "cpu", "plugin": "", "address": "127.0.0.1", "port": port,
            "num_ranks": num_ranks, "first_rank": first_rank, "num_local": num_local, "num_bytes": 1 << 20,
            "join_s": SIMULATED_S, "work_s": SIMULATED_S, "patterns": ["NCCL INFO Using network"], **more,
        }
    )  # fmt: skip


@pytest.fixture
def simulated(tmp_path: Path) -> START:
    """Start a host's part with the stand-in; keywords are faults of `host.json`."""

    def start(words: str, **faults: object) -> subprocess.Popen[str]:
        state = tmp_path / f"state-{len(list(tmp_path.iterdir()))}"
        state.mkdir()
        described = {
            "host": "h", "address": "127.0.0.1", "vendor": "nvidia", "accelerator": "h200", "memory_mib": 1,
            "generation": "hopper", "fabric_spans_hosts": False, "num_devices": 2, "faults": faults,
        }  # fmt: skip
        (state / "host.json").write_text(json.dumps(described))
        env = {**os.environ, "MOE_REHEARSAL_STATE": str(state), "PYTHONPATH": str(LENT)}
        return begin(sys.executable, words, env)

    return start


def begin(python: str, words: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-c", SCRIPT, words],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(started: subprocess.Popen[str]) -> ToldHost:
    """What a host's part told; nothing of it runs any more."""
    printed, said = started.communicate(timeout=REAL_S + 60)
    assert started.returncode == 0, said
    told = parse_told(printed)
    assert told is not None, printed + said
    assert_nobody_is_left(started)
    return told


def assert_nobody_is_left(started: subprocess.Popen[str]) -> None:
    with pytest.raises(ProcessLookupError):
        os.killpg(started.pid, 0)


def assert_right(hosts: list[ToldHost]) -> None:
    ranks = [rank for host in hosts for rank in host.ranks]
    assert [(one.rank, one.phase, one.wrong, one.ended) for one in ranks] == [
        (rank, "done", 0, 0) for rank in range(len(ranks))
    ]
    assert all(one.seconds is not None and one.seconds > 0 for one in ranks)


def test_two_processes_of_the_real_torch_add_up() -> None:
    python, port = real_python(), free_port()
    words = [task(port, rank, 1, 2, join_s=REAL_S, work_s=REAL_S, patterns=[]) for rank in range(2)]
    hosts = [ended(one) for one in [begin(python, each, dict(os.environ)) for each in words]]
    assert_right(hosts)
    assert hosts[0].torch.startswith("2.")


def test_two_hosts_of_the_stand_in_add_up_and_it_says_what_it_is(simulated: START) -> None:
    port = free_port()
    gpus = {"backend": "nccl", "device": "cuda"}
    started = [simulated(task(port, first, 2, 4, **gpus)) for first in (0, 2)]
    hosts = [ended(one) for one in started]
    assert_right(hosts)
    assert "moe-infra rehearsal stand-in" in hosts[0].torch
    assert all("Using network IB (moe-infra rehearsal stand-in)" in one.lines[0] for one in hosts)


def test_a_wrong_sum_is_the_devices_that_has_it(simulated: START) -> None:
    port = free_port()
    gpus = {"backend": "nccl", "device": "cuda"}
    first = simulated(task(port, 0, 2, 4, **gpus))
    second = simulated(task(port, 2, 2, 4, **gpus), collective_wrong={"1": 5})
    ranks = [rank for one in (first, second) for rank in ended(one).ranks]
    assert [rank.wrong for rank in ranks] == [0, 0, 0, 5]


def test_who_comes_alone_gives_up_in_time_in_the_real_ones_words(simulated: START) -> None:
    begun = time.monotonic()
    (rank,) = ended(simulated(task(free_port(), 0, 1, 2, join_s=1.5))).ranks
    assert (rank.phase, rank.ended) == ("reached", 1)
    # the real one's words are in tests/cases/facts/group-collective/alone.yaml
    assert rank.error is not None
    assert rank.error.startswith("DistStoreError: wait timeout after ")
    assert rank.error.endswith("ms, keys: /rank-0, /rank-1")
    assert time.monotonic() - begun < SIMULATED_S


def test_a_rank_that_never_loads_is_ended_when_the_time_is_over(simulated: START) -> None:
    (rank,) = ended(simulated(task(free_port(), 1, 1, 2, join_s=0.5), collective_silent=True)).ranks
    assert (rank.phase, rank.ended, rank.error) == ("begun", -signal.SIGKILL, None)


def test_a_device_that_is_not_there_is_an_error_of_its_rank(simulated: START) -> None:
    words = task(free_port(), 1, 3, 4, backend="nccl", device="cuda", join_s=1.0)
    last = ended(simulated(words)).ranks[-1]
    assert (last.phase, last.error) == (
        "begun",
        "RuntimeError: CUDA error: invalid device ordinal",
    )


def test_sigterm_ends_every_rank(simulated: START) -> None:
    started = simulated(task(free_port(), 0, 2, 4))
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    limit = time.monotonic() + SIMULATED_S
    while len(children.read_text().split()) < 2:
        assert time.monotonic() < limit
        time.sleep(0.02)
    time.sleep(0.2)  # the handler stands when both are begun
    started.terminate()
    started.communicate(timeout=10)
    assert started.returncode == 128 + signal.SIGTERM
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        try:
            os.killpg(started.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    assert_nobody_is_left(started)
