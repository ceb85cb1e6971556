"""Shell scripts and guides: `docker run`, `vllm serve`, `sglang.launch_server`, routers, and what stands around."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.engines.recognition import Program, recognise
from infra.plan.foreign.container_run import ContainerRun, read_container_run
from infra.plan.foreign.guide_blocks import Markup, shell_blocks
from infra.plan.foreign.shell import Shell
from infra.plan.foreign.shell_commands import HARMLESS
from infra.plan.foreign.shell_values import Held, Scope, Value, copy_scope
from infra.plan.foreign.source import (
    Launch,
    NodesAsked,
    NotUnderstood,
    Recipe,
    Started,
    Word,
    read_text,
)
from infra.spec.present import is_file
from infra.spec.work import Work

RUNTIMES = ("docker", "podman", "nerdctl")
_SBATCH_NODES = re.compile(r"#SBATCH\s+(?:-N\s*|--nodes[=\s])(\d{1,4})\b(?!-)")
# What starts commands on other hosts than the first of a job: without any, all that a batch script starts is there.
_ELSEWHERE = re.compile(
    r"(?<![\w-])(?:srun|ssh|pdsh|clush|mpirun|mpiexec|ray|parallel|scontrol)(?![\w-])"
)
_SBATCH_DEVICES = re.compile(
    r"#SBATCH\s+(?:--gpus-per-node[=\s]|--gres[=\s]gpu:)(?:[A-Za-z][\w.-]*:)?(\d{1,2})\b"
)
_ENDING = ("kill", "pkill", "killall")
_PACKAGE = re.compile(r"(vllm|sglang|vllm-ascend)(\[[\w,-]*\])?==")
_SHELLS = ("sh", "bash", "zsh", "")
_EXEC_VALUED = ("-e", "--env", "-u", "--user", "-w", "--workdir", "--env-file", "--detach-keys")
_WRAPPER_WORDS = 24
_OPTIONS = 16  # of a shell, before its script
_SSH_WORDS = 2  # ssh and a host
_STARTED = ("vllm", "sglang", "docker", "podman")
_WRAPPED = "taken for a wrapper of the script behind it, which is read once"
# What prints, writes or asks, and starts nothing of what stands behind it.
SILENT = HARMLESS - {"uv", "xargs", "env", "command"}

# Repository of an image → what it starts by itself.
EntryPoints = Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class ScriptReader:
    """Collects what a script starts.

    Args:
        entrypoints: of known images.
        folder: where files lie that `--env-file` may name; None when nothing is read beside the file.
        is_collection: whether a container that was started has nothing to do with what stands further down.
    """

    entrypoints: EntryPoints
    folder: Path | None = None
    launches: list[Launch] = field(default_factory=list)
    hints: list[Word] = field(default_factory=list)
    inside: ContainerRun | None = None
    is_collection: bool = False
    uses_ray: bool = False

    def handle(self, started: Started, shell: Shell) -> bool:
        """Whether a command is one that this reader knows; what it starts is collected."""
        name = started.words[0].text.rpartition("/")[2]
        if name in _ENDING:
            self.end_all()
            return True
        if name == "ray" or any("ray_" in word.text for word in started.words[:4]):
            self.uses_ray = True
        self._note_packages(started)
        if name in RUNTIMES:
            return self._container(name, started, shell)
        program = recognise([word.text for word in started.words])
        if program is None and name not in SILENT:
            started, program = _behind_wrapper(started, shell)
            if program is None and _script_behind_wrapper(started, shell):
                return True
        if program is not None:
            inside = self.inside
            env = {**(inside.env if inside else {}), **started.env}
            container = inside.container if inside else None
            found = Launch(
                words=started.words,
                env=env,
                prepended=started.prepended,
                container=container,
                blocks=started.blocks,
            )
            self.add(found, program)
            return True
        if any(word.text.endswith("launch_online_dp.py") for word in started.words[1:2]):
            why = (
                "it starts a script per rank: give that script, with `--set 1=…` for its arguments"
            )
            shell.note(started.words[0].line, "launch_online_dp.py", why)
            return True
        return False

    def add(self, launch: Launch, program: Program) -> None:
        """Collect one process; a router under the words that plans start it with."""
        if program.kind == "router":
            head = tuple(Word(text, launch.line) for text in program.canonical)
            launch = replace(launch, words=(*head, *launch.words[program.length :]))
        self.launches.append(launch)

    def end_all(self) -> None:
        """What was started before `kill`, or in another part of a guide, does not run beside what follows."""
        self.launches = [replace(launch, blocks=True) for launch in self.launches]

    def variables_in(self, word: Word) -> dict[str, Word] | None:
        """Variables of a file that lies in the recipe's own folder; no other is opened."""
        name = word.text.rpartition("/")[2]
        if self.folder is None or not name or not is_file(self.folder / name):
            return None
        found = {}
        for line in read_text(self.folder / name).splitlines():
            key, equals, value = line.partition("=")
            if equals and not key.startswith("#"):
                found[key.strip()] = Word(value, word.line)
        return found

    def _note_packages(self, started: Started) -> None:
        """`pip install vllm==0.22.1` names the release."""
        if "install" in [word.text for word in started.words[1:4]]:
            self.hints += [word for word in started.words if _PACKAGE.match(word.text)]

    def _container(self, runtime: str, started: Started, shell: Shell) -> bool:
        words = started.words[1:]
        if words and words[0].text == "container":
            words = words[1:]
        if not words or words[0].text not in ("run", "exec"):
            return True
        if words[0].text == "exec":
            return self._exec(words[1:], started, shell)
        run = read_container_run("docker" if runtime == "nerdctl" else runtime, words[1:])
        shell.not_understood += run.not_understood
        self.start_container(run, started, shell)
        return True

    def start_container(self, run: ContainerRun, started: Started, shell: Shell) -> None:
        """Collect what a container runs, whoever starts it."""
        if run.container.image is not None:
            self.hints.append(run.container.image)
        run.container = replace(run.container, outside=started.env)
        self._environment(run, started, shell)
        self._inside(run, self._whole_command(run), started, shell)

    def _inside(
        self, run: ContainerRun, command: tuple[Word, ...], started: Started, shell: Shell
    ) -> None:
        """What runs in a container; a bare shell is where the rest of the script goes on."""
        name = command[0].text.rpartition("/")[2] if command else ""
        before = self.inside
        script = _script_of(command)
        if script is not None:
            self.inside = run
            index = command.index(script)
            shell.follow_inside(script, command[index + 1 :], run.env)
            self.inside = before
            return
        if name in _SHELLS:
            self.inside = None if self.is_collection else run
            return
        program = recognise([word.text for word in command])
        if program is None:
            text = " ".join(word.text for word in command[:3])
            shell.note(command[0].line, text, "the container runs no engine or router")
            return
        blocks = started.blocks and not run.is_detached
        found = Launch(words=command, env=run.env, container=run.container, blocks=blocks)
        self.add(found, program)

    def _exec(self, words: tuple[Word, ...], started: Started, shell: Shell) -> bool:
        """`docker exec [options] NAME command`: inside what was run before."""
        while words and words[0].text.startswith("-"):
            words = words[2:] if words[0].text in _EXEC_VALUED else words[1:]
        command = words[1:]
        script = _script_of(command)
        env = dict(self.inside.env) if self.inside else {}
        if script is not None:
            shell.follow_inside(script, command[command.index(script) + 1 :], env)
        elif command and recognise([word.text for word in command]):
            return self.handle(replace(started, words=command, env=env), shell)
        return True

    def _whole_command(self, run: ContainerRun) -> tuple[Word, ...]:
        """What the container runs: its entry point, and the words behind the image."""
        if run.entrypoint is not None:  # an empty one takes the image's away
            return (run.entrypoint, *run.command) if run.entrypoint.text else run.command
        image = run.container.image
        known = self.entrypoints.get(repository_of(image.text), ()) if image else ()
        is_own = recognise([word.text for word in run.command]) is not None
        first = run.command[0].text.rpartition("/")[2] if run.command else ""
        if not known or image is None or is_own or first in _SHELLS:
            return run.command
        line = run.command[0].line if run.command else image.line
        return (*(Word(text, line) for text in known), *run.command)

    def _environment(self, run: ContainerRun, started: Started, shell: Shell) -> None:
        for word in run.from_outside:
            value = started.env.get(word.text)
            held = shell.scope.look_up(word.text)
            if value is None and isinstance(held, Value):
                value = Word(held.raw, word.line, held.open_names)
            run.env[word.text] = value or Word(f"${word.text}", word.line, (word.text,))
        for word in run.env_files:
            found = self.variables_in(word)
            if found is None:
                why = "the file of variables is not beside this one"
                shell.note(word.line, f"variables of {word.text}", why)
            else:
                run.env = {**found, **run.env}


