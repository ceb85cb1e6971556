"""A foreign file as text: bounded, UTF-8, without NUL bytes; and what was found in it."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import Problem, ProblemsFound
from infra.spec.text_file import read_bytes

MAX_BYTES = 1_000_000
MAX_LINES = 5_000
# In the text of a word: a line that ends inside it without a newline (`\` before the end of a line, folded YAML).
# A file with NUL bytes is refused, so no file can hold it.
CONTINUED = "\0"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command line, as the shell would hand it over.

    Args:
        raw: its text, with `CONTINUED` where a line ends inside it.
        line: where it begins in the file, from 1.
        open_names: variables and substitutions in it that the file does not settle.
    """

    raw: str
    line: int
    open_names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The word itself; what is open stands as it was written."""
        return self.raw.replace(CONTINUED, "") if CONTINUED in self.raw else self.raw


@dataclass(frozen=True, slots=True, order=True)
class NotUnderstood:
    """A part of the file that did not become part of the plan as it stands, and why."""

    line: int
    text: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMount:
    """A bind mount as the file writes it, and the line where it does."""

    source: str
    target: str
    read_only: bool
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a process is wrapped in.

    Args:
        runtime: `docker`, `podman` or `kubernetes`.
        image: the reference.
        num_devices: devices that it is given, None when the file does not say.
        has_own_network: whether its ports are its own, and not the host's.
        is_bridged: whether that is a bridge of docker's, which ends at its host.
        lacks_names: whether it is a pod's in its node's network that is not told of the cluster's DNS.
        leads_in_turn: whether others of its set of pods are created when it answers that it is ready.
        silence_s: after how many seconds without an answer it is killed; None when nobody asks.
        names: host names that others reach it by.
        shared_bytes: of its `/dev/shm`; None for the host's, or where nothing bounds it or says.
        resources: what it asks device plugins for, by their names.
        outside: variables of the command that starts it. They do not enter it, and tell what its author has.
    """

    runtime: str
    image: Word | None
    mounts: tuple[ForeignMount, ...] = ()
    num_devices: int | None = None
    has_own_network: bool = False
    is_bridged: bool = False
    lacks_names: bool = False
    leads_in_turn: bool = False
    silence_s: int | None = None
    names: tuple[str, ...] = ()
    shared_bytes: int | None = None
    resources: frozenset[str] = frozenset()
    outside: Mapping[str, Word] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command that the script would start.

    Args:
        words: its argument vector, wrappers such as `nohup` taken off.
        env: what it is given.
        blocks: whether the script waits for its end.
        is_certain: whether it is started in any case that the reader knows of.
    """

    words: tuple[Word, ...]
    env: Mapping[str, Word]
    prepended: frozenset[str]
    blocks: bool
    is_certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process that the file starts.

    Args:
        words: its argument vector.
        env: what its environment is given by the file, a word per variable.
        prepended: variables of `env` that stand before what the surroundings give them.
        host: the host that the format places it on, None when only its command line can say.
        role: what the format calls it, None when only its command line can say.
        group: the format's name of the group that it belongs to, None likewise.
        blocks: whether nothing after it in its script runs beside it.
    """

    words: tuple[Word, ...]
    env: Mapping[str, Word]
    prepended: frozenset[str] = frozenset()
    container: Container | None = None
    host: str | None = None
    role: str | None = None
    group: str | None = None
    blocks: bool = False

    @property
    def line(self) -> int:
        """Where its command begins."""
        return self.words[0].line


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAsked:
    """Nodes that a file asks for.

    Args:
        by: what asks, in the file's words (`LeaderWorkerSet kimi`).
        used: those on which it starts an engine; None where the engines' own flags say.
        devices: of each that it asks for, None where it does not say.
    """

    by: str
    line: int
    asked: int
    used: int | None = None
    devices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a foreign file says.

    Args:
        format: which format it is, in words.
        launches: the processes, in the order of the file.
        not_understood: the rest of it that may matter.
        is_whole: whether the format lists every process of the deployment.
        is_collection: whether its parts are alternatives, as those of a guide.
        uses_ray: whether a Ray cluster lends a process devices of other hosts.
        addresses: own address of each host that the format names.
        hints: texts that may name the accelerator or the release (image, node selector), with their lines.
        devices_per_host: what the format says of each host's devices.
        accelerator: what the format calls the accelerator.
        engine_version: what the format says of the engine's release.
        name: what the file calls itself, empty when it does not.
        other_engine: an engine that the file starts and that is not read here.
        choice: of a file with a sweep, the values by name that this combination of it has.
        others: the other combinations.
        nodes_asked: what it asks for as a whole.
    """

    format: str
    launches: tuple[Launch, ...] = ()
    not_understood: tuple[NotUnderstood, ...] = ()
    is_whole: bool = False
    is_collection: bool = False
    uses_ray: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict)
    hints: tuple[Word, ...] = ()
    devices_per_host: int | None = None
    accelerator: str | None = None
    engine_version: str | None = None
    name: str = ""
    other_engine: Word | None = None
    choice: Mapping[str, str] = field(default_factory=dict)
    others: tuple[Recipe, ...] = ()
    nodes_asked: tuple[NodesAsked, ...] = ()


def read_text(path: Path) -> str:
    """The file's text.

    Raises:
        ProblemsFound: it cannot be read, is too large, or is no text.
    """
    try:
        data = read_bytes(path, MAX_BYTES)
    except OSError as error:
        fix = _OTHER if error.errno == errno.EFBIG else "Name a file."
        raise refused(path, f"It cannot be read: {error.strerror}.", fix) from error
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise refused(path, "It holds a NUL byte: it is no text.", _OTHER, line)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise refused(
            path, f"It is not UTF-8 ({error.reason}).", "Save it as UTF-8.", line
        ) from error
    if text.count("\n") > MAX_LINES:
        raise refused(path, f"It has more than {MAX_LINES} lines.", _OTHER)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def refused(
    path: Path | str, what: str, fix: str, line: int | None = None, rule: str = "unreadable-recipe"
) -> ProblemsFound:
    """A file that is not read at all, as the one problem that it is."""
    problem = Problem(
        rule=rule,
        severity="error",
        field="",
        what=what,
        fix=fix,
        file=str(path),
        line=line,
    )
    return ProblemsFound((problem,))


_OTHER = "A recipe is a short script, command line or YAML file; give that part of it alone."
