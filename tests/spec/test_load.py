"""A stack file read: what is merged, and what each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import Problem, ProblemsFound
from infra.spec.edge import EdgeTls
from infra.spec.load import find_stack, load_stack, stack_names
from infra.spec.nearest import nearest

WHOLE = """\
checkpoint: kimi-k2.5-int4
accelerator: h200
engine: {name: vllm, version: 0.22.1}
platform: aws-ec2
roles:
  unified: {tensor_parallel: 8}
"""


def problems_of(name_or_path: str | Path, *sets: str) -> tuple[Problem, ...]:
    with pytest.raises(ProblemsFound) as caught:
        load_stack(str(name_or_path), sets)
    return caught.value.problems


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_an_unknown_stack_is_told_the_nearest_names() -> None:
    (problem,) = problems_of("gb200-2p1")
    assert problem.rule == "unknown-stack"
    assert "gb200-2p1" in problem.what
    assert "gb200-2p1d" in problem.fix


def test_a_file_that_is_not_there_is_told_by_its_name(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path / "gb200.yaml")
    assert problem.rule == "unknown-stack"
    assert str(tmp_path / "gb200.yaml") in problem.what


def test_pulumis_own_files_are_no_stacks() -> None:
    assert not any(name.startswith("Pulumi") for name in stack_names())
    with pytest.raises(ProblemsFound):
        find_stack("Pulumi.gb200-2p1d")


@pytest.mark.parametrize(
    ("line", "rule", "field", "what", "fix"),
    [
        ("prot: 8000", "unknown-key", "prot", "There is no field prot here", "port"),
        ("port: eighty", "wrong-type", "port", "'eighty' is not", "integer"),
        ("port: '8000'", "wrong-type", "port", "'8000' is not", "integer"),
        ("port: 80000", "wrong-unit", "port", "out of range", "in range"),
        ("runtime: dockerr", "unknown-value", "runtime", "'dockerr' is not one of", "docker"),
        ("placement: 1", "unknown-value", "placement", "is not one of", "dedicated"),
        (
            "defaults: {gpu_memory_utilization: 90}",
            "wrong-unit",
            "defaults.gpu_memory_utilization",
            "90",
            "range",
        ),
        (
            "defaults: {max_model_len: 32k}",
            "wrong-type",
            "defaults.max_model_len",
            "'32k'",
            "without unit",
        ),
        (
            "defaults: {replicas: 0}",
            "wrong-unit",
            "defaults.replicas",
            "0 is out of range",
            "in range",
        ),
        (
            "defaults: {tensor_paralel: 8}",
            "unknown-key",
            "defaults.tensor_paralel",
            "no field",
            "tensor_parallel",
        ),
        ("weights: {path: models}", "wrong-value", "weights.path", "'models'", "form"),
        (
            "draft: {checkpoint: kimi-k2.5-eagle3}",
            "missing-key",
            "draft.num_speculative_tokens",
            "missing",
            "Add",
        ),
        ("waive: [{rule: KV, reason: because}]", "wrong-value", "waive.0.rule", "'KV'", "form"),
        (
            "secrets: {hf_token: sk-123}",
            "wrong-type",
            "secrets.hf_token",
            "is not a reference",
            "env: NAME",
        ),
        (
            "secrets: {hf_token: {env: sk-123}}",
            "wrong-value",
            "secrets.hf_token.env",
            "The value",
            "env: NAME",
        ),
        (
            "edge: {name: haproxy, keys: {path: x}}",
            "wrong-type",
            "edge.keys",
            "not a reference",
            "file: PATH",
        ),
        (
            "edge: {name: haproxy, keys: {file: a, env: B}}",
            "wrong-type",
            "edge.keys",
            "not a reference",
            "env: NAME",
        ),
        (
            "edge: {name: haproxy, keys: [a]}",
            "wrong-type",
            "edge.keys",
            "not a reference",
            "file: PATH",
        ),
        (
            "edge: {name: haproxy, tls: {certificate: {file: a}, key: {env: sk-12}}}",
            "wrong-value",
            "edge.tls.key.env",
            "The value",
            "env: NAME",
        ),
        (
            "edge: {name: haproxy, tls: {certificate: {file: a}}}",
            "missing-key",
            "edge.tls.key",
            "missing",
            "key: {file: PATH}",
        ),
        (
            "edge: {name: haproxy, tls: off-ish}",
            "wrong-type",
            "edge.tls",
            "'off-ish' is neither none nor a map",
            "certificate and key",
        ),
        (
            "edge: {name: haproxy, port: 443}",
            "unknown-key",
            "edge.port",
            "no field port",
            "`port` stands at the top of the stack",
        ),
        (
            "TLS: none",
            "unknown-key",
            "TLS",
            "no field TLS",
            "`tls` stands in `edge`",
        ),
        (
            "certificate: {file: a}",
            "unknown-key",
            "certificate",
            "no field certificate",
            "stands in `edge.tls`",
        ),
        (
            "PORT: 1",
            "unknown-key",
            "PORT",
            "no field PORT",
            "Did you mean port",
        ),
        (
            "secrets: {vllm_api_key: {env: K}}",
            "unknown-key",
            "secrets.vllm_api_key",
            "no field vllm_api_key",
            "api_key",
        ),
        ("secrets: {hf_tokn: {env: K}}", "unknown-key", "secrets.hf_tokn", "no field", "hf_token"),
        ("tuning: {profile: 5}", "wrong-type", "tuning.profile", "5 is not text", "quotes"),
        (
            "tuning: {profile: x, enabl: []}",
            "unknown-key",
            "tuning.enabl",
            "no field enabl",
            "enable",
        ),
        ("ingress: {existing: 5}", "wrong-type", "ingress.existing", "5 is not text", "quotes"),
        ("waive: kv-role", "wrong-type", "waive", "'kv-role' is not a list", "[a, b]"),
        ("weights: 5", "wrong-type", "weights", "5 is not a map", "key: value"),
        ("summary: 0.22", "wrong-type", "summary", "0.22 is not text", '"0.22"'),
        (
            "defaults: {flags: {seed: [[1]]}}",
            "wrong-type",
            "defaults.flags.seed.0",
            "no plain value",
            "a number",
        ),
        ("ingress: public", "unknown-value", "ingress", "public", "none"),
    ],
)
def test_a_wrong_field_is_told_with_its_line(  # noqa: PLR0917 - a row of the table
    line: str, rule: str, field: str, what: str, fix: str, tmp_path: Path
) -> None:
    path = written(tmp_path, WHOLE + line + "\n")
    found = problems_of(path)
    problem = found[0]
    assert (problem.rule, problem.field) == (rule, field), [str(each) for each in found]
    assert problem.line == len(WHOLE.splitlines()) + 1
    assert problem.file == str(path)
    assert what in problem.what
    assert fix in problem.fix
    assert len({each.field for each in found}) == len(found) == 1, [str(each) for each in found]


def test_two_problems_are_told_together_by_line(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE.replace("aws-ec2", "azure") + "prot: 8000\nport: x\n")
    found = problems_of(path)
    assert [(problem.rule, problem.line) for problem in found] == [
        ("unknown-value", 4),
        ("unknown-key", 7),
        ("wrong-type", 8),
    ]


def test_a_line_inside_a_role_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE.replace("{tensor_parallel: 8}", "\n    tensor_parallel: eight"))
    (problem,) = problems_of(path)
    assert (problem.field, problem.line) == ("roles.unified.tensor_parallel", 7)


@pytest.mark.parametrize(
    "roles",
    [
        "{prefill: {}}",
        "{decode: {}}",
        "{unified: {}, decode: {}}",
        "{}",
        "{unified: {}, prefill: {}, decode: {}}",
    ],
)
def test_roles_are_unified_or_prefill_and_decode(roles: str, tmp_path: Path) -> None:
    head = WHOLE.partition("roles:")[0]
    (problem,) = problems_of(written(tmp_path, f"{head}roles: {roles}\n"))
    assert problem.field == "roles"
    assert "`unified` alone, or `prefill` and `decode` together" in problem.what


@pytest.mark.parametrize("missing", ["checkpoint", "engine", "platform"])
def test_a_missing_key_is_named(missing: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in WHOLE.splitlines() if not line.startswith(missing))
    (problem,) = problems_of(written(tmp_path, text))
    assert (problem.rule, problem.field) == ("missing-key", missing)


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, WHOLE + "accelerator: b200\n"))
    assert problem.rule == "duplicate-key"
    assert "first in line 2" in problem.what


def test_a_yaml_bomb_is_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    (problem,) = problems_of(written(tmp_path, "\n".join(rows)))
    assert problem.rule == "yaml-syntax"
    assert "repeated aliases" in problem.what


def test_an_alias_of_itself_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, "a: &a [*a]\n"))
    assert problem.rule == "yaml-syntax"


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, "a: " + "[" * 3000 + "]" * 3000))
    assert problem.rule == "yaml-syntax"


def test_a_file_of_megabytes_is_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, "# " + "x" * 1_100_000))
    assert "1100002 bytes" in problem.what


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1\nb: 2\n", 2),
        ("a: b: c\n", 1),
        ("\tport: 1\n", 1),
        ("a: !!python/object:os.system x\n", 1),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line(text: str, line: int, tmp_path: Path) -> None:
    (problem,) = problems_of(written(tmp_path, text))
    assert problem.rule == "yaml-syntax"
    assert problem.line == line


@pytest.mark.parametrize("text", ["- a\n- b\n", "42\n", "text\n"])
def test_a_file_that_is_no_map_is_refused(text: str, tmp_path: Path) -> None:
    found = problems_of(written(tmp_path, text))
    assert found[0].rule == "wrong-type"
    assert "not a map" in found[0].what


def test_an_empty_file_lacks_every_key(tmp_path: Path) -> None:
    assert {problem.rule for problem in problems_of(written(tmp_path, ""))} == {"missing-key"}


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00port")
    assert problems_of(path)[0].rule == "unreadable-file"


def test_maps_merge_and_lists_and_scalars_replace(tmp_path: Path) -> None:
    base = (
        WHOLE
        + "defaults: {features: [tools, vision], flags: {seed: 1, block-size: 64}}\nport: 8001\n"
    )
    written(tmp_path, base, "base.yaml")
    child = (
        "extends: base\ndefaults: {features: [reasoning], flags: {seed: 2}}\naccelerator: b200\n"
    )
    stack = load_stack(str(written(tmp_path, child)))
    assert stack.spec.defaults.features == ("reasoning",)
    assert stack.spec.defaults.flags == {"seed": 2, "block-size": 64}
    assert (stack.spec.accelerator, stack.spec.port) == ("b200", 8001)
    assert stack.place("defaults.flags.seed").file.endswith("mine.yaml")
    assert stack.place("defaults.flags.block-size").file.endswith("base.yaml")


@pytest.mark.parametrize(
    ("below", "top", "sets"),
    [
        ("{env: A}", "{file: key}", ()),
        ("{file: other}", "{file: key}", ()),
        ("{env: A}", "{env: null, file: key}", ()),
        ("{env: A}", None, ("secrets.api_key.file={}/key",)),
        ("{file: key}", "{env: A}", ("secrets.api_key.env=null", "secrets.api_key.file={}/key")),
    ],
)
def test_a_reference_to_a_secret_replaces_another_whole(
    below: str, top: str | None, sets: tuple[str, ...], tmp_path: Path
) -> None:
    edge = "edge: {{name: haproxy, keys: {0}, tls: {{certificate: {0}, key: {0}}}}}\n"
    also = f"secrets: {{hf_token: {{env: T}}, api_key: {below}}}\n{edge.format(below)}"
    written(tmp_path, f"extends: h200-tp8\n{also}", "base.yaml")
    again = "" if top is None else f"secrets: {{api_key: {top}}}\n{edge.format(top)}"
    path = written(tmp_path, f"extends: ./base.yaml\n{again}", "top.yaml")
    spec = load_stack(str(path), tuple(each.format(tmp_path) for each in sets)).spec
    key = {"file": str(tmp_path / "key")}
    assert {name: each.model_dump() for name, each in spec.secrets.items()} == {
        "hf_token": {"env": "T"},
        "api_key": key,
    }
    if top is not None and not sets:
        assert spec.edge is not None
        assert spec.edge.keys is not None
        assert isinstance(spec.edge.tls, EdgeTls)
        found = (spec.edge.keys, spec.edge.tls.certificate, spec.edge.tls.key)
        assert [each.model_dump() for each in found] == [key] * 3


def test_null_removes_what_the_base_said(tmp_path: Path) -> None:
    written(
        tmp_path,
        WHOLE + "draft: {checkpoint: kimi-k2.5-eagle3, num_speculative_tokens: 3}\n",
        "base.yaml",
    )
    assert load_stack(str(written(tmp_path, "extends: base\ndraft: null\n"))).spec.draft is None


def test_a_shipped_stack_and_a_path_can_be_extended(tmp_path: Path) -> None:
    by_name = load_stack(str(written(tmp_path, "extends: h200-tp8\nport: 9000\n", "a.yaml")))
    by_path = load_stack(str(written(tmp_path, "extends: ./a.yaml\nsummary: mine\n", "b.yaml")))
    assert by_name.spec.port == by_path.spec.port == 9000
    assert by_path.spec.summary == "mine"


def test_a_cycle_of_extends_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "extends: b\n", "a.yaml")
    written(tmp_path, "extends: c\n", "b.yaml")
    written(tmp_path, "extends: a\n", "c.yaml")
    problem = next(p for p in problems_of(tmp_path / "a.yaml") if p.rule == "extends-cycle")
    assert "a → b → c → a" in problem.what
    assert problem.line == 1


def test_a_stack_that_extends_itself_is_refused(tmp_path: Path) -> None:
    found = problems_of(written(tmp_path, "extends: mine\n"))
    assert "extends-cycle" in {problem.rule for problem in found}


def test_own_mistakes_are_told_even_when_extends_fails(tmp_path: Path) -> None:
    found = problems_of(written(tmp_path, WHOLE + "extends: gb200-2p\nprot: 1\n"))
    assert [problem.rule for problem in found] == ["unknown-stack", "unknown-key"]
    assert "gb200-2p1d" in found[0].fix


def test_extends_that_is_no_text_is_refused(tmp_path: Path) -> None:
    found = problems_of(written(tmp_path, WHOLE + "extends: [a]\n"))
    assert found[0].field == "extends"


def test_a_mistake_in_the_base_stands_at_the_bases_line(tmp_path: Path) -> None:
    base = written(tmp_path, WHOLE + "prot: 1\n", "base.yaml")
    (problem,) = problems_of(written(tmp_path, "extends: base\n"))
    assert (problem.file, problem.line) == (str(base), 7)


def test_set_writes_over_a_field_of_any_depth() -> None:
    stack = load_stack(
        "gb200-2p1d", ("port=9000", "roles.decode.flags.enforce-eager=true", "router.policy=random")
    )
    assert stack.spec.port == 9000
    assert dict(stack.spec.roles.items())["decode"].flags["enforce-eager"] is True
    assert stack.spec.router is not None
    assert stack.spec.router.policy == "random"
    assert stack.place("port").file == "--set port=9000"


def test_set_takes_maps_and_null() -> None:
    stack = load_stack(
        "gb200-2p1d", ("waive=[{rule: vision-nixl, reason: text only}]", "weights.storage=null")
    )
    assert stack.spec.waive[0].rule == "vision-nixl"
    assert stack.spec.weights.storage is None


@pytest.mark.parametrize("word", ["port", "=1", "port.=x=1", ""])
def test_a_set_that_is_no_assignment_is_refused(word: str) -> None:
    assert problems_of("h200-tp8", word)


def test_a_wrong_set_is_told_as_the_operator_typed_it() -> None:
    (problem,) = problems_of("h200-tp8", "prot=8000")
    assert problem.file == "--set prot=8000"
    assert "port" in problem.fix


def test_set_cannot_put_a_map_through_a_scalar() -> None:
    found = problems_of("h200-tp8", "port.number=1")
    assert found[0].field.startswith("port")


def test_shipped_files_are_shown_relative_to_the_project() -> None:
    assert load_stack("gb200-2p1d").file == "stacks/gb200-2p1d.yaml"


def test_nearest_names() -> None:
    assert nearest("prot", ["port", "roles", "zzz"]).startswith("Did you mean port")
    assert nearest("prot", ["port"]) == "Did you mean port?"
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    "word",
    [
        "secrets.hf_token=sk-123",
        "secrets.hf_token.env=sk-123",
        "edge.keys=sk-123",
        "edge={name: haproxy, keys: sk-123}",
        "roles.unified.env.A=[sk-123]",
        "roles.unified.flags.api-key=[[sk-123]]",
    ],
)
def test_what_may_be_a_secret_is_not_repeated(word: str) -> None:
    with pytest.raises(ProblemsFound) as caught:
        load_stack("h200-tp8", (word,))
    assert [str(problem) for problem in caught.value.problems if "sk-123" in str(problem)] == []


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_file_that_nests_without_end_is_refused(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(opening * 240_000)
    with pytest.raises(ProblemsFound) as caught:
        load_stack(str(path))
    assert "levels deep" in caught.value.what


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("203.0.113.4/24", "names a host within its network. Write 203.0.113.0/24"),
        ("2001:db8::1/32", "names a host within its network. Write 2001:db8::/32"),
        ("everybody", "is no network. Write address/length"),
        ("10.0.0.0/33", "is no network. Write address/length"),
        ("fe80::%eth0/64", "is no network. Write address/length"),
        ("10.0.0.0/8 }", "is no network. Write address/length"),
    ],
)
def test_what_is_no_network_is_refused_with_the_one_that_is_meant(written: str, says: str) -> None:
    with pytest.raises(ProblemsFound) as refused:
        load_stack("gb200-2p1d", (f'monitors=["{written}"]',))
    (problem,) = refused.value.problems
    assert problem.field == "monitors.0"
    assert says in f"{problem.what} {problem.fix}"


def test_a_file_of_a_secret_lies_beside_the_file_that_says_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "base.yaml").write_text(
        "extends: h200-tp8\nsecrets: {api_key: {file: keys/api}, hf_token: {file: ../hub}}\n"
    )
    top = tmp_path / "top.yaml"
    top.write_text("extends: site/base.yaml\nsecrets: {hf_token: {file: token}}\n")
    sets = ("secrets.edge_keys.file=tmp/edge",)
    secrets = {
        name: each.model_dump() for name, each in load_stack(str(top), sets).spec.secrets.items()
    }
    assert secrets == {
        "api_key": {"file": str(tmp_path / "site" / "keys" / "api")},
        "edge_keys": {"file": "tmp/edge"},  # of --set: read from the working directory
        "hf_token": {"file": str(tmp_path / "token")},
    }
    base = load_stack(str(tmp_path / "site" / "base.yaml")).spec.secrets
    assert base.hf_token is not None
    assert base.hf_token.model_dump() == {"file": str(tmp_path / "hub")}


@pytest.mark.parametrize("path", ["/etc/keys/api", "~/api.key"])
def test_a_path_that_says_where_it_begins_is_left_as_it_is(path: str) -> None:
    api_key = load_stack("h200-tp8", (f"secrets.api_key.file={path}",)).spec.secrets.api_key
    assert api_key is not None
    assert api_key.model_dump() == {"file": path}


def test_a_missing_certificate_and_a_path_for_a_reference_are_one_problem_each(
    tmp_path: Path,
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("extends: h200-tp8\nedge: {name: haproxy, tls: {key: edge.key}}\n")
    with pytest.raises(ProblemsFound) as caught:
        load_stack(str(file))
    told = [(p.field, p.what, p.fix, p.line) for p in caught.value.problems]
    assert told == [
        (
            "edge.tls.certificate",
            "edge.tls.certificate is missing.",
            "Add `certificate: {file: PATH}`.",
            2,
        ),
        (
            "edge.tls.key",
            "edge.tls.key is not a reference.",
            "Write `{env: NAME}` or `{file: PATH}`; the value itself never stands in a stack.",
            2,
        ),
    ]
