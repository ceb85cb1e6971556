"""The gate of plans: every field has a grammar, every count a limit; what passes, a host reads as it was meant."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.catalog.load import Catalog
from infra.checks.judge import never_made
from infra.errors import InfraError, ProblemsFound
from infra.plan.compile import compile_file
from infra.plan.document import plan_document
from infra.plan.gate import MAX_DEVICES, MAX_MOUNTS, MAX_NETWORKS, MAX_TOLD, MAX_VARIABLES, misfits
from infra.plan.imported import parse_plan
from infra.plan.process import Plan
from infra.render.compile_cache import cache_variables
from infra.render.items import HostState
from infra.spec.load import SEARCHED
from infra.tasks.render import plan_states

CATALOG = Catalog()
FILE = "plan.json"
Document = dict[str, Any]
Path_ = tuple[str | int, ...]
# systemd's own reader of `NAME=value` lines (load_env_file), as a program; it expands `$`, which units' files do not.
READER = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")


@cache
def _text(stack: str) -> str:
    return json.dumps(plan_document(compile_file(stack, catalog=CATALOG).plan))


def a_document(stack: str = "a3-2p1d") -> Document:
    document: Document = json.loads(_text(stack))
    return document


def put(document: Document, path: Path_, value: object) -> Document:
    """The document with one value replaced."""
    row: Any = document
    for part in path[:-1]:
        row = row[part]
    row[path[-1]] = value
    return document


def refused_fields(document: Document) -> set[str]:
    with pytest.raises(ProblemsFound) as caught:
        parse_plan(document, FILE)
    assert all(problem.file == FILE and problem.fix for problem in caught.value.problems)
    for problem in caught.value.problems:
        assert str(problem).isprintable()
    return {problem.field for problem in caught.value.problems}


SHELL = "x; touch /tmp/gate-was-open"
NEWLINE = "x\ny"
TOKEN = "hf_" + "aB3" * 11  # made up
ESCAPE = "x\x1b[2Jy"
PROCESS: Path_ = ("processes", 0)
NAME = "the key itself"


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("stack",), ["../../etc", "a b", "", NEWLINE, "a/b", "a'b", "%i", "x" * 65]),
        (("hash",), ["../x", "G", NEWLINE]),
        (("model",), [NEWLINE, ESCAPE]),
        (("checkpoint",), [SHELL, "../x", "-x"]),
        (("tuning",), [SHELL, "../x"]),
        (("engine", "version"), [SHELL, "../x", "", "-1"]),
        (
            ("engine", "image"),
            ["-v", "--privileged", "-v/:/host", "a b", NEWLINE, "UPPER", "a:b:c", "a@b", "a;b", "$(id)", "a/../b"],
        ),
        (("engine", "entrypoint"), [["-c"], [""], ["a\0b"], [NEWLINE], ["x"] * 65]),
        (("weights", "path"), ["models", "", "/models/..", "/a//b", "/./a", "/a\nb", "/a\0b", "//a"]),
        (("secrets",), [{"A B": {"env": "A"}}, {"api_key": {"env": "A B"}}, {"api_key": {}}]),
        (("secrets",), [{"api_key": {"env": "A", "file": "b"}}, {"../x": {"env": "A"}}, {"other": {"env": "A"}}]),
        (("secrets",), [{"api_key": {"file": NEWLINE}}, {"api_key": {"env": TOKEN}}, {"hf_token": {"file": TOKEN}}]),
        (("hosts", 0, "name"), [SHELL, "../x", "a/b", "", "-x", NEWLINE, ESCAPE]),
        (("hosts", 0, "roles"), [[SHELL], ["a/b"]]),
        (("hosts", 0, "address"), [SHELL, "a b", "", "-oProxyCommand=x", "1.2.3.4\n", "::1%eth0", "a..b", "x" * 300]),
        (("hosts", 0, "accelerator"), [SHELL, "../x", ""]),
        (("hosts", 0, "num_devices"), [MAX_DEVICES + 1, 10**30]),
        ((*PROCESS, "id"), [SHELL, "a/../b", "prefill-0/01", NEWLINE]),
        ((*PROCESS, "group"), [SHELL, "prefill", "prefill/x", "../0", NEWLINE]),
        ((*PROCESS, "host"), [SHELL, "a/b", NEWLINE]),
        ((*PROCESS, "role"), [SHELL, "../x", "", NEWLINE]),
        ((*PROCESS, "replica"), [10**30]),
        ((*PROCESS, "dp_ranks"), [[10**30], list(range(200_000))]),
        ((*PROCESS, "devices"), [[10**30], [0] * (MAX_DEVICES + 1)]),
        ((*PROCESS, "endpoint"), ["http://a b:1", "file:///etc/passwd", "http://x", "x", f"http://{SHELL}:1", "http://a:1\n"]),
        ((*PROCESS, "binds", 0, "name"), [SHELL, NEWLINE]),
        ((*PROCESS, "binds", 0, "port"), [10**30]),
        ((*PROCESS, "binds", 0, "count"), [10**30]),
        ((*PROCESS, "connects"), [[{"name": "http", "to": NEWLINE, "port": 1}]]),
        ((*PROCESS, "connects"), [[{"name": SHELL, "to": "a", "port": 1}]]),
        ((*PROCESS, "env", "A B"), ["1"]),
        ((*PROCESS, "env", "A=1; id > /etc/x; B"), ["1"]),
        ((*PROCESS, "env", ""), ["1"]),
        ((*PROCESS, "env", "1A"), ["1"]),
        ((*PROCESS, "env", "A\nB"), ["1"]),
        ((*PROCESS, "env", "A*"), ["1"]),
        ((*PROCESS, "env", "Ä"), ["1"]),
        ((*PROCESS, "env", "A"), ["a\0b", "x" * 131_072]),
        ((*PROCESS, "env_prepend", "LD_PRELOAD;id"), ["1"]),
        ((*PROCESS, "env_prepend", "A"), ["a\0b"]),
        ((*PROCESS, "mounts", 0, "source"), ["x", "", "/a/..", "/a//b", "/a\nb", "../x", "volume:a/b", "/a\0"]),
        ((*PROCESS, "mounts", 0, "target"), ["x", "", "/a/..", "volume:a", "/a\nb"]),
        ((*PROCESS, "argv", 0), ["", "-c", "a\0b", NEWLINE]),
        ((*PROCESS, "argv", 1), ["a\0b", "x" * 131_072]),
    ],
    ids=lambda given: ".".join(map(str, given)) if isinstance(given, tuple) else "",
)  # fmt: skip
def test_a_field_that_does_not_fit_is_refused_at_its_place(path: Path_, values: list[Any]) -> None:
    for value in values:
        fields = refused_fields(put(a_document(), path, value))
        head = ".".join(map(str, path[: 3 if path[0] != "engine" else 2]))
        assert any(field.startswith(head.partition(".")[0]) for field in fields), (value, fields)
        if path[0] == "processes" and path[2] not in ("id", "host"):
            assert any(field.startswith(head) for field in fields), (value, fields)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*PROCESS, "env"), {f"A{i}": "" for i in range(MAX_VARIABLES + 1)}),
        ((*PROCESS, "mounts"), [{"source": "/a", "target": f"/b{i}"} for i in range(MAX_MOUNTS + 1)]),
        (("firewall",), {"clients": ["10.0.0.0/8"] * (MAX_NETWORKS + 1), "monitors": []}),
        ((*PROCESS, "argv"), ["vllm", *["x" * 100_000] * 21]),
        ((*PROCESS, "binds"), [{"name": "http", "port": 1, "count": 1}] * 5_000),
        ((*PROCESS, "binds"), [{"name": "http", "port": 1, "count": 900_000}] * 3),
    ],
    ids=["variables", "mounts", "networks", "bytes", "binds", "ports"],
)  # fmt: skip
def test_a_count_beyond_its_limit_is_refused(path: Path_, value: object) -> None:
    fields = refused_fields(put(a_document(), path, value))
    assert any(field.startswith(str(path[0])) for field in fields)


def test_what_is_told_has_an_end() -> None:
    env = {f"A {i}": "" for i in range(MAX_TOLD * 2)}
    assert len(refused_fields(put(a_document(), (*PROCESS, "env"), env))) == MAX_TOLD


def test_every_stack_of_the_project_fits() -> None:
    names = [p for folder in SEARCHED for p in folder.glob("*.yaml") if "Pulumi" not in p.name]
    for path in names:
        try:
            plan = compile_file(str(path), catalog=CATALOG).plan
        except InfraError:
            continue
        assert misfits(plan) == ()


def test_a_stack_is_refused_at_the_line_that_says_it(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    stack = "extends: h200-tp8\nengine:\n  image: --privileged\nweights:\n  path: /etc/..\n"
    path.write_text(stack + f'defaults:\n  env:\n    A: "{"x" * 131_072}"\n')
    with pytest.raises(ProblemsFound) as caught:
        compile_file(str(path), catalog=CATALOG)
    found = {(p.rule, p.file, p.line, p.field) for p in caught.value.problems}
    assert found >= {
        ("plan-value", str(path), 3, "engine.image"),
        ("plan-value", str(path), 5, "weights.path"),
        ("plan-value", str(path), 8, "defaults.env.A"),
    }


hostile = st.one_of(
    st.text(max_size=40),
    st.text(
        st.sampled_from("a1_-/.: =;$`'\"\\\n\t\0\x1b%#*&|<>(){}[]~,@\u2028\ud800"), max_size=12
    ),
    st.sampled_from(
        [SHELL, NEWLINE, ESCAPE, "-x", "/", "$(id)", "a'b", "..", "%i", "", "x" * 131_072]
    ),
)


def _places(value: object, path: Path_ = ()) -> Iterator[Path_]:
    """Every text of a document, and every name of a variable."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, each in value.items():
            if path and path[-1] in ("env", "env_prepend", "secrets"):
                yield (*path, key, NAME)
            yield from _places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _places(each, (*path, index))