def _behind_wrapper(started: Started, shell: Shell) -> tuple[Started, Program | None]:
    """A command whose later words start an engine: `uv run vllm serve …`, `./with-libraries.sh python -m …`.

    Its first words are taken for a wrapper, which is said; a text in quotation marks is one word, and stays one.
    """
    texts = [word.text for word in started.words]
    for index in range(1, min(len(texts), _WRAPPER_WORDS)):
        program = recognise(texts[index:])
        if program is not None:
            first = started.words[0]
            shell.note(
                first.line, " ".join(texts[:index]), "taken for a wrapper of what follows it"
            )
            return replace(started, words=started.words[index:]), program
    return started, None


def _script_behind_wrapper(started: Started, shell: Shell) -> bool:
    """`srun … bash -c SCRIPT`, `ssh HOST SCRIPT`: the script is followed, once, however often it is started."""
    words = started.words
    first = words[0].text.rpartition("/")[2]
    at = next((i for i, word in enumerate(words) if i and _script_of(words[i:]) is not None), None)
    script = None if at is None else _script_of(words[at:])
    if script is None and first == "ssh" and len(words) > _SSH_WORDS and " " in words[-1].text:
        script = words[-1]  # ssh hands its last word to a shell
    if script is None or not any(name in script.text for name in _STARTED):
        return False
    before = words[: words.index(script)]
    shell.note(words[0].line, " ".join(word.text for word in before), _WRAPPED)
    shell.follow_inside(script, words[words.index(script) + 1 :], started.env)
    return True


