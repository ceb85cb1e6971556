"""An archive of a container image on the operator's machine, as `docker save` and `podman save` write it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from infra.errors import StackError
from infra.spec.present import is_file

MANIFEST = "manifest.json"
MAX_DOCUMENT_BYTES = 1 << 24
CHUNK_BYTES = 1 << 22
NAME = "image.tar"
OPTION = "--image-archive"
_HOW = "Write it with `docker save -o FILE IMAGE` or `podman save -o FILE IMAGE`."


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageArchive:
    """An archive that was read to its end.

    Args:
        path: where it lies here.
        sha256: of the file.
        images: id (`sha256:…`, the digest of the image's configuration) by every name that the archive gives one.
    """

    path: Path
    size_bytes: int
    sha256: str
    images: dict[str, str]


def read_archive(path: Path) -> ImageArchive:
    """What an archive holds.

    Raises:
        StackError: there is none, it is no archive of images, or it is damaged.
    """
    try:
        if path.exists() and not is_file(path):
            raise StackError(OPTION, f"{path} is no ordinary file.", _HOW)
        size = path.stat().st_size
        images = _read_images(path)
        digest = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}."
        raise StackError(OPTION, what, _HOW) from error
    return ImageArchive(path=path, size_bytes=size, sha256=digest.hexdigest(), images=images)


def plain_name(reference: str) -> str:
    """A name without what docker leaves out and podman writes: `docker.io/library/a:1` is `a:1`."""
    name = reference.partition("@")[0].removeprefix("docker.io/").removeprefix("library/")
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _read_images(path: Path) -> dict[str, str]:
    try:
        with tarfile.open(path, "r:*") as archive:
            listed = json.loads(_member(archive, path, MANIFEST))
            images: dict[str, str] = {}
            for row in listed:
                name = str(row["Config"])
                wanted = name.rpartition("/")[2].removesuffix(".json")
                found = hashlib.sha256(_member(archive, path, name)).hexdigest()
                if found != wanted:
                    what = f"{path} is damaged: the configuration {name} has the checksum {found}."
                    raise StackError(OPTION, what, _HOW)
                for tag in row.get("RepoTags") or []:
                    images[plain_name(str(tag))] = f"sha256:{found}"
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{path} is no archive of images: {error}."
        raise StackError(OPTION, what, _HOW) from error
    return images


def _member(archive: tarfile.TarFile, path: Path, name: str) -> bytes:
    """A small file of the archive.

    Raises:
        StackError: it has none of that name.
    """
    try:
        stream = archive.extractfile(name)
    except KeyError:
        stream = None
    if stream is None:
        raise StackError(OPTION, f"{path} is no archive of images: it has no {name}.", _HOW)
    return stream.read(MAX_DOCUMENT_BYTES)
