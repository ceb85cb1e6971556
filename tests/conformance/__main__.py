"""Runs the suite: on the simulated engine and writes the page, or on the real one and writes the recording."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.errors import InfraError
from infra.rehearsal.installed import cache_folder
from infra.rehearsal.real_engines import STAMP, installed_engine
from tests.conformance.bench import Bench
from tests.conformance.differences import explained, places
from tests.conformance.groups import MachineTooSlow
from tests.conformance.page import PAGE, compared, page, recorded, write_recorded
from tests.conformance.recording import record
from tests.conformance.subjects import VERSION, Real, Simulated, Subject
from tests.conformance.suite import run_suite, units

TOO_SLOW_CODE = 5


def main() -> int:
    """Do what the command line asks; its exit code is 6 where a difference is not explained."""
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the real engine and record it")
    wants_record = parser.parse_args().record
    # as an error, so that started engines are ended
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if wants_record:
        try:
            write_recorded(recorded_now(installed_engine(os.environ)))
        except InfraError as error:
            say(error)
            return error.exit_code
        except MachineTooSlow as error:
            say(
                f"This machine is too slow just now: {error}. Start again: what is recorded is kept."
            )
            return TOO_SLOW_CODE
    with bench_of(Simulated()) as bench:
        simulated = run_suite(bench, say)
    PAGE.write_text(page(recorded(), simulated, why := explained()), encoding="utf-8")
    real, played = compared(recorded()), compared(simulated)
    unexplained = {
        name: at
        for name, answer in real.items()
        if (at := places(answer, played.get(name))) and (name not in why or why[name].at != at)
    }
    for name, at in unexplained.items():
        say(f"differs, not explained: {name}: {', '.join(at)}")
    say(f"wrote {PAGE.name}")
    return 6 if unexplained else 0


def recorded_now(environment: Path) -> dict[str, Any]:
    """The answers of the real engine; what was asked before it was stopped is not asked again.

    Args:
        environment: folder of the installed engine.
    """
    kept = cache_folder(os.environ) / f"conformance-{VERSION}.json"
    installed = (environment / STAMP).read_text(encoding="utf-8")
    with bench_of(Real(environment)) as bench:
        return record(bench, units(), installed, kept, say)


@contextlib.contextmanager
def bench_of(subject: Subject) -> Iterator[Bench]:
    """A bench in a folder that is gone afterwards, with everything that was started."""
    with tempfile.TemporaryDirectory(prefix="moe-conformance-") as folder:
        bench = Bench(subject, Path(folder))
        try:
            yield bench
        finally:
            bench.close()


def say(text: object) -> None:
    """Tell whoever waits."""
    sys.stderr.write(f"{text}\n")


sys.exit(main())
