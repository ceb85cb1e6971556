"""A channel that is hung up on while data arrives: the connection lives on."""

from __future__ import annotations

import os
import threading

import pytest

from infra.remote.arrival import LockedPipe


def test_a_pipe_may_be_closed_while_it_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, writing = LockedPipe(), threading.Event()
    failures: list[OSError] = []
    really_write = os.write

    def slow_write(descriptor: int, content: bytes) -> int:
        writing.set()
        closer.join(0.2)  # without a lock the pipe is closed by now
        return really_write(descriptor, content)

    def feed() -> None:
        try:
            pipe.set()
        except OSError as error:
            failures.append(error)

    def close() -> None:
        writing.wait()
        pipe.close()

    monkeypatch.setattr(os, "write", slow_write)
    closer, feeder = threading.Thread(target=close), threading.Thread(target=feed)
    closer.start()
    feeder.start()
    feeder.join()
    closer.join()
    assert failures == []


def test_nothing_is_written_to_what_gets_the_number_of_a_closed_pipe() -> None:
    pipe = LockedPipe()
    pipe.close()
    reading, writing = os.pipe()
    pipe.set()
    pipe.clear()
    pipe.close()
    os.set_blocking(reading, False)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)
    os.close(reading)
    os.close(writing)
