"""Each process of a foreign file as its engine reads it: role, place in its group, what of it is open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from infra.catalog.flags import FlagCatalogue
from infra.engines.command_line import as_map, canonical_flag
from infra.engines.reading import Reading
from infra.engines.recognition import (
    ADDRESS_FLAGS,
    ADDRESS_VARIABLES,
    LAYOUT_FLAGS,
    MASK_OF_VENDOR,
    PORT_FLAGS,
    program_length,
    recognise,
    role_told,
)
from infra.engines.registry import ENGINES
from infra.engines.routers import read_router
from infra.plan.foreign.assumed import Facts
from infra.plan.foreign.source import Launch, NotUnderstood, Word

# More devices than any host has: what a process takes shows in its reading.
ENOUGH_DEVICES = 1_024
_ROLE_WORDS = (
    ("prefill", re.compile(r"prefill|(^|[-_])p[0-9]?([-_]|$)|producer")),
    ("decode", re.compile(r"decod|consumer")),
)
# Values of these are secrets: they do not become part of a plan.
_SECRET_VARIABLE = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|ACCESS_KEY_ID)$")
_SECRET_FLAGS = ("--api-key", "--admin-api-key")
MASKED = "***"
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One process, read.

    Args:
        words: its argument vector without what cannot be placed.
        reading: as its engine's release understands it, with devices enough.
        open_flags: canonical flags whose value the file does not settle.
        open_variables: environment variables likewise.
        is_partly_open: whether words of it are left out, since the file does not settle what they are.
    """

    launch: Launch
    kind: str
    words: tuple[Word, ...]
    env: Mapping[str, str]
    reading: Reading
    role: str
    open_flags: frozenset[str]
    open_variables: frozenset[str]
    address: str | None
    is_partly_open: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        """The argument vector."""
        return tuple(word.text for word in self.words)

    @property
    def is_layout_open(self) -> bool:
        """Whether ranks or devices depend on what the file does not settle."""
        masks = set(MASK_OF_VENDOR.values())
        return bool(self.open_flags & LAYOUT_FLAGS or self.open_variables & masks)

    @property
    def are_ports_open(self) -> bool:
        """Whether a port depends on what the file does not settle."""
        meeting = str(self.reading.flags.get("dist-init-addr") or "")
        is_meeting_open = "dist-init-addr" in self.open_flags and not re.search(r":\d+$", meeting)
        is_variable_open = any("PORT" in name for name in self.open_variables)
        return bool(self.open_flags & PORT_FLAGS) or is_meeting_open or is_variable_open

    @property
    def is_address_open(self) -> bool:
        """Whether an address that matters depends on what the file does not settle."""
        flags = self.open_flags & (ADDRESS_FLAGS - {"host"})
        return bool(flags or self.open_variables & set(ADDRESS_VARIABLES))


def read_seat(
    launch: Launch, facts: Facts, flags: FlagCatalogue, router_flags: FlagCatalogue | None
) -> tuple[Seat, list[NotUnderstood]]:
    """A process as its engine reads it, and the words of it that could not be placed."""
    program = recognise([word.text for word in launch.words])
    kind = program.kind if program is not None else "engine"
    if kind == "router":
        reading = read_router(tuple(w.text for w in launch.words), router_flags)
        seat = Seat(
            launch=launch,
            kind=kind,
            words=launch.words,
            env=_plain(launch.env),
            reading=reading,
            role="router",
            open_flags=frozenset({"port"} if any(w.open_names for w in launch.words) else ()),
            open_variables=frozenset(),
            address=None,
        )
        return seat, []
    words, open_flags, notes = _placed(_without_secrets(launch.words), flags)
    env = _plain(launch.env)
    argv = tuple(word.text for word in words)
    reading = ENGINES[facts.release.engine].read(argv, env, num_devices=ENOUGH_DEVICES, flags=flags)
    seat = Seat(
        launch=launch,
        kind=kind,
        words=words,
        env=env,
        reading=reading,
        role=_role(launch, reading),
        open_flags=open_flags,
        open_variables=frozenset(n for n, w in launch.env.items() if w.open_names),
        address=_own_address(launch, reading),
        is_partly_open=bool(notes),
    )
    return seat, notes


