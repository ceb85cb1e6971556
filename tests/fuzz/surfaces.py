"""What reads foreign input, each as a function of one input: the task itself, with what it prints."""

from __future__ import annotations

import functools
import importlib
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import yaml

from infra.catalog.load import Catalog
from infra.errors import InfraError
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.spec.load import PROJECT
from infra.tasks.completion import Completion
from infra.tasks.options import Options
from infra.tasks.output import Output
from tests.fuzz.host_surfaces import HOST_SURFACES
from tests.fuzz.mutations import as_json, as_yaml
from tests.fuzz.running import Ran, Surface

TESTS = PROJECT / "tests"
STACK = "gb200-2p1d"
# What a rendered folder holds beside files of hosts is looked at by its own readers.
MAX_RENDERED = 12


def run_task(module: str, given: Mapping[str, object]) -> Ran:
    """A task as `fab` runs it, but for its last stop: a bug is raised."""
    out, options = io.StringIO(), Options({"set": (), "json": False, **given})
    output = Output(
        wants_json=options.is_on("json"),
        has_colour=False,
        complete=Completion(lambda: options),
        stdout=out,
        stderr=out,
    )
    try:
        code: int = importlib.import_module(f"infra.tasks.{module}").run(options, output)
    except InfraError as error:
        output.failure(error)
        code = error.exit_code
    return Ran(code=code, said=out.getvalue())


def _checked(option: str, **given: object) -> Callable[[Path], Ran]:
    """`fab check` of the input; what it accepts is rendered, and read as hosts would."""

    def run(path: Path) -> Ran:
        chosen = {**given, option: str(path)}
        ran = run_task("check", chosen)
        return (
            ran
            if ran.code or option == "inventory"
            else _rendered(chosen, path.parent / "rendered")
        )

    return run


def _rendered(chosen: Mapping[str, object], folder: Path) -> Ran:
    ran = run_task("render", {**chosen, "to": str(folder)})
    for path in [path for path in folder.rglob("*") if path.is_file()][:MAX_RENDERED]:
        if path.name == "launch":
            subprocess.run(["sh", "-n", str(path)], check=True, capture_output=True)
        elif path.name == "environment":
            read_environment_file(path.read_text(encoding="utf-8"))
    shutil.rmtree(folder, ignore_errors=True)
    return ran


def read_environment_file(text: str) -> dict[str, str]:
    """The variables of a file that systemd, docker and podman read alike: a reader of its own, for these tests.

    Raises:
        ValueError: a line is no plain assignment: one of the three takes it for another one, or for a part of another.
    """
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(
            r"([A-Za-z_][A-Za-z0-9_]*)=((?!\s)[^\"'\\\r\0]*(?<!\s)|)", line, re.ASCII
        )
        if match is None or match[1] in found:
            raise ValueError(line)
        found[match[1]] = match[2]
    return found


def _set_words(path: Path) -> Ran:
    words = path.read_text(encoding="utf-8", errors="replace").replace("\0", "").split("\n")
    return run_task("check", {"stack": STACK, "set": tuple(words)})


def _facts_file(path: Path) -> Ran:
    inventory = path.with_name("hosts.yml")
    shutil.copy(PROJECT / f"ansible/inventory/examples/{STACK}.yml", inventory)
    return run_task("check", {"stack": STACK, "inventory": str(inventory)})


def _secret_file(path: Path) -> Ran:
    from infra.tasks.stack_secrets import read_secrets  # noqa: PLC0415 - of one surface

    try:
        values = read_secrets({"api_key": {"file": str(path)}})
    except InfraError as error:
        return Ran(code=error.exit_code, said=str(error))
    return Ran(code=0, said=str(values))


def _imported(path: Path) -> Ran:
    plan = path.with_name("plan.json")
    ran = run_task("import_recipe", {"file": str(path), "to-plan": str(plan)})
    again = run_task("check", {"plan": str(plan)}) if plan.is_file() else ran
    return Ran(code=ran.code, said=ran.said + again.said)


