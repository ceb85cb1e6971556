"""`docker run` and `podman run` taken apart: image, environment, mounts, devices, the command inside."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infra.plan.foreign.host_access import host_access
from infra.plan.foreign.shared_memory import BY_DEFAULT, PATH, bytes_of, tmpfs_bytes
from infra.plan.foreign.source import Container, ForeignMount, NotUnderstood, Word
from infra.spec.bounded import is_whole_number

# Options of `docker run` and `podman run` without a value: docs.docker.com/reference/cli/docker/container/run,
# docs.podman.io podman-run.1; read 2026-11-21. Every other option takes one.
SWITCHES = frozenset(
    {
        "-d", "--detach", "-i", "--interactive", "-t", "--tty", "--rm", "--init", "--privileged", "-P", "--publish-all",
        "--read-only", "--oom-kill-disable", "--no-healthcheck", "--sig-proxy", "--disable-content-trust", "-q",
        "--quiet", "--replace", "--tls-verify", "--env-host", "--http-proxy", "--no-hosts", "--no-hostname", "--rmi",
    }
)  # fmt: skip
_VOLUME_PARTS = 2
# Networks that end at their host; one that a user made may reach others.
_BRIDGES = ("bridge", "default", "slirp4netns", "pasta")
# `-itv /a:/b`: letters that stand alone, before one that takes a value.
_SWITCHES_FIRST = re.compile(r"-([dit]+)([a-zA-Z].*)", re.DOTALL)


@dataclass(slots=True)
class ContainerRun:
    """A `run` command.

    Args:
        env: variables given with a value.
        from_outside: variables given by name alone: their value is that of the calling shell.
        env_files: files of variables, as written.
        entrypoint: `--entrypoint`, None when it is not given.
        command: the words behind the image.
    """

    container: Container
    env: dict[str, Word] = field(default_factory=dict)
    from_outside: list[Word] = field(default_factory=list)
    env_files: list[Word] = field(default_factory=list)
    entrypoint: Word | None = None
    command: tuple[Word, ...] = ()
    is_detached: bool = False
    not_understood: list[NotUnderstood] = field(default_factory=list)


def read_container_run(runtime: str, words: Sequence[Word]) -> ContainerRun:
    """The words behind `docker run`.

    Args:
        runtime: `docker` or `podman`.
        words: options, image, command.
    """
    reader = _Reader(runtime)
    index = 0
    while index < len(words):
        word = words[index]
        if word.text.startswith("-") and len(word.text) > 1:
            index += reader.option(word, words[index + 1] if index + 1 < len(words) else None)
        elif (
            word.open_names
            and word.text == word.raw
            and word.text.startswith("$")
            and _more(words, index)
        ):
            why = "an option that the file does not settle"
            reader.run.not_understood.append(NotUnderstood(word.line, word.text, why))
            reader.is_bridged = False  # it may name another network
            index += 1
        else:
            break
    return reader.finish(words[index:])


def _more(words: Sequence[Word], index: int) -> bool:
    """Whether an open word can be options: further options or an image follow it."""
    return any(re.match(r"[\w.-]+[/:]|-", word.text) for word in words[index + 1 : index + 2])


@dataclass(slots=True)
class _Reader:
    runtime: str
    mounts: list[ForeignMount] = field(default_factory=list)
    num_devices: int | None = None
    run: ContainerRun = field(
        default_factory=lambda: ContainerRun(container=Container(runtime="docker", image=None))
    )
    listed_devices: int = 0
    has_own_network: bool = True
    is_bridged: bool = True
    names: list[str] = field(default_factory=list)
    shared_bytes: int | None = BY_DEFAULT

    def option(self, word: Word, following: Word | None) -> int:
        """Read one option; how many words it took."""
        name, equals, inline = word.text.partition("=")
        if name in SWITCHES or (re.fullmatch(r"-[dit]+", name) and not equals):
            if name == "--privileged" and inline != "false":
                self.run.not_understood += host_access("privileged", "true", word.line)
            self.run.is_detached |= name == "--detach" or bool(re.fullmatch(r"-[it]*d[it]*", name))
            return 1
        if (behind := _SWITCHES_FIRST.match(word.text)) is not None:
            self.run.is_detached |= "d" in behind[1]
            return self.option(Word(f"-{behind[2]}", word.line, word.open_names), following)
        if equals and (name.startswith("--") or len(name) == 2):  # noqa: PLR2004 - `-v=/a:/b`
            self._value(name, Word(inline, word.line, word.open_names))
            return 1
        if not name.startswith("--") and len(name) > 2:  # noqa: PLR2004 - `-eNAME=value`
            self._value(name[:2], Word(word.text[2:], word.line, word.open_names))
            return 1
        if following is None:
            self.run.not_understood.append(NotUnderstood(word.line, word.text, "it has no value"))
            return 1
        self._value(name, following)
        return 2

    def finish(self, rest: Sequence[Word]) -> ContainerRun:
        """The whole command."""
        image = rest[0] if rest else None
        devices = (
            self.num_devices if self.num_devices is not None else (self.listed_devices or None)
        )
        self.run.container = Container(
            runtime=self.runtime,
            image=image,
            mounts=tuple(self.mounts),
            num_devices=devices,
            has_own_network=self.has_own_network,
            is_bridged=self.is_bridged,
            names=tuple(self.names),
            shared_bytes=self.shared_bytes,
        )
        self.run.command = tuple(rest[1:])
        return self.run

    def _value(self, name: str, value: Word) -> None:
        self.run.not_understood += host_access(name.lstrip("-"), value.text, value.line)
        handler = _HANDLERS.get(name)
        if handler is not None:
            handler(self, value)

    def env(self, value: Word) -> None:
        """`-e NAME=value`, `-e NAME`."""
        name, equals, text = value.raw.partition("=")
        if equals:
            self.run.env[name] = Word(text, value.line, value.open_names)
        else:
            self.run.from_outside.append(value)

    def env_file(self, value: Word) -> None:
        """`--env-file`."""
        self.run.env_files.append(value)

    def entrypoint(self, value: Word) -> None:
        """`--entrypoint`."""
        self.run.entrypoint = value

    def volume(self, value: Word) -> None:
        """`-v source:target[:options]`."""
        parts = value.text.split(":")
        if len(parts) >= _VOLUME_PARTS:
            read_only = "ro" in parts[2:][0].split(",") if parts[2:] else False
            self._mounted(value, parts[0], parts[1], read_only=read_only)

    def mount(self, value: Word) -> None:
        """`--mount type=bind,source=…,target=…`, a line of CSV to the runtime."""
        try:
            parts = next(csv.reader([value.text]), [])
        except csv.Error:
            why = "it is no line of CSV: left out of the plan"
            self.run.not_understood.append(NotUnderstood(value.line, "--mount", why))
            return
        split = (part.partition("=") for part in parts)
        fields = {key.strip().lower(): given for key, _, given in split}
        target = fields.get("target") or fields.get("dst") or fields.get("destination")
        if fields.get("type") == "tmpfs" and (target or "").rstrip("/") == PATH:
            self.shared_bytes = bytes_of(fields.get("tmpfs-size", ""))
        source = fields.get("source") or fields.get("src")
        if target and source:
            read_only = "readonly" in fields or "ro" in fields
            self._mounted(value, source, target, read_only=read_only)

    def _mounted(self, value: Word, source: str, target: str, *, read_only: bool) -> None:
        if target.rstrip("/") == PATH:
            self.shared_bytes = None
        self.mounts.append(
            ForeignMount(source=source, target=target, read_only=read_only, line=value.line)
        )

    def network(self, value: Word) -> None:
        """`--network host`, `--net=host`."""
        self.has_own_network = value.text != "host"
        self.is_bridged = value.text in _BRIDGES

    def named(self, value: Word) -> None:
        """`--name NAME`, `--hostname NAME`, `--network-alias NAME`: what other containers dial."""
        self.names.append(value.text)

    def ipc(self, value: Word) -> None:
        """`--ipc host`: the host's shared memory; another container's is as large as that has it."""
        if value.text not in ("private", "shareable", ""):
            self.shared_bytes = None

    def shm_size(self, value: Word) -> None:
        """`--shm-size 10g`."""
        self.shared_bytes = bytes_of(value.text)

    def tmpfs(self, value: Word) -> None:
        """`--tmpfs /dev/shm:size=10g`."""
        target, _, options = value.text.partition(":")
        if target.rstrip("/") == PATH:
            self.shared_bytes = tmpfs_bytes(options)

    def gpus(self, value: Word) -> None:
        """`--gpus all`, `--gpus 4`, `--gpus '"device=0,1"'`."""
        text = value.text.strip("\"'")
        if is_whole_number(text):
            self.num_devices = int(text)
        elif text.startswith("device="):
            self.num_devices = text.removeprefix("device=").count(",") + 1

    def device(self, value: Word) -> None:
        """`--device /dev/davinci3`: each is a device of its own."""
        if re.fullmatch(r"/dev/davinci\d+", value.text.split(":")[0]):
            self.listed_devices += 1


_HANDLERS: dict[str, Callable[[_Reader, Word], None]] = {
    "-e": _Reader.env,
    "--env": _Reader.env,
    "--env-file": _Reader.env_file,
    "--entrypoint": _Reader.entrypoint,
    "-v": _Reader.volume,
    "--volume": _Reader.volume,
    "--mount": _Reader.mount,
    "--gpus": _Reader.gpus,
    "--network": _Reader.network,
    "--net": _Reader.network,
    "--device": _Reader.device,
    "--ipc": _Reader.ipc,
    "--shm-size": _Reader.shm_size,
    "--tmpfs": _Reader.tmpfs,
    "--name": _Reader.named,
    "--hostname": _Reader.named,
    "-h": _Reader.named,
    "--network-alias": _Reader.named,
}