def _plain(env: Mapping[str, Word]) -> dict[str, str]:
    return {name: MASKED if is_secret(name) else word.text for name, word in env.items()}


def is_secret(variable: str) -> bool:
    """Whether a variable holds a secret."""
    return _SECRET_VARIABLE.search(variable) is not None


def _without_secrets(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words with the values of `_SECRET_FLAGS` masked."""
    found: list[Word] = []
    for word in words:
        name, equals, _ = word.text.partition("=")
        if name in _SECRET_FLAGS and equals:
            found.append(Word(f"{name}={MASKED}", word.line))
        elif found and found[-1].text in _SECRET_FLAGS:
            found.append(Word(MASKED, word.line))
        else:
            found.append(word)
    return tuple(found)


def _placed(
    words: tuple[Word, ...], flags: FlagCatalogue
) -> tuple[tuple[Word, ...], frozenset[str], list[NotUnderstood]]:
    """Words without open ones that are neither a flag's value nor the model, and flags with open values."""
    length = program_length([word.text for word in words])
    kept = list(words[:length])
    open_flags: set[str] = set()
    notes: list[NotUnderstood] = []
    current, room, has_model = "", 0, False
    for word in words[length:]:
        fact = canonical_flag(word.text, flags)
        if fact is not None:
            current, has_value = fact.name, "=" in word.text
            room = 0 if has_value else (len(words) if fact.takes is None else fact.takes)
            if word.open_names:
                open_flags.add(fact.name)
        elif word.text.startswith("--"):
            current, room = word.text, 1
        elif room:
            room -= 1
            if word.open_names:
                open_flags.add(current)
        elif word.open_names and (has_model or word.text.startswith(("$@", "${@", "$*"))):
            why = f"{', '.join(word.open_names)} is not settled by the file: give --set NAME=VALUE"
            notes.append(NotUnderstood(word.line, word.text, why))
            continue
        else:
            has_model = True
            if word.open_names:
                open_flags.add("model")
        kept.append(word)
    return tuple(kept), frozenset(open_flags), notes


def _role(launch: Launch, reading: Reading) -> str:
    """Prefill, decode or unified: by the command line, then by what the format calls it."""
    mode = role_told([word.text for word in launch.words])
    if mode is not None:
        return mode
    config = as_map(reading.flags.get("kv-transfer-config"))
    role = config.get("kv_role")
    if role in ("kv_producer", "kv_consumer"):
        return "prefill" if role == "kv_producer" else "decode"
    if launch.role is not None:
        found = [name for name, pattern in _ROLE_WORDS if pattern.search(launch.role.lower())]
        if len(found) == 1:
            return found[0]
    return "unified"


def _own_address(launch: Launch, reading: Reading) -> str | None:
    """The address of the process's host, where its environment or the address that it binds says it."""
    for name in ADDRESS_VARIABLES:
        word = launch.env.get(name)
        if word is not None and not word.open_names and is_address(word.text):
            return word.text
    if reading.is_leader and {bind.name for bind in reading.binds} & {"dp_rpc", "master", "dist"}:
        for flag in ("data-parallel-address", "master-addr", "dist-init-addr"):
            value = str(reading.flags.get(flag) or "")
            host = value.rpartition(":")[0] if flag == "dist-init-addr" else value
            if is_address(host):
                return host
    host = str(reading.flags.get("host") or "")
    return host if is_address(host) else None


def is_address(text: str) -> bool:
    """Whether a text is an IPv4 address that other hosts may know."""
    return bool(_ADDRESS.match(text)) and not text.startswith(("127.", "0."))
