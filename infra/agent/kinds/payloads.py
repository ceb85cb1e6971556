"""Weights and libraries: large or foreign things that an engine needs to find on its host."""

import os
import re
from typing import List

from ..folders import open_folder
from ..host import Host
from ..item import Item, Reading, absent_reading
from ..staging.manifest import MANIFEST, foreign_repository, parse_manifest, wrong_files
from .images import says_missing

PRELOAD_S = 5.0
IMAGE_PRELOAD_S = 60.0
MAX_NAMED_FILES = 3
# The catalogue's sizes are rounded, and some were never published.
MAX_STRANGENESS = 0.1


def read_weights(host: Host, item: Item) -> Reading:
    """A checkpoint's folder against its manifest: every file there, with its size, and not written to since."""
    folder, wanted = item.target, "complete"
    if not os.path.isdir(host.path(folder)):
        return Reading(None, {}, wanted, {}, locked="{} does not exist".format(folder))
    try:
        with open_folder(host.path(folder)) as there:
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


def read_program(host: Host, item: Item) -> Reading:
    """A program of a distribution's package: it is there, and not older than is wanted."""
    fix = item.text("fix") or ""
    said = host.run([item.target, item.text("flag") or "--version"], PRELOAD_S)
    found = re.search(r"\d+(\.\d+)+", said.stdout)
    if found is None:
        why = "{} is not there ({}); install it: {}".format(item.target, said.last_words, fix)
        return Reading(None, {}, item.want, {}, locked=why)
    version = [int(each) for each in found.group().split(".")]
    if version < [int(each) for each in str(item.want).split(".")]:
        why = "{} is {}, and {} is the oldest that will do; install a newer one: {}"
        why = why.format(item.target, found.group(), item.want, fix)
        return Reading(found.group(), {}, item.want, {}, locked=why)
    return Reading(item.want, {}, item.want, {}, note="it is {}".format(found.group()))


def read_preload(host: Host, item: Item) -> Reading:
    """A library for LD_PRELOAD: it exists, and a program starts with it on this page size.

    With a `reference` it is proven inside that image: the host's own copy says nothing about it.
    """
    if item.text("reference") is not None:
        return _preload_in_image(host, item)
    if not host.exists(item.target):
        return absent_reading(item, "{} does not exist".format(item.target))
    pages = os.sysconf("SC_PAGE_SIZE") // 1024
    tried = host.run(["/bin/true"], PRELOAD_S, {"LD_PRELOAD": host.path(item.target)})
    if tried.exit_code != 0 or tried.stderr.strip():
        why = "it cannot be preloaded with {} KiB pages: {}".format(pages, tried.last_words)
        return Reading("unusable", {}, item.want, {}, locked=why)
    value = "usable" if item.want is None else item.want
    return Reading(value, {}, item.want, {}, note="usable with {} KiB pages".format(pages))


def _preload_in_image(host: Host, item: Item) -> Reading:
    """Start /bin/true in the image with the library; ld.so only warns of a missing one, and goes on."""
    runtime, reference = item.text("runtime") or "", item.text("reference") or ""
    name = "moe-infra-preload-{}".format(os.getpid())
    argv = [runtime, "run", "--rm", "--name=" + name, "--pull=never", "--network=none"]
    argv += ["--entrypoint=/bin/true", "--env", "LD_PRELOAD=" + item.target, reference]
    # a client that is killed between making and starting its container leaves it behind
    with host.cleaning([runtime, "rm", "--force", name]):
        tried = host.run(argv, IMAGE_PRELOAD_S)
        if tried.exit_code is None:
            host.run([runtime, "rm", "--force", name], IMAGE_PRELOAD_S)
    if tried.exit_code is None or says_missing(tried.stderr):
        return absent_reading(item, "{} is not on this host yet".format(reference))
    pages = os.sysconf("SC_PAGE_SIZE") // 1024
    if tried.exit_code != 0 or tried.stderr.strip():
        why = "{} cannot be preloaded in {} with {} KiB pages: {}; engines start without it"
        words = why.format(item.target, reference, pages, tried.last_words)
        return Reading("unusable", {}, item.want, {}, locked=words)
    note = "{} is usable in {} with {} KiB pages".format(item.target, reference, pages)
    return Reading(item.want or "usable", {}, item.want, {}, note=note)