def read_script(
    text: str,
    settings: Mapping[str, str],
    entrypoints: EntryPoints,
    folder: Path | None = None,
    work: Work | None = None,
) -> Recipe:
    """What a shell script would start.

    Args:
        text: the script.
        settings: variables that the operator gives.
        entrypoints: of known images.
        folder: where `--env-file` may find files.
        work: the budget of the file; a whole one when it is not given.

    Raises:
        TooMuchWorkError: it does too much to be followed.
    """
    reader = ScriptReader(entrypoints, folder)
    shell = Shell(scope_of(settings, work or Work()), reader.handle)
    shell.follow(text)
    recipe = _recipe("shell script", reader, shell.not_understood)
    return replace(recipe, nodes_asked=tuple(_nodes_asked(text)))


def _nodes_asked(text: str) -> Iterator[NodesAsked]:
    """What a batch script asks Slurm for: `#SBATCH --nodes=4`, `--gpus-per-node=8`, `--gres=gpu:8` (sbatch(1))."""
    asked, devices, at = 0, None, 0
    for line, words in enumerate(text.splitlines(), start=1):
        if (nodes := _SBATCH_NODES.match(words)) is not None:
            asked, at = int(nodes[1]), line
        elif (each := _SBATCH_DEVICES.match(words)) is not None:
            devices, at = int(each[1]), at or line
    if at:
        used = None if _ELSEWHERE.search(text) else 1
        yield NodesAsked(by="sbatch", line=at, asked=asked or 1, used=used, devices=devices)


def read_guide(
    text: str,
    settings: Mapping[str, str],
    entrypoints: EntryPoints,
    markup: Markup = "Markdown",
    work: Work | None = None,
) -> Recipe:
    """What the shell blocks of a page would start, in their order; see `read_script`.

    What a block sets that starts something is its own. One that only sets something is for those behind it, up to the
    end of the section that its own section is a part of.
    """
    reader = ScriptReader(entrypoints, is_collection=True)
    shell = Shell(scope_of(settings, work or Work()), reader.handle)
    before: list[tuple[int, Scope]] = []
    for block in shell_blocks(text, markup):
        while before and block.above < before[-1][0]:
            shell.scope = before.pop()[1]
        kept, count = copy_scope(shell.scope), len(reader.launches)
        shell.follow(block.text, block.line)
        reader.end_all()
        if len(reader.launches) > count:
            shell.scope = kept
        else:
            before.append((block.level, kept))
    return _recipe(f"{markup} page", reader, shell.not_understood)


def scope_of(settings: Mapping[str, str], work: Work) -> Scope:
    """Variables as the operator gives them; digits are a script's own arguments."""
    values: dict[str, Held] = {name: Value(value) for name, value in settings.items()}
    return Scope(values=values, fixed=dict(settings), work=work)


def repository_of(image: str) -> str:
    """An image's name without its tag and digest."""
    name = image.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}"


def _recipe(name: str, reader: ScriptReader, not_understood: list[NotUnderstood]) -> Recipe:
    return Recipe(
        format=name,
        launches=tuple(reader.launches),
        not_understood=tuple(not_understood),
        hints=tuple(reader.hints),
        is_collection=reader.is_collection,
        uses_ray=reader.uses_ray,
    )


def _script_of(command: tuple[Word, ...]) -> Word | None:
    """The script of `bash -c SCRIPT`."""
    if not command or command[0].text.rpartition("/")[2] not in _SHELLS[:-1]:
        return None
    for index, word in enumerate(command[1:_OPTIONS], start=1):
        if re.fullmatch(r"-[a-z]*c", word.text) and index + 1 < len(command):
            return command[index + 1]
    return None
