"""A small event loop: tasks, timers and socket readiness, at a tenth of the import cost of asyncio."""

from __future__ import annotations

import gc
import heapq
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
SIGNAL_BYTES = 4096


class Cancelled(BaseException):
    """Thrown into a task that nobody waits for any longer."""


class TimedOut(Exception):
    """The awaited thing did not come within its time limit."""


class Future(Generic[T]):
    """A value that comes later; awaiting it suspends the task until then."""

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []
        self.abandon: Callable[[], None] | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits for the value."""
        return bool(self._callbacks)

    def resolve(self, value: T) -> None:
        """Give the value; a second one is ignored."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """Give an error in place of a value."""
        if not self.done:
            self._error = error
            self._finish()

    def on_done(self, callback: Callable[[], None]) -> None:
        """Call back once the value or the error is there."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """Return the value or raise the error."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def __await__(self) -> Generator[Future[Any], None, T]:
        if not self.done:
            yield self
        return self.result()


class Task(Future[T]):
    """A coroutine that the loop drives."""

    def __init__(self, loop: Loop, coroutine: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._loop = loop
        self._coroutine = coroutine
        self._awaiting: Future[Any] | None = None
        loop.call_soon(self._step)

    def cancel(self, error: BaseException | None = None) -> None:
        """Stop the coroutine where it waits."""
        if self.done:
            return
        waiting, self._awaiting = self._awaiting, None
        if waiting is not None and waiting.abandon is not None:
            waiting.abandon()
        self._step(error or Cancelled())

    def _step(self, error: BaseException | None = None) -> None:
        if self.done:
            return
        try:
            awaited = (
                self._coroutine.throw(error) if error is not None else self._coroutine.send(None)
            )
        except StopIteration as stop:
            self.resolve(stop.value)
        except Cancelled as cancelled:
            self.fail(cancelled)
        except Exception as failure:  # noqa: BLE001 - whatever it is, who awaits the task gets it
            self.fail(failure)
            self._loop.report(failure, self)
        else:
            self._awaiting = awaited
            awaited.on_done(lambda: self._resume(awaited))

    def _resume(self, awaited: Future[Any]) -> None:
        if self._awaiting is awaited:
            self._awaiting = None
            self._loop.call_soon(self._step)


class Loop:
    """Runs tasks until one of them is finished."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ready: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._watched: dict[int, dict[int, Future[None]]] = {}
        self._signals: int | None = None
        self.on_failure: Callable[[Exception], None] | None = None

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Task[T]:
        """Start a task."""
        return Task(self, coroutine)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next round."""
        self._ready.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after a time."""
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, callback))

    def report(self, failure: Exception, task: Task[Any]) -> None:
        """Hand a failure to ``on_failure`` when no other task waits for it."""
        if (
            self.on_failure is not None
            and not task.is_awaited
            and not isinstance(failure, TimedOut)
        ):
            self.on_failure(failure)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run until the coroutine is finished and return its value."""
        gc.freeze()
        gc.enable()
        self._wake_on_signals()
        task = self.spawn(coroutine)
        task.on_done(lambda: None)
        while not task.done:
            self._round()
        return task.result()

    def sleep(self, seconds: float) -> Future[None]:
        """Return a future that is resolved after a time."""
        future: Future[None] = Future()
        self.call_later(seconds, lambda: future.resolve(None))
        return future

    def readable(self, descriptor: int) -> Future[None]:
        """Return a future that is resolved when the descriptor can be read."""
        return self._watch(descriptor, selectors.EVENT_READ)

    def writable(self, descriptor: int) -> Future[None]:
        """Return a future that is resolved when the descriptor can be written."""
        return self._watch(descriptor, selectors.EVENT_WRITE)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor that is about to be closed; who waits for it is told."""
        waiting = self._watched.pop(descriptor, None)
        if waiting:
            self._selector.unregister(descriptor)
            for future in waiting.values():
                future.fail(ConnectionAbortedError("closed on this side"))

    async def within(self, seconds: float, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what the coroutine returns, or raise TimedOut.

        Raises:
            TimedOut: it took longer than ``seconds``.
        """
        task = self.spawn(coroutine)
        task.on_done(lambda: None)
        self.call_later(seconds, lambda: task.cancel(TimedOut()))
        return await task

    def _wake_on_signals(self) -> None:
        """Let a signal end a wait that begins in the moment when it comes: its handler would run after that wait."""
        reader, writer = os.pipe()
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ)
        self._signals = reader

    def _watch(self, descriptor: int, event: int) -> Future[None]:
        future: Future[None] = Future()
        waiting = self._watched.get(descriptor)
        if waiting is None:
            self._watched[descriptor] = {event: future}
            self._selector.register(descriptor, event)
        else:
            waiting[event] = future
            self._selector.modify(descriptor, selectors.EVENT_READ | selectors.EVENT_WRITE)
        future.abandon = lambda: self._abandon(descriptor, event)
        return future

    def _abandon(self, descriptor: int, event: int) -> None:
        self._unwatch(descriptor, event)

    def _unwatch(self, descriptor: int, event: int) -> Future[None] | None:
        waiting = self._watched.get(descriptor)
        future = waiting.pop(event, None) if waiting is not None else None
        if waiting is None or future is None:
            return None
        if waiting:
            self._selector.modify(descriptor, next(iter(waiting)))
        else:
            del self._watched[descriptor]
            self._selector.unregister(descriptor)
        return future

    def _round(self) -> None:
        timeout: float | None = None
        if self._ready:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(timeout):
            if key.fd == self._signals:
                os.read(key.fd, SIGNAL_BYTES)
                continue
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                if events & event:
                    future = self._unwatch(key.fd, event)
                    if future is not None:
                        future.resolve(None)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heapq.heappop(self._timers)[2])
        for _ in range(len(self._ready)):
            self._ready.popleft()()
