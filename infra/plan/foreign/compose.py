"""Docker Compose files: each service is a container, read as the `docker run` that it stands for.

Source: the Compose specification (docs.docker.com/reference/compose-file: interpolation, services, deploy), read
2026-11-23.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.plan.foreign.compose_choice import Service, in_turn, service_of
from infra.plan.foreign.container_run import ContainerRun
from infra.plan.foreign.host_access import host_access
from infra.plan.foreign.script import EntryPoints, ScriptReader, scope_of
from infra.plan.foreign.shared_memory import BY_DEFAULT, PATH, bytes_of, tmpfs_bytes
from infra.plan.foreign.shell import Shell
from infra.plan.foreign.shell_values import Scope
from infra.plan.foreign.source import (
    CONTINUED,
    Container,
    ForeignMount,
    NotUnderstood,
    Recipe,
    Started,
    Word,
)
from infra.plan.foreign.yaml_pages import Node, Page
from infra.plan.grammar import is_variable
from infra.spec.work import Work

# `$$`, `$NAME`, and `${NAME}` with a default, an alternative or a complaint; the innermost ones first.
_VARIABLE = re.compile(
    r"\$(?:(?P<twice>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-+?])(?P<other>[^{}]*))?\})"
)
_MAX_DEPTH = 8
_SHELL_WORD = re.compile(
    r"""(?:[^\s\0"'\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+|(?P<open>["'\\].*)""", re.DOTALL
)
# What stands for a `$` that is settled, and for one before a name that nothing settles, until a text is cut into words.
_DOLLAR, _OPEN = "\x01", "\x02"
_OPEN_NAME = re.compile(f"{_OPEN}(\\w+)")
# Compose reads it by itself, where it lies beside the file.
_ENV_FILE = ".env"
_KNOWN_BY = ("image", "build", "command", "extends")
# Keys that change what a service starts, and are not followed.
_UNFOLLOWED = {
    "extends": "what it takes from another service is not read",
    "scale": "one of them is read",
    "configs": "files that Compose writes into the container are not read",
}

# Keys that may open the host, and the option of `docker run` that each is.
_HOST_KEYS = {
    "privileged": "privileged",
    "pid": "pid",
    "userns_mode": "userns",
    "uts": "uts",
    "cgroup": "cgroupns",
    "cap_add": "cap-add",
    "devices": "device",
}


@dataclass(frozen=True, slots=True)
class _Known:
    """What interpolation puts into a file, and what is left of the file's budget."""

    values: Mapping[str, str]
    work: Work


def is_compose(root: Node) -> bool:
    """Whether a document is a Compose file."""
    services = root.get("services").nodes()
    return not root.get("apiVersion").is_there and any(
        service.get(key).is_there for service in services for key in _KNOWN_BY
    )


def read_compose(
    page: Page, settings: Mapping[str, str], entrypoints: EntryPoints, folder: Path | None
) -> Recipe:
    """What the services of a Compose file run.

    Args:
        page: the file.
        settings: variables that the operator gives.
        entrypoints: of known images.
        folder: where `.env` and files of variables may lie; None when nothing is read beside the file.

    Raises:
        TooMuchWorkError: a script in it does too much to be followed.
    """
    reader = ScriptReader(entrypoints, folder)
    beside = reader.variables_in(Word(_ENV_FILE, 1)) or {}
    known = {**{name: word.text for name, word in beside.items()}, **settings}
    notes: list[NotUnderstood] = []
    services: list[Service] = []
    for name, service in page.root.get("services").items():
        before = len(reader.launches)
        notes += _service(name, service, scope_of(known, page.work), reader)
        services.append(service_of(name, service, reader.launches[before:]))
    include = page.root.get("include")
    if include.is_there:
        notes.append(NotUnderstood(include.line, "include", "other files are not read"))
    recipe = Recipe(
        format="Compose file",
        not_understood=tuple(notes),
        hints=tuple(reader.hints),
        uses_ray=reader.uses_ray,
    )
    return in_turn(recipe, services, settings)


def _service(name: str, service: Node, scope: Scope, reader: ScriptReader) -> list[NotUnderstood]:
    """Collect what one service starts; what of it is not understood."""
    before = len(reader.launches)
    run = _container_run(service, _Known(scope.fixed, scope.work))
    told = (service.get(key).text() for key in ("container_name", "hostname"))
    run.container = replace(run.container, names=(name, *(each for each in told if each)))
    shell = Shell(scope, reader.handle)
    head = (Word("docker", service.line),)
    started = Started(words=head, env={}, prepended=frozenset(), blocks=False, is_certain=True)
    reader.start_container(run, started, shell)
    reader.launches[before:] = [replace(each, role=name) for each in reader.launches[before:]]
    notes = [*run.not_understood, *shell.not_understood]
    for key, why in _UNFOLLOWED.items():
        if service.get(key).is_there:
            notes.append(NotUnderstood(service.get(key).line, f"services.{name}.{key}", why))
    if service.get("deploy", "replicas").number(1) > 1:
        line = service.get("deploy", "replicas").line
        notes.append(NotUnderstood(line, f"services.{name}.deploy.replicas", _UNFOLLOWED["scale"]))
    if len(reader.launches) == before and not notes:
        why = "it starts no engine or router that I know"
        notes.append(NotUnderstood(service.line, f"services.{name}", why))
    return notes


def _container_run(service: Node, known: _Known) -> ContainerRun:
    image = service.get("image")
    run = ContainerRun(
        container=Container(
            runtime="docker",
            image=_word(image, known) if image.is_there else None,
            mounts=tuple(_mounts(service, known)),
            num_devices=_num_devices(service),
            has_own_network=service.get("network_mode").text() != "host",
            shared_bytes=_shared_bytes(service, known),
        ),
        is_detached=True,
    )
    for name, line, value in _variables(service, known):
        if value is not None:
            run.env[name] = value
        elif name in known.values or not is_variable(name):
            run.env[name] = Word(known.values.get(name, ""), line)
        else:
            why = "the caller's, and taken for unset, as Compose does: give --set NAME=VALUE"
            run.not_understood.append(NotUnderstood(line, name, why))
    for key, option in _HOST_KEYS.items():
        given = service.get(key)
        for node in given.nodes() or [given]:
            word = _word(node, known)
            run.not_understood += host_access(option, word.text, word.line)
    files = service.get("env_file")
    listed = files.nodes() if isinstance(files.value, list) else [files] if files.is_there else []
    run.env_files = [
        _word(each.get("path") if each.get("path").is_there else each, known) for each in listed
    ]
    entry = service.get("entrypoint")
    command = _words(service.get("command"), known, run)
    if entry.is_there:
        head = _words(entry, known, run)
        run.entrypoint = head[0] if head else Word("", entry.line)
        command = [*head[1:], *command]
    run.command = tuple(command)
    return run


def _variables(service: Node, known: _Known) -> Iterator[tuple[str, int, Word | None]]:
    """Each variable's name, line and value; None for one whose value is the caller's."""
    environment = service.get("environment")
    if isinstance(environment.value, list):
        for node in environment.nodes():
            word = _word(node, known)
            name, equals, text = word.raw.partition("=")
            yield name, word.line, Word(text, word.line, word.open_names) if equals else None
        return
    for name, node in environment.items():
        yield name, node.line, None if node.value is None else _word(node, known)


def _words(node: Node, known: _Known, run: ContainerRun) -> list[Word]:
    """A command: a list as it stands, a text cut where a shell would cut it, without being one."""
    if isinstance(node.value, list):
        return [_settled(each.script(), known) for each in node.nodes()]
    if not node.is_there:
        return []
    text = node.script()
    raw = _interpolated(text, known).replace("\\\n", " \n")
    found = []
    for match in _SHELL_WORD.finditer(raw):
        before = raw[: match.start()]
        line = text.line + before.count("\n") + before.count(CONTINUED)
        if match["open"]:
            why = "a quotation mark that is not closed: the rest of it is not read"
            run.not_understood.append(NotUnderstood(line, match[0][:60], why))
            break
        found.append(_closed(shlex.split(match[0])[0], line))
    return found


def _mounts(service: Node, known: _Known) -> list[ForeignMount]:
    found = []
    for node in service.get("volumes").nodes():
        if isinstance(node.value, dict):
            source, target = _word(node.get("source"), known), node.get("target")
            read_only = node.get("read_only").value is True
            found.append(
                ForeignMount(
                    source=source.text, target=target.text(), read_only=read_only, line=node.line
                )
            )
            continue
        parts = _word(node, known).text.split(":")
        if len(parts) > 1:
            read_only = "ro" in parts[2].split(",") if parts[2:] else False
            found.append(
                ForeignMount(source=parts[0], target=parts[1], read_only=read_only, line=node.line)
            )
    return found


def _shared_bytes(service: Node, known: _Known) -> int | None:
    """What a service's `/dev/shm` holds; None for the host's, or for a volume."""
    if _word(service.get("ipc"), known).text not in ("", "private", "shareable"):
        return None
    if any(mount.target.rstrip("/") == PATH for mount in _mounts(service, known)):
        return None
    tmpfs = service.get("tmpfs")
    for node in tmpfs.nodes() or [tmpfs]:
        target, _, options = _word(node, known).text.partition(":")
        if target.rstrip("/") == PATH:
            return tmpfs_bytes(options)
    size = service.get("shm_size")
    return bytes_of(_word(size, known).text) if size.is_there else BY_DEFAULT


def _num_devices(service: Node) -> int | None:
    """What a service reserves; None where it says `all`, or nothing."""
    counts = []
    reserved = service.get("deploy", "resources", "reservations", "devices").nodes()
    for request in [*reserved, *service.get("gpus").nodes()]:
        ids = request.get("device_ids").nodes()
        counts.append(len(ids) or request.get("count").number())
    listed = [
        node
        for node in service.get("devices").nodes()
        if re.match(r"/dev/davinci\d+(:|$)", node.text())
    ]
    return sum(counts) or len(listed) or None


def _word(node: Node, known: _Known) -> Word:
    """A value as Compose hands it over, with its line."""
    if isinstance(node.value, bool):
        return Word(str(node.value).lower(), node.line)
    return _settled(node.word(), known)


def _settled(word: Word, known: _Known) -> Word:
    return _closed(_interpolated(word, known), word.line)


def _interpolated(word: Word, known: _Known) -> str:
    """The text with its variables; settled and open `$` stand as `_DOLLAR` and `_OPEN`."""

    def put(match: re.Match[str]) -> str:
        if match["twice"]:
            return _DOLLAR
        name = match["bare"] or match["name"]
        value, how, other = known.values.get(name), match["how"] or "", match["other"] or ""
        is_set = value is not None and (value != "" or not how.startswith(":"))
        if how.endswith("+"):
            return other if is_set else ""
        if value is not None and is_set:
            known.work.spend_text(len(value), word.line)
            return value.replace("$", _DOLLAR)
        return other if how.endswith("-") else f"{_OPEN}{name}"

    text = word.raw
    for _ in range(_MAX_DEPTH):
        known.work.spend_text(len(text), word.line)
        after = _VARIABLE.sub(put, text)
        if after == text:
            break
        text = after
    return text


def _closed(text: str, line: int) -> Word:
    """A word whose `$` are themselves again, and the names in it that nothing settles."""
    open_names = tuple(dict.fromkeys(_OPEN_NAME.findall(text)))
    return Word(text.replace(_DOLLAR, "$").replace(_OPEN, "$"), line, open_names)