def _replaced(document: Document, path: Path_, text: str) -> Document:
    if path[-1] != NAME:
        return put(document, path, text)
    row: Any = document
    for part in path[:-2]:
        row = row[part]
    row[text] = row.pop(path[-2])
    return document


# Of the processes, the first: the others have the same fields.
PLACES = [
    (stack, path)
    for stack in ("h200-tp8", "a3-2p1d")
    for path in _places(a_document(stack))
    if path[:2] == PROCESS or path[0] != "processes"
]


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    place=st.sampled_from(PLACES),
    text=hostile,
)
def test_one_hostile_text_is_refused_or_read_back_as_it_was_meant(
    place: tuple[str, Path_], text: str, tmp_path: Path
) -> None:
    stack, path = place
    try:
        plan = parse_plan(_replaced(a_document(stack), path, text), FILE)
        if never_made(plan, FILE, CATALOG):
            return
        states = plan_states(plan, CATALOG)
    except InfraError as error:
        told = [each.where for each in error.each()]
    else:
        assert_read_back(plan, states, tmp_path)
        return
    assert all(told)


def assert_read_back(plan: Plan, states: Mapping[str, HostState], folder: Path) -> None:
    """A shell, docker and systemd take the files of the first process for what the plan says."""
    first = plan.processes[0]
    files = {i.target: str(i.details.get("content")) for i in states[first.host].of_groups("files")}
    launch = next(text for path, text in files.items() if path.endswith("engine-0/launch"))
    environment = next(t for path, t in files.items() if path.endswith("engine-0/environment"))
    assert_shell_reads(launch)
    odd = dict(_odd_in(launch))
    told = {**dict(first.env), **cache_variables(plan, first, CATALOG)}
    assert {**_plain_in(environment), **odd} == told
    assert_systemd_reads(environment, folder)
    assert_ends_with(launch, plan)


