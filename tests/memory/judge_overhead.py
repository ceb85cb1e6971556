"""The overhead model against public start-up logs: `python -m tests.memory.judge_overhead` writes docs/estimates.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from infra.memory.overhead import OVERHEAD_GIB
from infra.spec.load import PROJECT
from infra.spec.plain_yaml import read_yaml

LOGS = PROJECT / "tests" / "cases" / "start_up_logs"
PATH = PROJECT / "docs" / "estimates.md"
TEXT = PROJECT / "tests" / "memory" / "estimates.md"
TABLES = "<!-- tables -->\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUpLog:
    """What one start of an engine said of one device; `tests/cases/start_up_logs/vllm.yaml` explains the fields."""

    engine: str
    name: str
    version: str | None
    accelerator: str
    total_gib: float
    total_is: str
    share: float
    share_is: str
    tensor: int
    data: int
    experts_spread: bool
    model: str
    tokens: int | None
    is_eager: bool
    weights_gib: float
    kv_gib: float
    source: str

    @property
    def measured_gib(self) -> float:
        """What the engine's share of the device held beside weights and KV."""
        return self.total_gib * self.share - self.weights_gib - self.kv_gib

    @property
    def predicted_gib(self) -> float:
        """What `fab estimate` sets aside for it, whatever the accelerator and the model."""
        return OVERHEAD_GIB["sglang" if self.engine == "sglang" else "vllm"]

    @property
    def error_gib(self) -> float:
        """Predicted less measured: above 0 the estimate promises less KV than there is."""
        return self.predicted_gib - self.measured_gib

    @property
    def predicted_kv_gib(self) -> float:
        """KV by the model, from the log's own weights: the error of the overhead alone."""
        return self.kv_gib - self.error_gib


def read_logs() -> tuple[StartUpLog, ...]:
    """Every log, by engine and in the order of its file."""
    return tuple(
        StartUpLog(engine=path.stem, **entry)
        for path in sorted(LOGS.glob("*.yaml"), reverse=True)
        for entry in read_yaml(path)
    )


def estimates_document() -> str:
    """The content of docs/estimates.md: the text beside this module, with the tables in their place."""
    head, tail = TEXT.read_text(encoding="utf-8").split(TABLES)
    logs = read_logs()
    return head + _distribution(logs) + "\n" + _rows(logs) + tail


def _distribution(logs: Sequence[StartUpLog]) -> str:
    lines = [
        "| logs | number | least | quartile | median | quartile | most | too little set aside |\n",
        "|---|---|---|---|---|---|---|---|\n",
    ]
    lines += (
        _spread(group, [log for log in logs if of(log) == group])
        for of in (_engine, _accelerator)
        for group in dict.fromkeys(of(log) for log in logs)
    )
    return "".join(lines)


def _engine(log: StartUpLog) -> str:
    return log.engine


def _accelerator(log: StartUpLog) -> str:
    return f"{log.engine} on {log.accelerator}"


def _spread(name: str, logs: Sequence[StartUpLog]) -> str:
    errors = sorted(log.error_gib for log in logs)
    few = len(errors) < 4  # quartiles of three numbers are three numbers
    low, high = ("", "") if few else (f"{q:+.1f}" for q in quantiles(errors, n=4)[::2])
    short = sum(error < 0 for error in errors)
    return (
        f"| {name} | {len(errors)} | {errors[0]:+.1f} | {low} | {median(errors):+.1f} | {high} "
        f"| {errors[-1]:+.1f} | {short} |\n"
    )


def _rows(logs: Iterable[StartUpLog]) -> str:
    columns: tuple[tuple[str, Callable[[StartUpLog], str]], ...] = (
        ("log", lambda log: f"`{log.name}`"),
        ("engine", lambda log: f"{log.engine} {log.version or ''}".strip()),
        ("total × share", lambda log: f"{log.total_gib:g} × {log.share:g}{_inferred(log)}"),
        ("TP, DP", lambda log: f"{log.tensor}, {log.data}{' EP' if log.experts_spread else ''}"),
        ("weights", lambda log: f"{log.weights_gib:.2f}"),
        ("KV", lambda log: f"{log.kv_gib:.2f}"),
        ("KV by the model", lambda log: f"{log.predicted_kv_gib:.2f}"),
        ("overhead", lambda log: f"{log.measured_gib:.2f}"),
        ("error", lambda log: f"{log.error_gib:+.2f}"),
        ("of the device", lambda log: f"{log.error_gib / log.total_gib:+.1%}"),
        ("source", lambda log: log.source),
    )
    head = "| " + " | ".join(name for name, _ in columns) + " |\n|" + "---|" * len(columns) + "\n"
    return head + "".join(
        "| " + " | ".join(show(log) for _, show in columns) + " |\n" for log in logs
    )


def _inferred(log: StartUpLog) -> str:
    return "" if (log.total_is, log.share_is) == ("log", "log") else " *"


if __name__ == "__main__":
    PATH.write_text(estimates_document(), encoding="utf-8")
