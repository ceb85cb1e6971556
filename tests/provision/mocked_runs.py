"""What every run of a program under Pulumi's mocks needs: a project's name, its values as text, a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

PROJECT_NAME = "moe-infra"


class _RememberingPolicy(asyncio.DefaultEventLoopPolicy):
    """Remembers the loops that it makes: the SDK opens one in each of its threads and closes none.

    One that the garbage collector finds may have lost its sockets already, and then cannot close itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        self.made.append(loop)
        return loop


@contextmanager
def event_loop_of_its_own() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop of its own, set before the mocks are; all that were opened meanwhile are closed."""
    before = asyncio.get_event_loop_policy()
    policy = _RememberingPolicy()
    asyncio.set_event_loop_policy(policy)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        for each in policy.made:
            each.close()
        asyncio.set_event_loop_policy(before)


def configured(value: object) -> str:
    """A default of the project as Pulumi hands it to a program."""
    return str(value).lower() if isinstance(value, bool) else str(value)
