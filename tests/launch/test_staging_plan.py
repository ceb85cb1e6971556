"""Who hands weights on to whom, what fits, and how progress reads."""

from __future__ import annotations

import pytest

from infra.launch.images.presence import ImageOnHost, unequal_images
from infra.launch.staging.plan import Found, Seat, chain, giga, missing_bytes, short_of_room
from infra.launch.staging.progress import Standing, duration, progress_lines, read_standing

FILES = [{"name": "a", "size_bytes": 60}, {"name": "b", "size_bytes": 40}]


def found(host: str, state: str = "absent", num_bytes: int = 0) -> Found:
    return Found(host=host, state=state, num_bytes=num_bytes)


def order(*hosts: Found, seed: str | None = None) -> list[str]:
    return [seat.host for seat in chain(hosts, seed)]


def test_where_everybody_has_it_nobody_sits() -> None:
    assert chain([found("a", "complete"), found("b", "complete")], None) == ()
    assert chain([], None) == ()


def test_who_holds_it_comes_first_and_once() -> None:
    hosts = (found("a"), found("b", "complete"), found("c", "complete"))
    assert order(*hosts) == ["b", "a"]


def test_a_seed_comes_before_all() -> None:
    assert order(found("a"), found("b"), seed="z") == ["z", "a", "b"]


def test_who_is_at_it_comes_before_who_has_most_of_it() -> None:
    hosts = (found("a"), found("b", "partial", 7), found("c", "running"), found("d", "complete"))
    assert order(*hosts) == ["c", "b", "a"]


def test_each_asks_the_nearest_first_and_the_front_last() -> None:
    seats = chain([found(name) for name in "abcdef"], None)
    assert seats[0] == Seat(host="a", peers=())
    assert seats[2] == Seat(host="c", peers=("b", "a"))
    assert seats[5] == Seat(host="f", peers=("e", "d", "c", "a"))


def test_what_is_there_need_not_fit_again() -> None:
    assert missing_bytes(found("a", "partial", 30), FILES) == 70
    assert missing_bytes(found("a", "damaged", 100), FILES) == 60
    assert missing_bytes(found("a", "partial", 900), FILES) == 0
    assert missing_bytes(found("a"), []) == 0


def test_a_tenth_must_stay_free() -> None:
    needed = {"a": 100_000_000_000, "b": 100_000_000_000}
    short = short_of_room(needed, {"a": 110_000_000_001, "b": 109_000_000_000})
    assert short == ["b needs 110 GB and has 109 GB free"]


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [
        (0, "0"),
        (595_140_000_000, "595"),
        (3_680_000_000, "3.7"),
        (12_000_000, "0.01"),
        (900, "0.0000"),
    ],
)
def test_sizes_read_as_gigabytes(num_bytes: int, shown: str) -> None:
    assert giga(num_bytes) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "1 s"), (40, "40 s"), (420, "7 min"), (4800, "1 h 20 min")]
)
def test_waits_read_as_people_say_them(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def standing(
    host: str, gigabytes: float, phase: str = "fetching", speed: float = 1.1e9
) -> Standing:
    status = {
        "phase": phase,
        "files_done": 12,
        "num_files": 64,
        "num_bytes": int(gigabytes * 1e9),
        "size_bytes": 595_000_000_000,
        "bytes_per_s": speed,
    }
    return read_standing(host, status)


def test_one_host_reads_as_the_guide_says() -> None:
    assert progress_lines("kimi", [standing("h", 118)]) == [
        "kimi on h: fetching, 12 of 64 files, 118 of 595 GB, 1.1 GB/s, 7 min left"
    ]


def test_several_hosts_have_a_sum_and_the_slowest_decides_what_is_left() -> None:
    hosts = [standing("a", 595, "complete"), standing("b", 118), standing("c", 300)]
    lines = progress_lines("kimi", hosts)
    assert lines[0] == "kimi: 1 of 3 hosts, 1013 of 1785 GB, 2.2 GB/s, 7 min left"
    assert [line.split(":")[0] for line in lines[1:]] == ["kimi on b", "kimi on c"]


def test_of_many_hosts_the_slowest_are_shown() -> None:
    lines = progress_lines("kimi", [standing(f"h{n}", n) for n in range(9)])
    assert [line.split(":")[0] for line in lines[1:5]] == [f"kimi on h{n}" for n in range(4)]
    assert lines[-1] == "kimi: and 5 more hosts, further on"


def test_a_host_that_does_not_move_has_no_time_left_to_tell() -> None:
    (line,) = progress_lines("kimi", [standing("h", 118, speed=0.0)])
    assert line.endswith("118 of 595 GB, no byte moves yet")


def test_when_all_have_ended_there_is_nothing_to_say() -> None:
    assert progress_lines("kimi", [standing("h", 595, "complete")]) == []
    assert not read_standing("h", {}).is_settled


def test_images_that_differ_are_told_by_digest() -> None:
    def image(host: str, digest: str | None) -> ImageOnHost:
        return ImageOnHost(id="image:x", host=host, state="ok", digest=digest, why="")

    assert unequal_images([image("a", "sha256:1"), image("b", "sha256:1"), image("c", None)]) == {}
    assert unequal_images([image("a", "sha256:1"), image("b", "sha256:2")]) == {
        "image:x": {"sha256:1": ["a"], "sha256:2": ["b"]}
    }
