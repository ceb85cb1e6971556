"""Whether an engine makes progress, by its own `/metrics`: alive is not the same as serving."""

import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

MAX_BYTES = 8388608
ANSWER_S = 4.0
# One lost answer is no hang, however long the machine was busy or asleep around it.
MISSES = 3
OK, UNAVAILABLE = 200, 503
_RANK = re.compile(r'(?:engine|dp_rank)="([^"]*)"')


class Counters(NamedTuple):
    """The names of an engine's metrics: of requests that run or wait, and of what grows with progress."""

    open: Tuple[str, ...]
    growing: Tuple[str, ...]


class Patience(NamedTuple):
    """How long an engine may, in seconds.

    Args:
        first_s: load, until its endpoint answers for the first time.
        silent_s: not answer after that.
        stuck_s: have requests, run or not, without a single token; or be asked for one, and give none.
        idle_s: have no request before it is asked for a token: a rank that hangs without one looks well.
    """

    first_s: float
    silent_s: float
    stuck_s: float
    idle_s: float


class Sample(NamedTuple):
    """One answer: requests that run or wait, and tokens so far, by rank."""

    open: Dict[str, float]
    tokens: Dict[str, float]


class Track(NamedTuple):
    """What is known of one endpoint since its units were started.

    Args:
        begun: when they were.
        answered: when it answered last, None for never.
        tokens: of its latest answer, by rank.
        moved: when each rank was idle or made progress last.
        misses: questions without an answer since the latest one.
        served: when a token came last, or the start.
        is_idle: no rank has a request, by the latest answer.
        asked: since when it is asked for a token, None while it is not.
    """

    begun: float
    answered: Optional[float]
    tokens: Dict[str, float]
    moved: Dict[str, float]
    misses: int
    served: float
    is_idle: bool
    asked: Optional[float]


def new_track(now: float) -> Track:
    """Nothing is known yet."""
    return Track(now, None, {}, {}, 0, served=now, is_idle=False, asked=None)


def advance(track: Track, sample: Optional[Sample], now: float) -> Track:
    """What is known after one more question; None stands for no answer."""
    if sample is None:
        return track._replace(misses=track.misses + 1)
    moved = {}
    for rank in sample.open:
        has_grown = sample.tokens.get(rank) != track.tokens.get(rank)
        moved[rank] = now if sample.open[rank] <= 0 or has_grown else track.moved.get(rank, now)
    has_served = sample.tokens != track.tokens
    return Track(
        begun=track.begun,
        answered=now,
        tokens=sample.tokens,
        moved=moved,
        misses=0,
        served=now if has_served else track.served,
        is_idle=not any(count > 0 for count in sample.open.values()),
        asked=None if has_served else track.asked,
    )


def begin_asking(track: Track, now: float, patience: Patience) -> Track:
    """The same, being asked for a token where nothing was asked of it for long enough, or still."""
    is_due = track.answered is not None and track.is_idle and now - track.served >= patience.idle_s
    return track._replace(asked=now) if is_due and track.asked is None else track


def hear(track: Track, now: float, *, token: Optional[bool]) -> Track:
    """What is known after it was asked for a token; see `ask_token`."""
    if token is False:
        return track
    return track._replace(asked=None, served=now)


def judge(track: Track, now: float, patience: Patience) -> str:
    """Why the endpoint counts as hung, "" when it does not."""
    if track.answered is None:
        is_late = now - track.begun > patience.first_s
        return "does not answer {:g} s after its start".format(patience.first_s) if is_late else ""
    if track.misses >= MISSES and now - track.answered > patience.silent_s:
        return "has not answered for {:g} s".format(patience.silent_s)
    for rank, moved in sorted(track.moved.items()):
        if track.answered - moved > patience.stuck_s:
            text = "rank {} has requests and has made no token for {:g} s"
            return text.format(rank or "0", patience.stuck_s)
    # judged by an answer that came since: one that was frozen with its watcher has grown by then
    if track.asked is not None and track.answered - track.asked > patience.stuck_s:
        return "was idle, was asked for a token and has given none for {:g} s".format(
            patience.stuck_s
        )
    return ""


def ask(url: str, counters: Counters) -> Optional[Sample]:
    """What `/metrics` says; any HTTP answer is one, nothing else is."""
    text = fetch(url, ANSWER_S)
    return None if text is None else parse(text, counters)


def ask_token(asks: List[Dict[str, Any]], key: str, limit_s: float) -> Optional[bool]:
    """Whether every rank behind an endpoint gives a token; None where what it says tells nothing of that.

    Args:
        asks: url, headers and body (None to get it) of each question.
        key: that the engine asks for, "" for none.
        limit_s: of each.
    """
    for one in asks:
        headers = {**one["headers"], **({"Authorization": "Bearer " + key} if key else {})}
        told = send(one["url"], limit_s, headers, one["body"])
        if told is None or told[0] == UNAVAILABLE:
            return False
        if told[0] != OK:
            return None
    return True


def load_client() -> None:
    """Load what fetching takes, while there is time."""
    import http.client  # noqa: F401, PLC0415 - see `send`


def fetch(url: str, limit_s: float) -> Optional[str]:
    """The text of any HTTP answer, None where none comes."""
    told = send(url, limit_s, {}, None)
    return None if told is None else told[1]


def send(
    url: str, limit_s: float, headers: Dict[str, str], body: Optional[Dict[str, Any]]
) -> Optional[Tuple[int, str]]:
    """Status and text of any HTTP answer, None where none comes."""
    # dear to load: a watcher begins with finding the others
    import http.client  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=limit_s)
    try:
        if body is None:
            connection.request("GET", parts.path, headers=headers)
        else:
            kind = {"Content-Type": "application/json"}
            connection.request("POST", parts.path, json.dumps(body), {**headers, **kind})
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def parse(text: str, counters: Counters) -> Sample:
    """Requests and tokens by rank, of a Prometheus text; lines of other metrics are skipped."""
    asked: Dict[str, float] = {}
    tokens: Dict[str, float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name not in counters.open and name not in counters.growing:
            continue
        match = _RANK.search(line)
        rank = match.group(1) if match else ""
        try:
            value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
        except (ValueError, IndexError):
            continue
        table = asked if name in counters.open else tokens
        table[rank] = table.get(rank, 0.0) + value
    return Sample(asked, tokens)
