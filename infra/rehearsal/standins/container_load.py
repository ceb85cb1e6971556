"""`docker load` and `podman load`: the images of an archive as `docker save` writes it become images of the host.

As the real ones do, it takes the names and ids that the archive gives, refuses one that is cut off, lacks a layer or is
no archive, and knows no registry's digest afterwards. What an image does when it runs stands in its label
`moe-infra.rehearsal.image`, in the form of an entry of `images` in `host.json`. Written from docker/cli and moby
v28 (image/tarexport/load.go) and podman-load(1), read 2026-11-21.
"""

from __future__ import annotations

import os

from .documents import format_document, parse_document
from .failures import CommandFailure
from .host_state import state_folder
from .images import loaded_images, split_reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    import tarfile
    from typing import Any

    from .flags import ParsedFlags

LABEL = "moe-infra.rehearsal.image"
IMPORT_FOLDER = "/var/lib/docker/tmp/docker-import-1"
USAGE = (
    "[OPTIONS]",
    0,
    0,
    {
        "input": ("string", "i"),
        "platform": ("string", ""),
        "quiet": ("bool", "q"),
        "help": ("bool", "h"),
    },
)


def load(program: str, flags: ParsedFlags) -> int:
    """Do `load --input FILE`."""
    import tarfile  # noqa: PLC0415  no other command needs it

    path = flags.last("input")
    if not path:
        raise _failure(program, "requested load from stdin, but stdin is empty", "")
    try:
        with tarfile.open(path, "r:*") as archive:
            entries = _entries(program, archive)
    except FileNotFoundError:
        raise _failure(
            program,
            f"open {path}: no such file or directory",
            f"stat {path}: no such file or directory",
        ) from None
    except (tarfile.TarError, EOFError):
        text = "Error processing tar file(exit status 1): unexpected EOF"
        raise _failure(program, text, "") from None
    kept = loaded_images()
    for entry in entries:
        kept = [one for one in kept if one["reference"] != entry["reference"]]
    temporary = f"{state_folder()}/loaded.json.new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(format_document([*kept, *entries]))
    os.rename(temporary, f"{state_folder()}/loaded.json")
    for entry in entries:
        name = entry["reference"]
        has_registry = "." in name.partition("/")[0]
        print(
            f"Loaded image: {name if program == 'docker' or has_registry else 'docker.io/' + name}"
        )
    return 0


def _entries(program: str, archive: tarfile.TarFile) -> list[dict[str, Any]]:
    """Return the images of an archive as `host.json` would list them."""
    import hashlib  # noqa: PLC0415  no other command needs it

    members = {member.name for member in archive.getmembers()}
    if "manifest.json" not in members:
        text = f"open {IMPORT_FOLDER}/repositories: no such file or directory"
        raise _failure(program, text, "")
    entries = []
    for row in parse_document(_text(archive, "manifest.json")):
        for name in [row["Config"], *row["Layers"]]:
            if name not in members:
                text = f"open {IMPORT_FOLDER}/{name}: no such file or directory"
                raise _failure(program, text, "")
        config_text = _text(archive, row["Config"])
        config = parse_document(config_text)
        own = parse_document((config.get("config", {}).get("Labels") or {}).get(LABEL, "{}"))
        identity = "sha256:" + hashlib.sha256(config_text.encode()).hexdigest()
        for tag in row["RepoTags"] or []:
            name, version, _ = split_reference(tag)
            entry = {**own, "reference": f"{name}:{version}", "id": identity}
            entry.pop("digest", None)
            entries.append({**entry, "architecture": config["architecture"]})
    return entries


def _text(archive: tarfile.TarFile, name: str) -> str:
    stream = archive.extractfile(name)
    return stream.read().decode() if stream is not None else ""


def _failure(program: str, text: str, podman_text: str) -> CommandFailure:
    """Return the error as docker prints it, or as podman does."""
    if program == "docker":
        return CommandFailure(text, 1)
    formats = "payload does not match any of the supported image formats"
    return CommandFailure(f"Error: {podman_text or formats}", 125)
