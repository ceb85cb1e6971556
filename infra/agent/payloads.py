"""Images, weights and libraries: large or foreign things that an engine needs to find on its host."""

import json
import os
from typing import List, Tuple

from .host import Host, Refused
from .item import Item, Reading, absent_reading

INSPECT_S = 20.0
PULL_S = 3600.0
PRELOAD_S = 5.0
IMAGE_PRELOAD_S = 60.0
MAX_NAMED_FILES = 3
RUNTIMES = ("docker", "podman")


def read_image(host: Host, item: Item) -> Reading:
    """A container image and its digest, as the runtime knows it."""
    runtime, reference = item.text("runtime"), item.text("reference") or item.target
    if runtime not in RUNTIMES:
        return absent_reading(item._replace(tolerate_absent=True), "no container runtime is used")
    answer = host.run([runtime, "image", "inspect", reference], INSPECT_S)
    if answer.exit_code is None:
        raise Refused(answer.last_words)
    digest = item.text("digest")
    wanted = digest or reference
    if answer.exit_code != 0:
        if not _says_missing(answer.stderr):
            raise Refused("{} image inspect: {}".format(runtime, answer.last_words))
        return Reading(None, {"image": None}, wanted, {"image": wanted})
    digests = parse_digests(answer.stdout)
    if digest is None:
        return Reading(digests[0] if digests else reference, {"image": wanted}, wanted, {})
    found = digest if digest in digests else (digests[0] if digests else "no digest")
    return Reading(found, {"image": found}, digest, {"image": digest})


def pull_image(host: Host, item: Item, _part: str, _value: object) -> None:
    """Pull the image, by digest where one is wanted."""
    runtime, reference = item.text("runtime") or "", item.text("reference") or item.target
    digest = item.text("digest")
    if digest is not None:
        reference = "{}@{}".format(_repository(reference), digest)
    done = host.run([runtime, "pull", "--quiet", reference], PULL_S)
    if done.exit_code != 0:
        raise Refused("{} pull {}: {}".format(runtime, reference, done.last_words))


def read_weights(host: Host, item: Item) -> Reading:
    """A checkpoint's folder against its manifest: every file there, with its true size."""
    wanted_bytes = item.number("size_bytes") or 0
    folder, name = item.target, item.text("manifest") or "manifest.json"
    wanted = "complete" if wanted_bytes == 0 else "complete, {} bytes".format(wanted_bytes)
    if not os.path.isdir(host.path(folder)):
        return Reading(None, {}, wanted, {}, locked="{} does not exist".format(folder))
    try:
        files = parse_manifest(host.read_bytes(os.path.join(folder, name)))
    except FileNotFoundError:
        why = "{} has no {}: nothing says what belongs there".format(folder, name)
        return Reading("no manifest", {}, wanted, {}, locked=why)
    wrong = _wrong_files(host, folder, files)
    total = sum(size for _, size in files)
    if wanted_bytes not in (0, total):
        wrong.append("its manifest lists {} bytes, wanted {}".format(total, wanted_bytes))
    if wrong:
        named = "; ".join(wrong[:MAX_NAMED_FILES])
        more = len(wrong) - MAX_NAMED_FILES
        why = "{}: {}{}".format(folder, named, " and {} more".format(more) if more > 0 else "")
        return Reading("damaged", {}, wanted, {}, locked=why)
    value = "complete" if wanted_bytes == 0 else "complete, {} bytes".format(total)
    return Reading(value, {}, wanted, {}, note="{} files, {} bytes".format(len(files), total))


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
    argv = [runtime, "run", "--rm", "--pull=never", "--network=none", "--entrypoint=/bin/true"]
    tried = host.run([*argv, "--env", "LD_PRELOAD=" + item.target, reference], IMAGE_PRELOAD_S)
    if tried.exit_code is None or _says_missing(tried.stderr):
        return absent_reading(item, "{} is not on this host yet".format(reference))
    pages = os.sysconf("SC_PAGE_SIZE") // 1024
    if tried.exit_code != 0 or tried.stderr.strip():
        why = "{} cannot be preloaded in {} with {} KiB pages: {}; engines start without it"
        words = why.format(item.target, reference, pages, tried.last_words)
        return Reading("unusable", {}, item.want, {}, locked=words)
    note = "{} is usable in {} with {} KiB pages".format(item.target, reference, pages)
    return Reading(item.want or "usable", {}, item.want, {}, note=note)


def write_nothing(_host: Host, item: Item, _part: str, _value: object) -> None:
    """Refuse: items of this kind are only looked at."""
    raise Refused("{} is only looked at".format(item.id))


def parse_digests(text: str) -> List[str]:
    """The digests (`sha256:…`) of `docker image inspect` or `podman image inspect`."""
    try:
        images = json.loads(text)
    except ValueError as error:
        raise Refused(
            "image inspect printed something that is not JSON: {}".format(error)
        ) from error
    digests: List[str] = []
    for image in images if isinstance(images, list) else []:
        listed = image.get("RepoDigests") if isinstance(image, dict) else None
        digests.extend(str(entry).rpartition("@")[2] for entry in listed or [])
    return digests


def parse_manifest(content: bytes) -> List[Tuple[str, int]]:
    """Name and size in bytes of every file of a checkpoint.

    Raises:
        Refused: it is not a manifest, or it names a file outside of its folder.
    """
    try:
        files = json.loads(content.decode("utf-8"))["files"]
        listed = [(str(entry["name"]), int(entry["size_bytes"])) for entry in files]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused("the manifest cannot be read: {!r}".format(error)) from error
    for name, _ in listed:
        if os.path.isabs(name) or ".." in name.split("/"):
            raise Refused("the manifest names {!r}, outside of its folder".format(name))
    return listed


def _wrong_files(host: Host, folder: str, files: List[Tuple[str, int]]) -> List[str]:
    wrong = []
    for name, size in files:
        try:
            found = os.stat(host.path(os.path.join(folder, name))).st_size
        except OSError as error:
            wrong.append("{}: {}".format(name, error.strerror))
            continue
        if found != size:
            wrong.append("{} has {} bytes, wanted {}".format(name, found, size))
    return wrong


def _says_missing(stderr: str) -> bool:
    text = stderr.lower()
    return any(words in text for words in ("no such image", "image not known", "not found"))


def _repository(reference: str) -> str:
    """A reference without its tag or digest."""
    plain = reference.partition("@")[0]
    head, colon, tail = plain.rpartition(":")
    return head if colon and "/" not in tail else plain
