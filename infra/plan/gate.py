"""The gate that every plan passes, whoever made it: each field has a grammar, each count a limit.

What does not fit is found here once, and placed by who holds the file: the compiler, the reader of plan documents, the
importer of foreign files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from infra.engines.credentials import TAKEN_SECRETS
from infra.errors import StackError
from infra.plan import grammar
from infra.plan.grammar import field_of, shown
from infra.plan.process import Plan, PlanHost, Process
from infra.spec.section import looks_like_secret
from infra.spec.stack_files import STACK_NAME

# All arguments and variables of a process, in characters: execve(2) takes a quarter of the stack, 2 MiB of 8.
MAX_COMMAND = 2_000_000
MAX_HOSTS, MAX_PROCESSES, MAX_DEVICES = 16_384, 131_072, 1_024
MAX_MOUNTS, MAX_VARIABLES, MAX_WORDS, MAX_ENTRYPOINT, MAX_SECRETS = 256, 2_048, 262_144, 64, 64
MAX_NETWORKS = 4_096
MAX_BINDS, MAX_CONNECTS, MAX_RANKS, MAX_PORTS = 4_096, 262_144, 131_072, 500_000
MAX_PORT, MAX_COUNT = 10_000_000, 65_536
MAX_TOLD = 50

Path = tuple[str | int, ...]


class Misfit(NamedTuple):
    """A field of a plan that does not fit.

    Args:
        path: where it stands in the plan's document: `("processes", 3, "env", "A B")`.
        what: the fact; foreign text in it is shown, never passed on.
        fix: what fits.
    """

    path: Path
    what: str
    fix: str

    @property
    def field(self) -> str:
        """The path with dots between its parts."""
        return field_of(self.path)


def misfits(plan: Plan) -> tuple[Misfit, ...]:
    """What of a plan does not fit, in the order of its document; the first `MAX_TOLD` of it."""
    return tuple(islice(_misfits(plan), MAX_TOLD))


def refuse_process(process: Process) -> None:
    """Nothing, for a process that fits: the renderer asks again before it writes what a shell will read.

    Raises:
        StackError: the plan has not passed the gate.
    """
    wrong = next(_ProcessReader().read((), process), None)
    if wrong is not None:
        raise StackError(f"{shown(process.id)} {wrong.field}", wrong.what, wrong.fix)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a text of some field must be."""

    is_fit: Callable[[str], object]
    fix: str
    what: str = "does not fit here"


_NAME = _Kind(
    grammar.ID.fullmatch, "Use letters, digits, `.`, `_`, `+` and `-`, a letter or digit first."
)
_IDENTITY = _Kind(
    lambda text: not text or grammar.ID.fullmatch(text), f"{_NAME.fix[:-1]}, or nothing."
)
_TEXT = _Kind(grammar.is_line, "Use one line without control characters.")
_OF_HOST = _Kind(grammar.HOST.fullmatch, "Use letters, digits, `.`, `_` and `-`, at most 253.")
_OF_ROLE = _Kind(grammar.ROLE.fullmatch, "Use lower-case letters, digits and `-`.")
_ADDRESS = _Kind(
    grammar.is_address, "Use an IP address, or a host name of letters, digits, `.`, `_` and `-`."
)
_VARIABLE = _Kind(
    grammar.is_variable, "Use letters, digits and `_`, no digit first.", "is no name of a variable"
)
_SECRET = _Kind(
    TAKEN_SECRETS.__contains__,
    f"Use {', '.join(TAKEN_SECRETS)}.",
    "is no secret that a program takes",
)
_PATH = _Kind(
    grammar.is_normal_path, "Use an absolute path without `..`, `.`, `//` or control characters."
)
_SOURCE = _Kind(grammar.is_source, f"{_PATH.fix[:-1]}, or volume:NAME in a cluster.")
_IMAGE = _Kind(
    lambda text: not text or grammar.is_image(text),
    "Write [REGISTRY/]NAME[:TAG][@DIGEST], the name in lower case.",
)
_STACK = _Kind(
    STACK_NAME.fullmatch,
    "Use letters, digits, `.`, `_` and `-`, a letter or digit first, at most 64.",
    "becomes part of paths and units on the hosts",
)
_OF_GROUP = _Kind(grammar.GROUP.fullmatch, "Write ROLE/NUMBER.")
_OF_PROCESS = _Kind(grammar.PROCESS.fullmatch, "Write HOST/INDEX.")
_WORD = _Kind(
    grammar.is_word,
    f"Use fewer than {grammar.MAX_WORD_BYTES} bytes, without a zero byte or half a character.",
    "is nothing that a command line can hold",
)
_PROGRAM = _Kind(grammar.is_program, "A program has a name, which does not begin with `-`.")
_ENDPOINT = _Kind(
    grammar.is_endpoint, "Write http://ADDRESS:PORT.", "is no address that serves HTTP"
)


def _text(path: Path, value: str, kind: _Kind) -> Iterator[Misfit]:
    if not kind.is_fit(value):
        yield Misfit(path, f"{shown(value)} {kind.what}.", kind.fix)


