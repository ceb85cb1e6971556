"""Programs and libraries of a host that engines and fronts need."""

import os
import re

from ..host import Host
from ..item import Item, Reading, absent_reading

PRELOAD_S = 5.0
IMAGE_PRELOAD_S = 60.0


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


def says_missing(stderr: str) -> bool:
    """Whether a runtime's words mean that an image is not there, and nothing worse."""
    text = stderr.lower()
    return any(words in text for words in ("no such image", "image not known", "not found"))


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
