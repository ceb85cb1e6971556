"""The same work on several things at once, in threads.

`concurrent.futures` would do; it loads logging with it, which takes a host as long as a fifth of the agent.
"""

import collections
import threading
from typing import Callable, Dict, List, Sequence, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def each_at_once(
    work: Callable[[Asked], Answer], things: Sequence[Asked], most: int
) -> List[Answer]:
    """What the work returns for each thing, in their order.

    Args:
        work: runs in threads.
        things: what it is done to.
        most: how many at once.

    Raises:
        Exception: the work's own, of the first thing that met one, when all have ended.
    """
    answers: Dict[int, Answer] = {}
    problems: Dict[int, BaseException] = {}
    waiting = collections.deque(range(len(things)))

    def serve() -> None:
        while True:
            try:
                place = waiting.popleft()
            except IndexError:
                return
            try:
                answers[place] = work(things[place])
            except BaseException as error:  # noqa: BLE001 - is raised where all are awaited
                problems[place] = error

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(most, len(things)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[min(problems)]
    return [answers[place] for place in range(len(things))]