def _number(path: Path, value: int, highest: int) -> Iterator[Misfit]:
    if not -highest <= value <= highest:
        yield Misfit(path, f"The number is beyond {highest}.", "Write a smaller one.")


def _count(path: Path, values: Sized, most: int) -> Iterator[Misfit]:
    if len(values) > most:
        yield Misfit(path, f"There are {len(values)}, and {most} is the most.", "Write fewer.")


def _misfits(plan: Plan) -> Iterator[Misfit]:
    yield from _head(plan)
    yield from _count(("hosts",), plan.hosts, MAX_HOSTS)
    for index, host in enumerate(plan.hosts[:MAX_HOSTS]):
        yield from _host(("hosts", index), host)
    yield from _count(("processes",), plan.processes, MAX_PROCESSES)
    reader = _ProcessReader()
    for index, process in enumerate(plan.processes[:MAX_PROCESSES]):
        yield from reader.read(("processes", index), process)
    if reader.num_ports > MAX_PORTS:
        what = f"Its processes listen on more than {MAX_PORTS} ports."
        yield Misfit(("processes",), what, "Write fewer.")


def _head(plan: Plan) -> Iterator[Misfit]:
    texts: tuple[tuple[Path, str, _Kind], ...] = (
        (("stack",), plan.stack, _STACK),
        (
            ("hash",),
            plan.hash,
            _Kind(grammar.HASH.fullmatch, "Write the SHA-256 as 64 hexadecimal digits."),
        ),
        (("model",), plan.model, _TEXT),
        (("checkpoint",), plan.checkpoint, _IDENTITY),
        (("tuning",), plan.tuning, _NAME),
        (("engine", "version"), plan.engine.version, _NAME),
        (("engine", "image"), plan.engine.image, _IMAGE),
        (("weights", "path"), plan.weights_path, _PATH),
    )
    for path, value, kind in texts:
        yield from _text(path, value, kind)
    yield from _count(("engine", "entrypoint"), plan.engine.entrypoint, MAX_ENTRYPOINT)
    for index, word in enumerate(plan.engine.entrypoint[:MAX_ENTRYPOINT]):
        yield from _text(("engine", "entrypoint", index), word, _WORD if index else _PROGRAM)
    if plan.firewall is not None:
        yield from _count(("firewall", "clients"), plan.firewall.clients, MAX_NETWORKS)
        yield from _count(("firewall", "monitors"), plan.firewall.monitors, MAX_NETWORKS)
    yield from _count(("secrets",), plan.secrets, MAX_SECRETS)
    for name, reference in plan.secrets.items():
        yield from _text(("secrets", name), name, _SECRET)
        if set(reference) not in ({"env"}, {"file"}):
            fix = "Write {env: NAME} or {file: PATH}."
            yield Misfit(("secrets", name), "It says nowhere, or twice, where to read it.", fix)
        for way, place in reference.items():
            if looks_like_secret(place):
                what = "It has the shape of a secret itself, which is not shown here."
                yield Misfit(("secrets", name, way), what, "Write {env: NAME} or {file: PATH}.")
            else:
                yield from _text(
                    ("secrets", name, way), place, _VARIABLE if way == "env" else _TEXT
                )


def _host(path: Path, host: PlanHost) -> Iterator[Misfit]:
    yield from _text((*path, "name"), host.name, _OF_HOST)
    for role in host.roles[:MAX_DEVICES]:
        yield from _text((*path, "roles"), role, _OF_ROLE)
    yield from _count((*path, "roles"), host.roles, MAX_DEVICES)
    yield from _text((*path, "address"), host.address, _ADDRESS)
    yield from _text((*path, "accelerator"), host.accelerator, _NAME)
    yield from _number((*path, "num_devices"), host.num_devices, MAX_DEVICES)


