"""Work that may never end, a mount that hangs for one: it is left behind when its time is over."""

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Callable, TypeVar

from ..host import Refused

Answer = TypeVar("Answer")


def within(seconds: float, work: Callable[[], Answer]) -> Answer:
    """What the work returns; its thread is not waited for any longer than that.

    Raises:
        OSError: the work's own.
        Refused: it has not ended in time.
    """
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    done, _ = wait([future], timeout=seconds)
    if not done:
        raise Refused("no answer within {:g} s".format(seconds))
    return future.result()