def assert_shell_reads(script: str) -> None:
    done = subprocess.run(["sh", "-n"], input=script.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def _plain_in(environment: str) -> dict[str, str]:
    """As docker reads it: line by line, up to the first `=`."""
    lines = environment.removesuffix("\n").split("\n")
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def _odd_in(launch: str) -> Iterator[tuple[str, str]]:
    words = _words(launch)
    for option, value in itertools.pairwise(words):
        if option == "--env":
            name, _, text = value.partition("=")
            yield name, text


def assert_ends_with(launch: str, plan: Plan) -> None:
    """The image stands where a runtime looks for one, and behind it what the process is given."""
    words, process = _words(launch), plan.processes[0]
    at = words.index(plan.engine.image.partition("@")[0] or "")
    rest = words[at + 1 :]
    assert (
        list(process.argv)[-len(rest) :] == rest or list(process.argv) == rest[-len(process.argv) :]
    )


def _words(launch: str) -> list[str]:
    """The words of the command that the script becomes."""
    command = launch[launch.index("exec docker run") :] if "exec docker run" in launch else launch
    return shlex.split(command.replace("\\\n", " "))


def assert_systemd_reads(environment: str, folder: Path) -> None:
    """systemd takes each line for the same name and value; `$` is not compared: this reader alone expands it."""
    if not READER.exists():
        return
    (folder / "environment.d").mkdir(exist_ok=True)
    lines = [line for line in environment.split("\n") if line and "$" not in line]
    (folder / "environment.d" / "x.conf").write_text("\n".join([*lines, ""]), encoding="utf-8")
    said = subprocess.run(
        [str(READER)],
        env={"XDG_CONFIG_HOME": str(folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    ).stdout.decode()
    wanted = _plain_in("\n".join([*lines, ""]))
    read = dict(line.split("=", 1) for line in _joined(said))
    assert {name: _unquoted(read[name]) for name in wanted if wanted[name]} == {
        name: value for name, value in wanted.items() if value
    }


def _joined(said: str) -> list[str]:
    return [line for line in said.split("\n") if re.match(r"\w+=", line)]


def _unquoted(text: str) -> str:
    """What a shell makes of it, as systemd escapes for one: bare, in `"…"`, or in `$'…'` with its tabs."""
    if not text.startswith(('"', "$'")):
        return text
    inner = text[1:-1] if text.startswith('"') else text[2:-1]
    return re.sub(r"\\(.)", lambda match: "\t" if match[1] == "t" else match[1], inner)


def test_the_renderer_refuses_again_what_the_gate_should_have_stopped() -> None:
    plan = compile_file("h200-tp8", catalog=CATALOG).plan
    first = plan.processes[0]
    for edited in (
        dataclasses.replace(first, env={"A=1; id; B": "x"}),
        dataclasses.replace(first, env={"A": "a\0b"}),
        dataclasses.replace(first, env_prepend={"LD_PRELOAD;id": "x"}),
        dataclasses.replace(first, argv=("-c", "id")),
        dataclasses.replace(first, id=f"{first.host}/0\nid"),
        dataclasses.replace(first, endpoint="http://x y:1"),
    ):
        with pytest.raises(InfraError) as caught:
            plan_states(dataclasses.replace(plan, processes=(edited,)), CATALOG)
        assert caught.value.where
        assert caught.value.fix
