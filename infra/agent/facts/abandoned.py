"""Work that may never end, a mount that hangs for one: it is left behind when its time is over."""

import threading
from typing import Callable, List, TypeVar

from ..host import Refused

Answer = TypeVar("Answer")


def within(seconds: float, work: Callable[[], Answer]) -> Answer:
    """What the work returns; its thread is not waited for any longer than that.

    Raises:
        OSError: the work's own.
        Refused: it has not ended in time.
    """
    answers: List[Answer] = []
    problems: List[BaseException] = []

    def do() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # noqa: BLE001 - is raised below
            problems.append(error)

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0]
    if not answers:
        raise Refused("no answer within {:g} s".format(seconds))
    return answers[0]