def _files(*patterns: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [
        path.read_bytes() for pattern in patterns for path in sorted(PROJECT.glob(pattern))
    ]


@functools.cache
def _plans() -> Sequence[bytes]:
    catalog = Catalog()
    plans = [
        compile_file(name, catalog=catalog).plan for name in (STACK, "h200-sglang-tp8", "a3-dp4tp4")
    ]
    return [json.dumps(plan_document(plan)).encode() for plan in plans]


def _facts() -> Sequence[bytes]:
    row = {
        "address": "192.0.2.11", "interface": "eth0", "rdma_devices": ["mlx5_0:1"], "gids": {"mlx5_0:1": 3},
        "nvlink_domain": "", "page_size": 4096, "driver": "580.1", "machine_id": "m", "boot_id": "b",
    }  # fmt: skip
    document = {
        "schema_version": 1,
        "hosts": {"prefill-0": row, "decode-0": row},
        "collectives": [],
    }
    return [yaml.safe_dump(document).encode()]


def _recipes() -> Sequence[bytes]:
    """The commands of published recipes, as scripts."""
    rows = [
        yaml.safe_load(path.read_bytes()) for path in sorted((TESTS / "recipes").glob("*.yaml"))
    ]
    found = [row.get("command") for row in rows if isinstance(row, dict)]
    texts = [each if isinstance(each, str) else "" for each in found]
    own = _files("tests/cases/import/*.sh")()
    return [*own, *(text.encode() for text in texts if "serve" in text or "launch" in text)]


NIGHTLY = b"""test_name: x
model: moonshotai/Kimi-K2.5
num_nodes: 2
npu_per_node: 16
env_common: {A: "1", HCCL_BUFFSIZE: "1024"}
disaggregated_prefill: {enabled: true, prefiller_host_index: [0], decoder_host_index: [1]}
deployment:
  - server_cmd: |
      vllm serve moonshotai/Kimi-K2.5 --port 8080 --data-parallel-size 2 --tensor-parallel-size 8
  - envs: {B: "2"}
    server_cmd: |
      vllm serve moonshotai/Kimi-K2.5 --headless --data-parallel-size 2 --tensor-parallel-size 8
"""

SURFACES: Mapping[str, Surface] = {
    "stack": Surface(
        file="mine.yaml",
        seeds=_files("stacks/[a-z]*.yaml", "tests/stacks/*.yaml"),
        write=as_yaml,
        run=_checked("file"),
    ),
    "set": Surface(
        file="words",
        seeds=lambda: [
            (
                b"port=8080\nroles.decode.flags={a: 1}\nroles.decode.replicas=2\n"
                b"secrets.api_key.env=K\nengine.version='0.22.1'"
            )
        ],
        write=None,
        run=_set_words,
    ),
    "inventory": Surface(
        file="hosts.yml",
        seeds=_files("ansible/inventory/examples/*.yml"),
        write=as_yaml,
        run=_checked("inventory", stack=STACK),
    ),
    "facts": Surface(file="hosts.facts.yml", seeds=_facts, write=as_yaml, run=_facts_file),
    "plan": Surface(file="plan.json", seeds=_plans, write=as_json, run=_checked("plan")),
    "shell": Surface(file="serve.sh", seeds=_recipes, write=None, run=_imported),
    "guide": Surface(
        file="guide.md", seeds=_files("tests/cases/import/*.md"), write=None, run=_imported
    ),
    "compose": Surface(
        file="compose.yaml",
        seeds=_files("tests/cases/import/compose*.yaml"),
        write=as_yaml,
        run=_imported,
    ),
    "manifests": Surface(
        file="pods.yaml",
        seeds=_files("tests/cases/import/pd-set.yaml", "tests/cases/import/ranks.yaml"),
        write=as_yaml,
        run=_imported,
    ),
    "slurm": Surface(
        file="slurm.yaml",
        seeds=_files("tests/cases/import/slurm.yaml"),
        write=as_yaml,
        run=_imported,
    ),
    "nightly": Surface(file="nightly.yaml", seeds=lambda: [NIGHTLY], write=as_yaml, run=_imported),
    "secret": Surface(
        file="secret", seeds=lambda: [b"sk-0123456789abcdef\n"], write=None, run=_secret_file
    ),
    **HOST_SURFACES,
}
