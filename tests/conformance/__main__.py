"""Runs the suite: on the simulated engine and writes the page, or on the real one and writes the recording."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from infra.errors import InfraError
from infra.rehearsal.real_engines import installed_engine
from tests.conformance.page import PAGE, explained, page, recorded, unrecorded, write_recorded
from tests.conformance.subjects import Bench, Real, Simulated, Subject
from tests.conformance.suite import run_suite


def main() -> int:
    """Do what the command line asks; its exit code is 6 where a difference is not explained."""
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument("--record", action="store_true", help="run the real engine and record it")
    if parser.parse_args().record:
        try:
            folder = installed_engine(os.environ)
        except InfraError as error:
            say(error)
            return error.exit_code
        write_recorded(answers_of(Real(folder)))
    real, simulated, why = recorded(), answers_of(Simulated()), explained()
    PAGE.write_text(page(real, simulated, why), encoding="utf-8")
    known = {*why, *unrecorded()}
    unexplained = [n for n in real if simulated.get(n) != real[n] and n not in known]
    for name in unexplained:
        say(f"differs, not explained: {name}")
    say(f"wrote {PAGE.name}")
    return 6 if unexplained else 0


def answers_of(subject: Subject) -> dict[str, Any]:
    """The suite's answers of one subject; everything that it starts is ended."""
    with tempfile.TemporaryDirectory(prefix="moe-conformance-") as folder:
        bench = Bench(subject, Path(folder))
        try:
            return run_suite(bench, lambda name: say(f"{subject.name}: {name}"))
        finally:
            bench.end_all()


def say(text: object) -> None:
    """Tell whoever waits."""
    sys.stderr.write(f"{text}\n")


sys.exit(main())