@dataclass(slots=True)
class _ProcessReader:
    """Reads the processes of one plan. Ranks share nearly all words: each is looked at once.

    Args:
        words: arguments and values that fit.
        names: names of variables that fit.
        binds: names of what is listened on that fit.
        dialled: what is dialled that fits.
        longest: the longest of `words`, in characters.
        mounts: tuples of mounts that fit; the plan keeps them alive.
        num_ports: over all binds.
    """

    words: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    dialled: set[str] = field(default_factory=set)
    longest: int = 0
    mounts: set[int] = field(default_factory=set)
    num_ports: int = 0

    def read(self, path: Path, process: Process) -> Iterator[Misfit]:
        """What of one process does not fit."""
        if not grammar.PROCESS.fullmatch(process.id):
            yield from _text((*path, "id"), process.id, _OF_PROCESS)
        if not grammar.GROUP.fullmatch(process.group):
            yield from _text((*path, "group"), process.group, _OF_GROUP)
        if not grammar.HOST.fullmatch(process.host):
            yield from _text((*path, "host"), process.host, _OF_HOST)
        if not grammar.ROLE.fullmatch(process.role):
            yield from _text((*path, "role"), process.role, _OF_ROLE)
        if process.endpoint is not None and not grammar.is_endpoint(process.endpoint):
            yield from _text((*path, "endpoint"), process.endpoint, _ENDPOINT)
        yield from self._ports(path, process)
        yield from self._environment((*path, "env"), process.env)
        if process.env_prepend:
            yield from self._environment((*path, "env_prepend"), process.env_prepend)
        if process.mounts and id(process.mounts) not in self.mounts:
            yield from self._mounts(path, process)
        yield from self._command(path, process)

    def _ports(self, path: Path, process: Process) -> Iterator[Misfit]:
        """Ranks, devices, and what is listened on and dialled."""
        if not -MAX_RANKS <= process.replica <= MAX_RANKS:
            yield from _number((*path, "replica"), process.replica, MAX_RANKS)
        for name, numbers, most in (
            ("dp_ranks", process.dp_ranks, MAX_RANKS),
            ("devices", process.devices, MAX_DEVICES),
        ):
            if len(numbers) > most or (
                numbers and not -most <= min(numbers) <= max(numbers) <= most
            ):
                what = f"There are more than {most} of them, or a number is beyond it."
                yield Misfit((*path, name), what, "Write smaller numbers, and fewer.")
        yield from _count((*path, "binds"), process.binds, MAX_BINDS)
        for index, bind in enumerate(process.binds[:MAX_BINDS]):
            self.num_ports += bind.count
            if (
                -MAX_PORT <= bind.port <= MAX_PORT
                and bind.count <= MAX_COUNT
                and bind.name in self.binds
            ):
                continue
            at = (*path, "binds", index)
            if grammar.BIND.fullmatch(bind.name):
                self.binds.add(bind.name)
            else:
                yield from _text((*at, "name"), bind.name, _OF_ROLE)
            yield from _number((*at, "port"), bind.port, MAX_PORT)
            yield from _number((*at, "count"), bind.count, MAX_COUNT)
        yield from _count((*path, "connects"), process.connects, MAX_CONNECTS)
        for index, dial in enumerate(process.connects[:MAX_CONNECTS]):
            is_known = dial.name in self.binds and dial.to in self.dialled
            if is_known and -MAX_PORT <= dial.port <= MAX_PORT:
                continue
            if grammar.BIND.fullmatch(dial.name) and grammar.is_line(dial.to):
                self.binds.add(dial.name)
                self.dialled.add(dial.to)
                yield from _number((*path, "connects", index, "port"), dial.port, MAX_PORT)
            else:
                what = (
                    f"{shown(dial.to)}, port {dial.port}, cannot be dialled as {shown(dial.name)}."
                )
                fix = "Name a process, or ADDRESS:PORT."
                yield Misfit((*path, "connects", index), what, fix)

    def _environment(self, path: Path, env: Mapping[str, str]) -> Iterator[Misfit]:
        if not self.names.issuperset(env):
            yield from _count(path, env, MAX_VARIABLES)
            for name in env:
                if grammar.is_variable(name):
                    self.names.add(name)
                else:
                    yield from _text((*path, name), name, _VARIABLE)
        if not self.words.issuperset(env.values()):
            yield from self._words(path, env.items(), set(env.values()) - self.words)

    def _mounts(self, path: Path, process: Process) -> Iterator[Misfit]:
        yield from _count((*path, "mounts"), process.mounts, MAX_MOUNTS)
        for index, mount in enumerate(process.mounts[:MAX_MOUNTS]):
            yield from _text((*path, "mounts", index, "source"), mount.source, _SOURCE)
            yield from _text((*path, "mounts", index, "target"), mount.target, _PATH)
        self.mounts.add(id(process.mounts))

    def _command(self, path: Path, process: Process) -> Iterator[Misfit]:
        argv = process.argv
        if len(argv) > MAX_WORDS:
            yield from _count((*path, "argv"), argv, MAX_WORDS)
            return
        if not self.words.issuperset(argv):
            yield from self._words((*path, "argv"), enumerate(argv), set(argv) - self.words)
        if not (argv and grammar.is_program(argv[0])):
            yield from _text((*path, "argv", 0), "".join(argv[:1]), _PROGRAM)
        num_words = len(argv) + 2 * len(process.env)
        if num_words * self.longest > MAX_COMMAND:
            length = sum(map(len, argv)) + sum(len(n) + len(v) for n, v in process.env.items())
            if length > MAX_COMMAND:
                what = f"Its arguments and variables have {length} characters; {MAX_COMMAND} is the most."
                yield Misfit((*path, "argv"), what, "Write fewer, or shorter ones.")

    def _words(
        self, path: Path, placed: Iterable[tuple[str | int, str]], new: Iterable[str]
    ) -> Iterator[Misfit]:
        """Look at words that no process before had; those that fit are not looked at again."""
        fit = [word for word in new if grammar.is_word(word)]
        self.words.update(fit)
        self.longest = max((self.longest, *map(len, fit)))
        for key, word in placed:
            if word not in self.words:
                yield from _text((*path, key), word, _WORD)
