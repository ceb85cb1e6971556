"""What every run of a program under Pulumi's mocks needs: a project's name, its values as text, a loop of its own."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pulumi.runtime
from pulumi.runtime import resource as sdk
from pulumi.runtime.mocks import Mocks
from pulumi.runtime.proto import source_pb2

from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml

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


def run_mocked(
    mocks: Mocks, stack: str, values: Mapping[str, str], program: Callable[[], None]
) -> None:
    """Run a program with configuration values under mocks, in a thread of its own."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(_run, mocks, stack, values, program).result()


def _run(mocks: Mocks, stack: str, values: Mapping[str, str], program: Callable[[], None]) -> None:
    gc.disable()  # what a run makes lives until its end: whoever looks for garbage before finds none
    try:
        with _event_loop_of_its_own() as loop, _without_positions():
            pulumi.runtime.set_mocks(mocks, project=PROJECT_NAME, stack=stack, preview=False)
            pulumi.runtime.set_all_config(dict(values))
            loop.run_until_complete(pulumi.runtime.stack.run_pulumi_func(program))
    finally:
        pulumi.runtime.set_all_config({})
        gc.enable()


def _without_positions() -> AbstractContextManager[object]:
    """No resource's place in the program is looked up: mocks show it to nobody, and it takes a fifth of a run."""
    return patch.object(sdk, "_get_stack_trace", source_pb2.StackTrace)


@contextmanager
def _event_loop_of_its_own() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop of its own, set before the mocks are; all that were opened meanwhile are closed."""
    before = asyncio.get_event_loop_policy()
    policy = _RememberingPolicy()
    asyncio.set_event_loop_policy(policy)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    try:
        yield loop
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        for each in policy.made:
            each.close()
        asyncio.set_event_loop_policy(before)


@cache
def default_values() -> Mapping[str, str]:
    """The defaults of Pulumi.yaml by full key, as Pulumi hands them to a program."""
    project = read_yaml(PROJECT / "Pulumi.yaml")
    return {
        f"{PROJECT_NAME}:{name}": _configured(each["default"])
        for name, each in project["config"].items()
    }


def files_of(root: Path) -> tuple[tuple[str, str], ...]:
    """Paths and texts of a test's own project; () for the project itself."""
    files = sorted(path for path in root.rglob("*") if path.is_file()) if root != PROJECT else ()
    return tuple((str(path.relative_to(root)), path.read_text()) for path in files)


def _configured(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
