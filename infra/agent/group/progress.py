"""Whether an engine makes progress, by its own `/metrics`: alive is not the same as serving."""

import re
from typing import Dict, NamedTuple, Optional, Tuple

MAX_BYTES = 8388608
ANSWER_S = 4.0
# One lost answer is no hang, however long the machine was busy or asleep around it.
MISSES = 3
_RANK = re.compile(r'(?:engine|dp_rank)="([^"]*)"')


class Counters(NamedTuple):
    """The names of an engine's metrics: of requests that run, and of what grows with progress."""

    running: str
    growing: Tuple[str, ...]


class Patience(NamedTuple):
    """How long an engine may, in seconds.

    Args:
        first_s: load, until its endpoint answers for the first time.
        silent_s: not answer after that.
        stuck_s: run requests without a single token.
    """

    first_s: float
    silent_s: float
    stuck_s: float


class Sample(NamedTuple):
    """One answer: requests that run, and tokens so far, by rank."""

    running: Dict[str, float]
    tokens: Dict[str, float]


class Track(NamedTuple):
    """What is known of one endpoint since its units were started.

    Args:
        begun: when they were.
        answered: when it answered last, None for never.
        tokens: of its latest answer, by rank.
        moved: when each rank was idle or made progress last.
        misses: questions without an answer since the latest one.
    """

    begun: float
    answered: Optional[float]
    tokens: Dict[str, float]
    moved: Dict[str, float]
    misses: int


def new_track(now: float) -> Track:
    """Nothing is known yet."""
    return Track(now, None, {}, {}, 0)


def advance(track: Track, sample: Optional[Sample], now: float) -> Track:
    """What is known after one more question; None stands for no answer."""
    if sample is None:
        return track._replace(misses=track.misses + 1)
    moved = {}
    for rank in sample.running:
        is_idle = sample.running[rank] <= 0
        has_grown = sample.tokens.get(rank) != track.tokens.get(rank)
        moved[rank] = now if is_idle or has_grown else track.moved.get(rank, now)
    return Track(track.begun, now, sample.tokens, moved, 0)


def judge(track: Track, now: float, patience: Patience) -> str:
    """Why the endpoint counts as hung, "" when it does not."""
    if track.answered is None:
        is_late = now - track.begun > patience.first_s
        return "does not answer {:g} s after its start".format(patience.first_s) if is_late else ""
    if track.misses >= MISSES and now - track.answered > patience.silent_s:
        return "has not answered for {:g} s".format(patience.silent_s)
    for rank, moved in sorted(track.moved.items()):
        if track.answered - moved > patience.stuck_s:
            text = "rank {} runs requests and has made no token for {:g} s"
            return text.format(rank or "0", patience.stuck_s)
    return ""


def ask(url: str, counters: Counters) -> Optional[Sample]:
    """What `/metrics` says; any HTTP answer is one, nothing else is."""
    text = fetch(url, ANSWER_S)
    return None if text is None else parse(text, counters)


def load_client() -> None:
    """Load what fetching takes, while there is time."""
    import http.client  # noqa: F401, PLC0415 - see `fetch`


def fetch(url: str, limit_s: float) -> Optional[str]:
    """The text of any HTTP answer, None where none comes."""
    # dear to load: a watcher begins with finding the others
    import http.client  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=limit_s)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def parse(text: str, counters: Counters) -> Sample:
    """Requests and tokens by rank, of a Prometheus text; lines of other metrics are skipped."""
    running: Dict[str, float] = {}
    tokens: Dict[str, float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name != counters.running and name not in counters.growing:
            continue
        match = _RANK.search(line)
        rank = match.group(1) if match else ""
        try:
            value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
        except (ValueError, IndexError):
            continue
        table = running if name == counters.running else tokens
        table[rank] = table.get(rank, 0.0) + value
    return Sample(running, tokens)
