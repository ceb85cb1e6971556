"""A command of a guide, taken apart: what it sets, what it starts with which words, how its container is run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

VALUED_OPTIONS = {
    *(
        "--cap-add",
        "--cap-drop",
        "--device",
        "--entrypoint",
        "--env",
        "--gpus",
        "--group-add",
        "--ipc",
        "--name",
    ),
    *("--net", "--network", "--security-opt", "--shm-size", "-e", "-p", "-v"),
    *("--env-file", "--label", "--log-driver", "--mount", "--pull", "--ulimit"),
}


@dataclass
class ReadCommand:
    """A published command, taken apart."""

    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    image: str | None = None
    program: tuple[str, ...] = ()
    words: list[str] = field(default_factory=list)


def split(text: str) -> list[str]:
    """Words of a script; a copy whose lines were folded into one has its comments in the middle."""
    has_lines = "\n" in text.strip()
    joined = re.sub(r"\\\s*\n", " ", text) if has_lines else text
    return shlex.split(re.sub(r"\\(\s|$)", " ", joined), comments=has_lines)


def take_apart(text: str, program: tuple[str, ...] = ()) -> ReadCommand:
    read, words = ReadCommand(program=program), split(text)
    if program:
        read.words = words
        return read
    while words:
        word = words.pop(0)
        if word == "sysctl":
            words = words[1:] if words[0] == "-w" else words
            name, _, value = words.pop(0).partition("=")
            read.settings[name] = value
        elif word == "echo":
            value, _, _, target = (words.pop(0) for _ in range(4))
            read.settings[target] = value
        elif word == "docker":
            words = take_docker_apart(read, words[1:])
        elif word in {"vllm", "python"}:
            length = 2 if word == "python" and words[0] == "-m" else 1
            read.program = (word, *words[:length])
            read.words = words[length:]
            break
        elif re.match(r"[A-Z_][A-Z0-9_]*=", word):
            name, _, value = word.partition("=")
            read.env[name] = value.removesuffix(f":${name}")
    if read.image == "$IMAGE":
        read.image = read.env.pop("IMAGE")
    return read


def take_docker_apart(read: ReadCommand, words: list[str]) -> list[str]:
    """Options and image off `docker run`; what is left runs in the container."""
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name in VALUED_OPTIONS and not equals:
            value = words.pop(0)
        name = "--network" if name == "--net" else name
        if name in {"-e", "--env"}:
            variable, _, value = value.partition("=")
            read.env[variable] = value
        elif name.startswith("--"):
            read.options.append(f"{name}={value}" if value else name)
        else:
            read.options.append(f"{name} {value}".strip())
    read.image = words.pop(0)
    if words and words[0] not in {"vllm", "python", "bash"}:
        return ["vllm", "serve", *words]
    return words
