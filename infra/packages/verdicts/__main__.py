"""`scripts/verify-engines`: puts commands to the released engines' own code, and records what they say."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.catalog.load import Catalog
from infra.catalog.read_releases import read_release
from infra.errors import Differs, InfraError, StackError
from infra.packages.verdicts.asking import answers_file, ask
from infra.packages.verdicts.checkpoints import write_checkpoints
from infra.packages.verdicts.newer import (
    broken_elsewhere,
    moved_plans,
    newer_releases,
    row_commands,
    shipped_elsewhere,
)
from infra.packages.verdicts.questions import (
    Question,
    broken_questions,
    compiled_plans,
    named_checkpoints,
    sample,
    shipped_questions,
    thin_sample,
)
from infra.packages.verdicts.records import (
    RECORDS,
    Record,
    Row,
    read_record,
    record_of,
    record_text,
    with_broken_of,
)
from infra.packages.verdicts.scratch import prepare
from infra.spec.nearest import nearest

_HERE = Path(__file__).parent
# What decides an answer beside the release: for all of them, and for each.
_ASKING = (
    "../standins",
    "absent",
    "asking",
    "asking_process",
    "checkpoints",
    "interview",
    "scratch",
    "visible",
)
_SPEAKERS = {
    "sglang": ("in_sglang",),
    "sglang-router": ("in_routers",),
    "vllm": ("in_vllm",),
    "vllm-ascend": ("in_vllm_ascend", "in_vllm"),
    "vllm-router": ("in_routers",),
}

_SITS_ON = {"vllm-ascend": "vllm"}


def main(words: Sequence[str]) -> int:
    """Ask and record; the exit codes are those of `fab`."""
    asked = _parser().parse_args(words)
    try:
        _verify(asked)
    except InfraError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verify-engines",
        description="Runs the parsers and configuration code of the pinned releases, and of some newer ones, on the "
        "commands of the stacks and on a sample of damaged ones; writes tests/cases/verdicts/. It needs a package "
        "index, some 25 GB and an hour the first time; what was downloaded, installed and answered is kept.",
    )
    parser.add_argument(
        "--release",
        action="append",
        default=[],
        help="only this one, as in vllm-0.22.1; repeatable",
    )
    parser.add_argument(
        "--stack",
        action="append",
        default=[],
        help="only this stack's own commands; prints the verdicts and records nothing; repeatable",
    )
    parser.add_argument(
        "--shipped",
        action="store_true",
        help="the shipped commands alone; what is recorded of damaged ones stays",
    )
    parser.add_argument(
        "--every",
        action="store_true",
        help="every damaged command in place of the sample; prints the counts and records nothing",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="ask everything anew and write nothing; 6 when a record says something else",
    )
    parser.add_argument("--into", type=Path, default=_cache(), help="what is kept between runs")
    parser.add_argument("--to", type=Path, default=RECORDS, help="the folder of the records")
    return parser


def _verify(asked: argparse.Namespace) -> None:
    catalog = Catalog()
    questions = _questions(asked, catalog)
    releases = sorted({question.release for question in questions})
    unknown = [name for name in asked.release if name not in releases]
    if unknown:
        message = (
            f"No stack pins {unknown[0]}, and it is none of the newer releases that are asked."
        )
        raise StackError("verify-engines --release", message, nearest(unknown[0], releases))
    for release in asked.release or releases:
        mine = [question for question in questions if question.release == release]
        if mine[0].package not in _SPEAKERS:
            _say(f"{release}: not asked, infra/packages/verdicts/ has no way to it yet")
            continue
        record = _asked_of(mine, catalog, asked)
        if asked.stack:
            _show(record)
        elif not asked.every:
            _keep(record, asked)
        _say(_counts(record))


def _questions(asked: argparse.Namespace, catalog: Catalog) -> list[Question]:
    """Of each release: its shipped commands, and damaged ones unless stacks are named."""
    shipped: list[Question] = []
    broken: list[Question] = []
    for stack, plan in compiled_plans(catalog, asked.stack):
        shipped += shipped_questions(stack, plan, catalog)
        if not asked.stack and not asked.shipped:
            broken += broken_questions(stack, plan, catalog)
    if not shipped:
        raise StackError("verify-engines --stack", "There is no such stack.", "See `fab stacks`.")
    return [*shipped, *(broken if asked.every else sample(broken)), *_to_newer(asked, catalog)]


def _to_newer(asked: argparse.Namespace, catalog: Catalog) -> list[Question]:
    """The same of releases that no stack pins, with fewer damaged commands and one for each row of combinations."""
    found: list[Question] = []
    for engine, version in newer_releases():
        if asked.release and f"{engine}-{version}" not in asked.release:
            continue
        plans = dict(moved_plans(catalog, engine, version, asked.stack))
        found += shipped_elsewhere(plans, catalog)
        if not asked.stack and not asked.shipped:
            broken = list(broken_elsewhere(plans, catalog))
            found += [
                *(broken if asked.every else thin_sample(broken)),
                *row_commands(plans, catalog),
            ]
    return found


def _asked_of(questions: Sequence[Question], catalog: Catalog, asked: argparse.Namespace) -> Record:
    first = questions[0]
    into: Path = asked.into
    into.mkdir(parents=True, exist_ok=True)
    scratch = prepare(first.package, first.version, into, _say, _below(first, catalog))
    folder = into / "asked" / _fingerprint(first.package)
    folder.mkdir(parents=True, exist_ok=True)
    if asked.compare:  # an answer that is kept says nothing about the release of today
        answers_file(folder, first.release).unlink(missing_ok=True)
    write_checkpoints(folder / "models", named_checkpoints(questions, catalog), catalog)
    verdicts = ask(scratch, questions, catalog, folder, _say)
    return record_of(first.release, scratch.wheels, questions, verdicts)


def _below(question: Question, catalog: Catalog) -> tuple[str, str] | None:
    """Package and version that a plugin sits on; None of what sits on nothing."""
    if question.package not in _SITS_ON:
        return None
    base = read_release(catalog, question.package, question.version).base_version
    return None if base is None else (_SITS_ON[question.package], base)


def _fingerprint(package: str) -> str:
    """Changes with the code that asks: answers to other code are not taken up again."""
    digest = hashlib.sha256()
    for path in deciding_files(package):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def deciding_files(package: str) -> tuple[Path, ...]:
    """The modules that decide what is answered in the place of a package, beside the package itself."""
    return tuple((_HERE / f"{name}.py").resolve() for name in (*_ASKING, *_SPEAKERS[package]))


def _keep(record: Record, asked: argparse.Namespace) -> None:
    path: Path = asked.to / f"{record.release}.json"
    if asked.shipped and path.is_file():
        record = with_broken_of(read_record(path), record)
    text = record_text(record)
    if asked.compare:
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        if old != text:
            was = set(old.splitlines())
            new = "\n".join(line for line in text.splitlines() if line not in was)
            raise Differs(
                path.name,
                f"The release says something else than is recorded:\n{new[:4000]}\n",
                "Run scripts/verify-engines without --compare, and read the difference.",
            )
        return
    asked.to.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _show(record: Record) -> None:
    for row in record.rows:
        word = "refused" if row.verdict.is_answered else "not answered"
        says = f"{word}: {row.verdict.says}" if row.verdict.says else "accepted"
        print(f"{row.stack} {row.process} ({row.verdict.level}): {says}")


def _counts(record: Record) -> str:
    def share(rows: Sequence[Row], word: str) -> str:
        answered = [row for row in rows if row.verdict.is_answered]
        accepted = [row for row in answered if row.verdict.is_accepted]
        return f"{len(accepted)} of {len(answered)} {word} commands accepted"

    silent = sum(1 for row in record.rows if not row.verdict.is_answered)
    counts = f"{share(record.shipped, 'shipped')}, {share(record.broken, 'damaged')}"
    return f"{record.release}: {counts}" + (f", {silent} not answered" if silent else "")


def _cache() -> Path:
    """Where scripts/README.md says that the cache is."""
    own = os.environ.get("MOE_INFRA_CACHE")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(own or f"{cache}/moe-infra") / "engines"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
