"""Commands that matter to what stands behind them: wrappers, tests, counted loops, and what may be passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from infra.plan.foreign.shell_tree import Loop
from infra.plan.foreign.shell_values import MAX_EXPRESSION, Scope, Value, evaluate, expand_word
from infra.plan.foreign.source import Word

MAX_ITERATIONS = 256

# They start no server and change no setting of one.
HARMLESS = frozenset(
    {
        ":", "true", "false", "echo", "printf", "cat", "tee", "mkdir", "rm", "ls", "cp", "mv", "ln", "touch", "chmod",
        "chown", "cd", "pushd", "popd", "pwd", "sleep", "wait", "set", "shopt", "trap", "ulimit", "umask", "unset",
        "read", "getopts", "local", "date", "hostname", "whoami", "id", "which", "type", "command", "hash",
        "curl", "wget", "jq", "grep", "egrep", "sed", "awk", "sort", "head", "tail", "cut", "tr", "wc", "find", "xargs",
        "basename", "dirname", "realpath", "readlink", "seq", "pip", "pip3", "uv", "apt", "apt-get", "yum", "dnf",
        "git", "hf", "huggingface-cli", "modelscope", "nvidia-smi", "rocm-smi", "amd-smi", "npu-smi", "hccn_tool", "ip",
        "ifconfig", "ping", "nc", "ss", "netstat", "sysctl", "modprobe", "lsof", "ps", "pgrep", "nproc", "free", "df",
        "du", "mount", "umount", "tar", "unzip", "gzip", "break", "continue", "done", "dmesg", "uname", "env", "export",
    }
)  # fmt: skip

# Wrapper → words of its own that take a value; the rest of its options stand alone.
_WRAPPERS: Mapping[str, tuple[str, ...]] = {
    "exec": ("-a",),
    "nohup": (),
    "time": (),
    "sudo": ("-u", "-g"),
    "setsid": (),
    "command": (),
    "stdbuf": ("-i", "-o", "-e"),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "numactl": ("-N", "-m", "-C", "-i"),
    "taskset": ("-c", "-p"),
    "env": ("-u", "-C"),
    "timeout": ("-k", "-s"),
    "chrt": (),
}
_ONE_OPERAND = ("taskset", "timeout", "chrt")
_COUNTER = re.compile(
    r"\s*([A-Za-z_]\w*)\s*=\s*([^;]+?)\s*;\s*\1\s*(<=?)\s*([^;]+?)\s*;\s*(?:\1\s*\+\+|\+\+\s*\1|\1\s*\+=\s*1)\s*"
)
_RANGE = re.compile(r"\{(-?\d+)\.\.(-?\d+)\}")
_SEQUENCE = re.compile(r"(?:\$\(|`)\s*seq\s+([^()`]+?)\s*(?:\)|`)")
_SHOWN = 60
_NAME, _ANY_NAME = re.compile(r"([A-Za-z_]\w*)="), re.compile(r"([^=]+)=")


def strip_wrappers(words: list[Word], env: dict[str, Word]) -> tuple[list[Word], dict[str, Word]]:
    """The command that `nohup`, `numactl`, `env A=1` and the like start, with its environment."""
    while words and words[0].text.rpartition("/")[2] in _WRAPPERS:
        name = words[0].text.rpartition("/")[2]
        rest = words[1:]
        if name == "command" and rest and rest[0].text in ("-v", "-V"):
            return [], env  # it only asks where the program is
        while rest and rest[0].text.startswith("-"):
            takes = rest[0].text in _WRAPPERS[name]
            rest = rest[2:] if takes else rest[1:]
        if name in _ONE_OPERAND:
            rest = rest[1:]
        # env(1) takes any name, and so does the gate of plans, which refuses it
        pattern = _ANY_NAME if name == "env" else _NAME
        while rest and (match := pattern.match(rest[0].text)):
            env[match[1]] = Word(rest[0].raw[match.end() :], rest[0].line, rest[0].open_names)
            rest = rest[1:]
        words = rest
    return words, env


def decide_test(words: Sequence[Word]) -> bool | None:
    """Whether `[ … ]`, `[[ … ]]` or `test …` holds; None where only a run could say."""
    texts = [word.text for word in words]
    if not texts or texts[0] not in ("[", "[[", "test", "true", "false"):
        return None
    if texts[0] in ("true", "false"):
        return texts[0] == "true"
    inner = texts[1:-1] if texts[0] != "test" else texts[1:]
    if any(word.open_names for word in words):
        return None
    if inner[:1] == ["!"]:
        found = _decide(inner[1:])
        return None if found is None else not found
    return _decide(inner)


def joined(operator: str, *, before: bool | None, found: bool | None) -> bool | None:
    """What a chain of tests comes to with one more behind `&&` or `||`; None where only a run could say."""
    if operator not in ("&&", "||"):
        return found
    settles = operator == "||"
    if settles in (before, found):
        return settles
    return None if None in (before, found) else not settles


def _decide(texts: list[str]) -> bool | None:
    """A test of one or two operands."""
    if len(texts) == 1:
        return bool(texts[0])
    if len(texts) == 2:  # noqa: PLR2004 - an operator and its operand
        return {"-z": not texts[1], "-n": bool(texts[1])}.get(texts[0])
    if len(texts) != 3:  # noqa: PLR2004 - two operands and an operator
        return None
    left, operator, right = texts
    if operator in ("=", "==", "!="):
        is_pattern = any(char in right for char in "*?[")
        return None if is_pattern else (left == right) == (operator != "!=")
    return _compare(left, operator, right)


def _compare(left: str, operator: str, right: str) -> bool | None:
    """A test of two whole numbers."""
    if not (re.fullmatch(r"-?\d{1,12}", left) and re.fullmatch(r"-?\d{1,12}", right)):
        return None
    first, second = int(left), int(right)
    return {
        "-eq": first == second,
        "-ne": first != second,
        "-lt": first < second,
        "-le": first <= second,
        "-gt": first > second,
        "-ge": first >= second,
    }.get(operator)


def loop_values(loop: Loop, scope: Scope) -> tuple[str, list[Value]] | None:
    """The variable of a counted loop and what it takes in turn; None where only a run could say."""
    if loop.counter is not None:
        return _counted(loop.counter, scope)
    if not loop.words:
        return None
    values: list[Value] = []
    for raw in loop.words:
        for word in expand_word(raw, scope):
            numbers = _numbers(word.text, scope)
            if numbers is None and word.open_names:
                return None
            values += [Value(word.raw)] if numbers is None else [Value(str(n)) for n in numbers]
            if len(values) > MAX_ITERATIONS:
                return None
    return loop.name, values


def shown(words: Sequence[Word]) -> str:
    """The beginning of a command, for people."""
    text = " ".join(word.text for word in words[:8]).replace("\n", " ")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _counted(counter: str, scope: Scope) -> tuple[str, list[Value]] | None:
    match = _COUNTER.fullmatch(counter) if len(counter) <= MAX_EXPRESSION else None
    if match is None:
        return None
    first, last = evaluate(match[2], scope), evaluate(match[4], scope)
    if first is None or last is None:
        return None
    end = last + (match[3] == "<=")
    if end - first > MAX_ITERATIONS:
        return None
    return match[1], [Value(str(n)) for n in range(first, end)]


def _numbers(text: str, scope: Scope) -> range | None:
    """`{0..7}`, `$(seq 0 7)`."""
    if len(text) > MAX_EXPRESSION:
        return None
    if match := _RANGE.fullmatch(text):
        first, last = int(match[1]), int(match[2])
        step = 1 if last >= first else -1
        return range(first, last + step, step) if abs(last - first) <= MAX_ITERATIONS else None
    match = _SEQUENCE.fullmatch(text)
    if match is None:
        return None
    ends = [evaluate(word, scope) for word in _operands(match[1])]
    whole = [end for end in ends if end is not None]
    if len(whole) != len(ends) or not 1 <= len(whole) <= 3 or (len(whole) == 3 and not whole[1]):  # noqa: PLR2004
        return None
    first = whole[0] if len(whole) > 1 else 1
    step = whole[1] if len(whole) == 3 else 1  # noqa: PLR2004 - first, step, last
    last = whole[-1] + (1 if step > 0 else -1)
    return range(first, last, step) if abs(last - first) // abs(step) <= MAX_ITERATIONS else None


def _operands(text: str) -> list[str]:
    """`0 $((N-1))` as two."""
    found = re.findall(r"\$\(\(.*?\)\)|\"[^\"]*\"|\S+", text)
    return [word.strip('"').removeprefix("$((").removesuffix("))") for word in found]
