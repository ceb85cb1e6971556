"""Weights: a checkpoint's folder, held to its manifest."""

import os
from typing import List

from ..host import Host
from ..item import Item, Reading
from ..staging.manifest import MANIFEST, foreign_repository, parse_manifest, wrong_files
from ..trees import open_tree

MAX_NAMED_FILES = 3
# The catalogue's sizes are rounded, and some were never published.
MAX_STRANGENESS = 0.1


def read_weights(host: Host, item: Item) -> Reading:
    """A checkpoint's folder against its manifest: every file there, with its size, and not written to since."""
    folder, wanted = item.target, "complete"
    if not os.path.isdir(host.path(folder)):
        return Reading(None, {}, wanted, {}, locked="{} does not exist".format(folder))
    try:
        with open_tree(host.path(folder)) as there:
            content = there.read(MANIFEST)
    except FileNotFoundError:
        why = "{} has no {}: nothing says what belongs there".format(folder, MANIFEST)
        return Reading("no manifest", {}, wanted, {}, locked=why)
    files = parse_manifest(content)
    wrong, doubt = wrong_files(host, folder, files)
    foreign = foreign_repository(content, item.text("repository"))
    if foreign is not None:
        text = "its manifest is of {}, wanted {}"
        wrong.insert(0, text.format(foreign, item.text("repository")))
    if not wrong and item.text("reader") == "container":
        wrong = _closed_paths(host, folder, [entry.name for entry in files])
    if wrong:
        named = "; ".join(wrong[:MAX_NAMED_FILES])
        more = len(wrong) - MAX_NAMED_FILES
        why = "{}: {}{}".format(folder, named, " and {} more".format(more) if more > 0 else "")
        return Reading("damaged", {}, wanted, {}, locked=why)
    total = sum(entry.size_bytes for entry in files)
    note = "{} files, {} bytes".format(len(files), total)
    if doubt:
        note += "; by their sizes alone: {}; `fab stage-weights --check` reads every byte".format(
            doubt
        )
    about = item.number("size_bytes") or total
    if abs(total - about) > MAX_STRANGENESS * about:
        note += "; the catalogue says about {} bytes".format(about)
    return Reading("complete", {}, wanted, {}, note=note)


def _closed_paths(host: Host, folder: str, names: List[str]) -> List[str]:
    """What root reads as root alone: a container's has no right over other users' files."""
    text = "{} is closed to containers: chmod o+{}"
    parts = folder.strip("/").split("/")
    above = ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
    files = [os.path.join(folder, name) for name in names]
    closed = [text.format(path, "x") for path in above if not _opens(host, path, os.X_OK)]
    return closed + [text.format(path, "r") for path in files if not _opens(host, path, os.R_OK)]


def _opens(host: Host, path: str, bit: int) -> bool:
    """Whether a path's mode lets its host's root do it, as its owner, by its group or as anybody."""
    found = os.stat(host.path(path))
    shift = 6 if found.st_uid == host.owner[0] else 3 if found.st_gid == host.owner[1] else 0
    return bool(found.st_mode >> shift & bit)
