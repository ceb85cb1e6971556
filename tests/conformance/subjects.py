"""The two engines that the suite is put to: how each is started, and how long it may take."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.conformance.forker import Forker
from tests.conformance.lent_collectives import lend
from tests.rehearsal.engine.simulated_host import CATALOGUES, PACKAGE, make_state

VERSION = "0.22.1"


class Subject(Protocol):
    """An engine to look at."""

    @property
    def name(self) -> str:
        """`simulated` or `real`."""
        ...

    @property
    def patience_s(self) -> float:
        """Seconds that it may take to serve, or to leave."""
        ...

    @property
    def answer_s(self) -> float:
        """Seconds after which a request counts as unanswered."""
        ...

    @property
    def hang_s(self) -> float:
        """The same for a request to a group of which one rank does not run."""
        ...

    @property
    def quiet_s(self) -> float:
        """Seconds without a word after an error, after which an engine is taken to stay."""
        ...

    @property
    def coordinator_sign(self) -> str:
        """What rank 0 logs when others may come; empty when they may come at any time."""
        ...

    def command(self, words: Sequence[str]) -> list[str]:
        """The program's words for `vllm WORDS`."""
        ...

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of an engine whose host's state may lie in `folder`, beside those of others."""
        ...

    def lent_collectives(self, folder: Path) -> dict[str, str]:
        """Further variables without which several ranks cannot serve here."""
        ...

    def forker(self, folder: Path) -> Forker | None:
        """Starts it faster than anew, for what never serves; None where anew is fast."""
        ...


@dataclass(frozen=True)
class Simulated:
    """The engine of rehearsals, on a simulated host of its own."""

    name: str = "simulated"
    patience_s: float = 20.0
    answer_s: float = 2.0
    hang_s: float = 2.0
    quiet_s: float = 1.0
    coordinator_sign: str = ""

    def command(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-I", "-S", str(PACKAGE), "vllm", *words]

    def environment(self, folder: Path) -> dict[str, str]:
        state = make_state(folder / "host")
        return {
            "MOE_REHEARSAL_STATE": str(state),
            "MOE_REHEARSAL_CATALOGUES": str(CATALOGUES),
            "MOE_REHEARSAL_ENGINE": "vllm",
            "MOE_REHEARSAL_ENGINE_VERSION": VERSION,
            "MOE_REHEARSAL_RANK_DEATH": "fail",  # the real ones' collectives are gloo's, too
            "HF_HUB_OFFLINE": "1",
        }

    def lent_collectives(self, folder: Path) -> dict[str, str]:
        del folder
        return {}

    def forker(self, folder: Path) -> Forker | None:
        del folder
        return None


@dataclass(frozen=True)
class Real:
    """The released engine, installed by `scripts/install-cpu-engine`."""

    environment_folder: Path
    name: str = "real"
    patience_s: float = 600.0
    answer_s: float = 60.0
    hang_s: float = 30.0
    quiet_s: float = 60.0
    coordinator_sign: str = "Started DP Coordinator process"

    def command(self, words: Sequence[str]) -> list[str]:
        return [str(self.environment_folder / "bin" / "vllm"), *words]

    def environment(self, folder: Path) -> dict[str, str]:
        return {
            # one for all: vLLM keeps there what it has learned of a model's class, which takes it a process
            "HOME": str(folder.parent / "home"),
            # one that is killed leaves its temporary folders
            "TMPDIR": str(folder),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HOST_IP": "127.0.0.1",
        }

    def lent_collectives(self, folder: Path) -> dict[str, str]:
        lend(folder / "lent")
        return {"PYTHONPATH": str(folder / "lent")}

    def forker(self, folder: Path) -> Forker | None:
        python = self.environment_folder / "bin" / "python"
        own = folder / "forker"
        own.mkdir()
        variables = {"PATH": os.environ["PATH"], **self.environment(own)}
        return Forker(python, folder, variables)
