"""Scripts followed without running them: what words become, what stays open, what is listed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.plan.foreign.script import read_script
from infra.plan.foreign.shell_words import ShellTroubleError
from infra.plan.foreign.source import Recipe


def follow(text: str, **values: str) -> Recipe:
    return read_script(text, values, {"vllm/vllm-openai": ("vllm", "serve")})


def words(text: str, **values: str) -> list[list[str]]:
    return [[word.text for word in launch.words] for launch in follow(text, **values).launches]


@pytest.mark.parametrize(
    ("script", "argument"),
    [
        ("P=8000\nvllm serve m/n --port $P", "8000"),
        ("vllm serve m/n --port ${P:-8001}", "8001"),
        ("P=\nvllm serve m/n --port ${P:-8001}", "8001"),
        ("P=1\nvllm serve m/n --port ${P:+8002}", "8002"),
        (': "${P:=8003}"\nvllm serve m/n --port $P', "8003"),
        ("P=8000\nvllm serve m/n --port $((P + 2 * 2))", "8004"),
        ("N=2\nvllm serve m/n --port $(( 8000 + ${I:-3} * N ))", "8006"),
        ("I=1\nvllm serve m/n --port $((8000+${I:-3}))", "8001"),
        ("vllm serve m/n --port '80'05", "8005"),
        ('export P=8006; vllm serve m/n --port "${P}"', "8006"),
        ("A=(8007 8)\nvllm serve m/n --port ${A[0]}", "8007"),
        ("vllm serve m/n --port \\\n  8008", "8008"),
        ("f() { vllm serve m/n --port $1; }\nf 8009", "8009"),
        ("P=1\nif [ $P = 1 ]; then Q=8010; else Q=9; fi\nvllm serve m/n --port $Q", "8010"),
        ("case x in y) Q=9;; x|z) Q=8011;; esac\nvllm serve m/n --port $Q", "8011"),
        ("eval 'P=8012'\nvllm serve m/n --port $P", "8012"),
        ("P=8013 # the port\nvllm serve m/n --port $P # here", "8013"),
        ("[[ a == b && c == c ]] || P=8014\nvllm serve m/n --port ${P}", "8014"),
    ],
)
def test_values_that_the_script_settles(script: str, argument: str) -> None:
    assert words(script) == [["vllm", "serve", "m/n", "--port", argument]]


@pytest.mark.parametrize(
    ("script", "argument"),
    [
        ("f() { shift; vllm serve m/n --port $1; }\nf 1 8000", "8000"),
        ("f() { shift 2; vllm serve m/n --port $*; }\nf 1 2 8001", "8001"),
        ("set -- 1 8002\nvllm serve m/n --port $2", "8002"),
        ("P=1\nf() { local P=2; Q=3; }\nf\nvllm serve m/n --port $P$Q", "13"),
        ("P=1\nf() { local P; P=2; }\nf\nvllm serve m/n --port $P", "1"),
        ("P=8003\n(P=1; exit 0)\nvllm serve m/n --port $P", "8003"),
        ("P=8004\nP=1 &\nvllm serve m/n --port $P", "8004"),
        ("P=1\nunset P\nvllm serve m/n --port ${P:-8005}", "8005"),
        ("P=8000\n((P++))\n(( P += 2 * 2 ))\nlet P+=1\nvllm serve m/n --port $P", "8006"),
        ("N=2\nif (( N > 1 )); then P=8007; fi\nvllm serve m/n --port $P", "8007"),
        ("N=0\nP=8008\n((N)) && P=1\nvllm serve m/n --port $P", "8008"),
        ("A=(8 9)\ni=1\nvllm serve m/n --port ${A[$i]}${A[i]}${A[-2]}${A[${i}]}", "9989"),
        ("A=(8 9)\nA[1]=7\nA[2]=6\nvllm serve m/n --port ${#A[@]}${A[1]}${A[2]}", "376"),
        ("declare -A M=([p]=8 [q]=9)\nM[r]=7\nk=q\nvllm serve m/n --port ${M[$k]}${M[r]}", "97"),
        ("declare -A M\nM[p]=8\nvllm serve m/n --port ${M[p]}${!M[@]}", "8p"),
        ("P=abc\nvllm serve m/n --port ${#P}", "3"),
    ],
)
def test_what_the_shells_own_commands_settle(script: str, argument: str) -> None:
    assert words(script) == [["vllm", "serve", "m/n", "--port", argument]]


@pytest.mark.parametrize(
    ("script", "ports"),
    [
        (
            "for i in 0 1 2 3; do [ $i = 1 ] && continue; [ $i = 3 ] && break; {} $i; done",
            ["0", "2"],
        ),
        ("A=(7 8)\nfor i in ${!A[@]}; do {} ${A[$i]}; done", ["7", "8"]),
        ("A=(7 8)\nfor ((i=0; i<${#A[@]}; i++)); do {} ${A[i]}; done", ["7", "8"]),
        ("for i in 0 1; do if [ $X = 1 ]; then break; fi; {} $i; done", ["0", "1"]),
    ],
)
def test_loops_end_where_the_script_ends_them(script: str, ports: list[str]) -> None:
    found = words(script.replace("{}", "vllm serve m/n --port"))
    assert [row[-1] for row in found] == ports


def test_what_only_a_run_could_say_of_the_shells_own_commands_is_told() -> None:
    recipe = follow("shift\nfor i in 0; do [ $X = 1 ] && break; done\nvllm serve m/n --port $1")
    assert [(row.line, row.text) for row in recipe.not_understood[:2]] == [
        (1, "shift"),
        (2, "break"),
    ]
    (launch,) = follow("A=(7 8)\nvllm serve m/n --port ${A[$N]}").launches
    assert launch.words[4].open_names


def test_variables_reach_a_process_as_the_shell_hands_them_on() -> None:
    before = "set -a\nA=1\nset +a\nB=2\nf() { vllm serve m/n; }\nC=3 f"
    script = f"{before}\nexport D=4\nunset D\n(export E=5)\nvllm serve m/n"
    first, second = follow(script).launches
    assert {name: word.text for name, word in first.env.items()} == {"A": "1", "C": "3"}
    assert {name: word.text for name, word in second.env.items()} == {"A": "1"}


def test_an_operators_arguments_move_with_shift() -> None:
    script = "R=$1; shift\nvllm serve m/n --port $1 --seed $R"
    assert words(script, **{"1": "5", "2": "8000"})[0][3:] == ["--port", "8000", "--seed", "5"]


def test_a_substitution_that_nothing_settles_is_one_word() -> None:
    recipe = follow("R=$(( $N * 2 ))\nvllm serve m/n --port $R --seed 1")
    (launch,) = recipe.launches
    assert [word.text for word in launch.words[3:]] == ["--port", "$(( $N * 2 ))", "--seed", "1"]
    assert launch.words[4].open_names


def test_an_array_becomes_words_at_the_lines_where_they_stand() -> None:
    recipe = follow('ARGS=(\n  --seed 1\n)\nARGS+=(--port 7)\nvllm serve m/n "${ARGS[@]}"')
    (launch,) = recipe.launches
    assert [(word.text, word.line) for word in launch.words[3:]] == [
        ("--seed", 2), ("1", 2), ("--port", 4), ("7", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "loop",
    [
        "for i in 0 1 2",
        "for i in {0..2}",
        "for i in $(seq 0 2)",
        "for ((i=0; i<3; i++))",
        "for i in `seq 0 2`",
    ],
)
def test_counted_loops_are_expanded(loop: str) -> None:
    found = words(f"{loop}; do vllm serve m/n --port $((8000+i)) & done")
    assert [row[-1] for row in found] == ["8000", "8001", "8002"]


def test_a_substitution_stays_open_and_nothing_is_run(tmp_path: object) -> None:
    (launch,) = follow(
        "vllm serve m/n --host $(touch /tmp/never-made-by-import) --port `id -u`"
    ).launches
    assert [word.open_names for word in launch.words if word.open_names] == [
        ("$(touch /tmp/never-made-by-import)",),
        ("`id -u`",),
    ]


def test_an_unset_variable_stays_open_unless_the_operator_sets_it() -> None:
    script = "vllm serve m/n --node-rank $NODE_RANK"
    assert follow(script).launches[0].words[-1].open_names == ("NODE_RANK",)
    assert words(script, NODE_RANK="3")[0][-1] == "3"
    assert words("NODE_RANK=9\n" + script, NODE_RANK="3")[0][-1] == "3"


def test_positional_parameters_are_the_operators_to_give() -> None:
    assert words("vllm serve m/n --port $2", **{"2": "7100"})[0][-1] == "7100"


def test_lines_inside_a_quoted_script_are_lines_of_the_file() -> None:
    text = 'docker run vllm/vllm-openai:v0.22.1 \\\n  bash -c "export A=1\n vllm serve m/n \\\n --port 3"'
    (launch,) = follow(text).launches
    assert [(word.text, word.line) for word in launch.words] == [
        ("vllm", 3), ("serve", 3), ("m/n", 3), ("--port", 4), ("3", 4),
    ]  # fmt: skip
    assert launch.env["A"].text == "1"


def test_wrappers_are_taken_off() -> None:
    text = "nohup numactl -N 0 -m 0 env A=1 vllm serve m/n > log 2>&1 &"
    (launch,) = follow(text).launches
    assert [word.text for word in launch.words] == ["vllm", "serve", "m/n"]
    assert launch.env["A"].text == "1"
    assert not launch.blocks


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("cat > run.sh <<EOF\nvllm serve inside\nEOF\nvllm serve m/n", 1, "here document"),
        ("until false; do vllm serve m/x; done\nvllm serve m/n", 1, "how often"),
        ("for f in *.txt $X; do vllm serve m/x; done\nvllm serve m/n", 1, "no plain counted loop"),
        ("if [ -f /x ]; then A=1; fi\nvllm serve m/n", 1, "which branch"),
        ("case $X in a) A=1;; esac\nvllm serve m/n", 1, "which branch"),
        ("source ./env.sh\nvllm serve m/n", 1, "not followed"),
        ("./helper.sh\nvllm serve m/n", 1, "not followed"),
        ("vllm serve m/n\necho 'open", 2, "not closed"),
    ],
)
def test_what_is_not_understood_is_listed_with_its_line(text: str, line: int, why: str) -> None:
    recipe = follow(text)
    assert len(recipe.launches) == 1
    assert [row for row in recipe.not_understood if row.line == line and why in row.why]


def test_commands_that_change_nothing_are_not_listed() -> None:
    assert not follow("set -e\nmkdir -p x && cd x\nsleep 5\nvllm serve m/n").not_understood


def test_both_branches_of_an_unknown_condition_are_shown() -> None:
    text = 'if [ "$MODE" = p ]; then vllm serve m/p; else vllm serve m/d; fi'
    assert [row[-1] for row in words(text)] == ["m/p", "m/d"]


def test_what_stands_behind_exit_is_not_started() -> None:
    assert words("vllm serve m/n &\nexit 0\nvllm serve m/o") == [["vllm", "serve", "m/n"]]


def test_blanks_that_a_shell_does_not_know_belong_to_words() -> None:
    assert words("vllm serve m/n --host\u202fx\xa0y")[0][3:] == ["--host\u202fx\xa0y"]


def test_a_blank_of_a_guide_is_no_redirection() -> None:
    (launch,) = follow("vllm serve m/n --master-addr <node0 ip> --port 1").launches
    assert launch.words[4].open_names == ("<node0 ip>",)


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "A=$A$A\n" * 60 + "vllm serve $A",
        "f() { f; f; }\n" + "f\n" * 9000,
        "for i in {0..200}; do for j in {0..200}; do true; done; done",
    ],
)
def test_a_script_that_does_too_much_is_refused(text: str) -> None:
    with pytest.raises(ShellTroubleError):
        follow(text)


@pytest.mark.parametrize(
    "text", ["(" * 500 + "x", "if " * 500, "${a:-" * 500, "$(" * 2000, "{ " * 900]
)
def test_deep_nesting_is_listed_and_not_followed(text: str) -> None:
    assert follow(text).not_understood


@given(
    st.text(alphabet="ab1 \u202f\xa0\x0c\x85 \t\n'\"\\$`(){}[]<>|&;=#!*?~-vllm serve", max_size=120)
)
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    recipe = follow(text)
    assert all(row.line >= 1 for row in recipe.not_understood)


@given(
    st.lists(
        st.text(alphabet="abc '\"\\$`{}|&;<>*\n", min_size=1, max_size=12), min_size=1, max_size=5
    )
)
@settings(max_examples=200, deadline=None)
def test_quoted_words_come_back_as_they_were(values: list[str]) -> None:
    quoted = " ".join("'" + value.replace("'", "'\\''") + "'" for value in values)
    assert words(f"vllm serve m/n {quoted}") == [["vllm", "serve", "m/n", *values]]
