"""Puts questions to a release in its scratch environment; every answer is kept, and a second run asks what is new."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator
from infra.errors import StackError
from infra.packages.verdicts.interview import NOT_ANSWERED
from infra.packages.verdicts.questions import Question
from infra.packages.verdicts.scratch import Say, Scratch
from infra.spec.load import PROJECT

_CAPABILITIES = {"hopper": (9, 0), "blackwell": (10, 0), "cdna3": (9, 4), "cdna4": (9, 5)}
_CHIPS = {"cdna3": "gfx942", "cdna4": "gfx950", "ascend-a2": "A2", "ascend-a3": "A3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a release says to one command.

    Args:
        level: how far its own code was run, or where it refused: `parse`, `config` or `checks`; or `not answered`,
            when it took too long or its process ended.
        says: its own words when it refuses, on one line; empty when it accepts; without an answer, what became of it.
    """

    level: str
    says: str

    @property
    def is_accepted(self) -> bool:
        """Whether the release took the command."""
        return self.is_answered and not self.says

    @property
    def is_refused(self) -> bool:
        """Whether the release said no."""
        return self.is_answered and bool(self.says)

    @property
    def is_answered(self) -> bool:
        """Whether the release said anything at all."""
        return self.level != NOT_ANSWERED


def ask(
    scratch: Scratch, questions: Sequence[Question], catalog: Catalog, folder: Path, say: Say
) -> dict[str, Verdict]:
    """The verdict on every question, by the question's digest.

    Args:
        scratch: where the release is.
        questions: all of one release.
        catalog: for the accelerators' facts.
        folder: keeps the answers, and holds `models/`.
        say: takes lines of progress.

    Raises:
        StackError: the release's code cannot be brought to answer.
    """
    release = questions[0].release
    answers = answers_file(folder, release)
    known = {digest: verdict for digest, verdict in _read(answers).items() if verdict.is_answered}
    hosts: dict[object, list[Question]] = {}
    for question in questions:
        if question.digest not in known:
            host = (question.accelerator, question.num_devices, question.weights_path)
            hosts.setdefault(host, []).append(question)
    for asked in hosts.values():
        accelerator = catalog.accelerator(asked[0].accelerator)
        say(f"{release} on {accelerator.id}: {len(asked)} commands")
        _run(scratch, _document(asked, accelerator, folder, answers), say)
    known = _read(answers)
    return {
        question.digest: _without_folders(known[question.digest], scratch) for question in questions
    }


def answers_file(folder: Path, release: str) -> Path:
    """Where the answers of a release are kept between runs."""
    return folder / f"{release}.answers"


def _document(
    asked: Sequence[Question], accelerator: Accelerator, folder: Path, answers: Path
) -> dict[str, Any]:
    """What the other interpreter reads: plain values only."""
    rows = [
        {"digest": q.digest, "argv": q.argv, "env": dict(q.env)}
        for q in {question.digest: question for question in asked}.values()
    ]
    return {
        "package": asked[0].package,
        "version": asked[0].version,
        "num_devices": asked[0].num_devices,
        "weights_path": asked[0].weights_path,
        "models": str(folder / "models"),
        "accelerator": {
            "id": accelerator.id,
            "vendor": accelerator.vendor,
            "product_name": accelerator.product_name,
            "memory_bytes": accelerator.memory_mib << 20,
            "chip": _CHIPS.get(accelerator.generation, ""),
            "capability": _CAPABILITIES.get(accelerator.generation, (0, 0)),
        },
        "questions": rows,
        "answers": str(answers),
    }


def _run(scratch: Scratch, document: Mapping[str, Any], say: Say) -> None:
    file = Path(f"{document['answers']}.asked")
    file.write_text(json.dumps(document), encoding="utf-8")
    env = {
        "HOME": str(file.parent),
        "HF_HUB_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{scratch.python.parent}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([*(str(each) for each in scratch.folders), str(PROJECT)]),
    }
    log = file.with_suffix(".log")
    with (
        log.open("w", encoding="utf-8") as stream,
        # a release that is asked leaves temporary files
        tempfile.TemporaryDirectory(prefix="moe-infra-asked-") as temporary,
    ):
        running = subprocess.Popen(
            [str(scratch.python), "-m", "infra.packages.verdicts.asking_process", str(file)],
            cwd=file.parent,
            env={**env, "TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
            text=True,
        )
        with running:
            for line in running.stdout or ():
                if line.startswith("asked "):
                    say(f"  {line.strip()}")
    if running.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8").strip().splitlines()[-15:])
        raise StackError(
            f"{document['package']} {document['version']} on {document['accelerator']['id']}",
            f"Its code cannot be asked:\n{tail}\n",
            f"Teach infra/packages/verdicts/ what the lines above miss; all of them are in {log}.",
        )


def _without_folders(verdict: Verdict, scratch: Scratch) -> Verdict:
    """An answer as on any machine."""
    says = verdict.says
    for folder in scratch.folders:
        says = says.replace(f"{folder}/", "")
    return replace(verdict, says=says)


def _read(answers: Path) -> dict[str, Verdict]:
    if not answers.is_file():
        return {}
    rows = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    return {row["digest"]: Verdict(level=row["level"], says=row["says"]) for row in rows}
