"""Container images by digest, from a registry, a mirror or an archive; and virtual environments in their place."""

import glob
import json
import os
import re
from typing import Any, Dict, List, Optional

from ..host import Host, Refused
from ..item import Item, Reading, absent_reading
from ..trees import open_file
from .programs import says_missing

INSPECT_S = 20.0
PULL_S = 3600.0
RUNTIMES = ("docker", "podman")
HEX_ID = re.compile(r"^[0-9a-f]{64}$")


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
        if not says_missing(answer.stderr):
            raise Refused("{} image inspect: {}".format(runtime, answer.last_words))
        return Reading(None, {"image": None}, wanted, {"image": wanted})
    known = [*parse_digests(answer.stdout), *parse_ids(answer.stdout)]
    if digest is None:
        note = _strange_digest(answer.stdout, reference, item.text("known_digest"))
        return Reading(known[0] if known else reference, {"image": wanted}, wanted, {}, note=note)
    found = digest if digest in known else [*known, "no digest"][0]
    return Reading(found, {"image": found}, digest, {"image": digest})


def bring_image(host: Host, item: Item, _part: str, _value: object) -> None:
    """Bring the image here: out of an archive, from a mirror, or from its registry; by digest where one is wanted."""
    runtime, reference = item.text("runtime") or "", item.text("reference") or item.target
    digest, archive, mirror = item.text("digest"), item.text("archive"), item.text("mirror")
    if archive is not None:
        try:
            os.close(open_file(host.path(archive)))  # no pipe, and no link that others made
        except FileNotFoundError as error:
            raise Refused("the archive {} is not on this host".format(archive)) from error
        _do(host, [runtime, "load", "--input", host.path(archive)])
        return
    if digest is None and mirror is None:
        digest = item.text("known_digest")  # a mirror may name what it keeps otherwise
    place = _at_mirror(reference, mirror) if mirror is not None else reference
    pulled = "{}@{}".format(_repository(place), digest) if digest is not None else place
    _do(host, [runtime, "pull", "--quiet", pulled])
    if pulled != reference and "@" not in reference:
        _do(host, [runtime, "tag", pulled, reference])  # what launch scripts call it


def read_environment(host: Host, item: Item) -> Reading:
    """A virtual environment: its program is there, and the package has the wanted version where it tells one."""
    name, _, version = (item.text("package") or "").partition("==")
    program = os.path.join(item.target, "bin", item.text("program") or name)
    fix = item.text("fix") or ""
    if not host.exists(program):
        why = "{} is not there; make it: {}".format(program, fix)
        return Reading(None, {}, item.want, {}, locked=why)
    found = _installed(host, item.target, name)
    if found and version not in found and version not in [_public(one) for one in found]:
        why = "it holds {} {}, wanted {}; make it: {}".format(name, found[0], version, fix)
        return Reading(found[0], {}, item.want, {}, locked=why)
    note = "" if found else "which {} it holds cannot be told".format(name)
    return Reading(item.want, {}, item.want, {}, note=note)


def _strange_digest(text: str, reference: str, known: Optional[str]) -> str:
    """What is to be said of an image that came from its own registry, and is not what its tag is known to mean."""
    own = _repository(reference) + "@"
    named = [name for image in _images(text) for name in image.get("RepoDigests") or []]
    found = [str(name)[len(own) :] for name in named if str(name).startswith(own)]
    if known is None or not found or known in found:
        return ""
    return "its digest is {}; the catalogue knows {} by this tag".format(found[0], known)


def parse_digests(text: str) -> List[str]:
    """The digests (`sha256:…`) of `docker image inspect` or `podman image inspect`, as registries gave them."""
    digests: List[str] = []
    for image in _images(text):
        digests.extend(str(one).rpartition("@")[2] for one in image.get("RepoDigests") or [])
    return digests


def parse_ids(text: str) -> List[str]:
    """The images' own ids (`sha256:…`): all that one out of an archive is known by."""
    names = [str(image.get("Id") or "") for image in _images(text)]
    return [full_id(name) for name in names if name]


def full_id(name: str) -> str:
    """An image's id with its algorithm, which podman leaves out."""
    return "sha256:" + name if HEX_ID.match(name) else name


def _images(text: str) -> List[Dict[str, Any]]:
    try:
        images = json.loads(text)
    except ValueError as error:
        raise Refused(
            "image inspect printed something that is not JSON: {}".format(error)
        ) from error
    return (
        [image for image in images if isinstance(image, dict)] if isinstance(images, list) else []
    )


def _do(host: Host, words: List[str]) -> None:
    done = host.run(words, PULL_S)
    if done.exit_code != 0:
        raise Refused("{}: {}".format(" ".join(words), done.last_words))


def _installed(host: Host, environment: str, package: str) -> List[str]:
    """Versions of a package in a virtual environment, as its own records tell."""
    stem = package.replace("-", "_")
    pattern = "{}/lib/python3*/site-packages/{}-*.dist-info".format(environment, stem)
    names = [os.path.basename(path) for path in glob.glob(host.path(pattern))]
    return [name[len(stem) + 1 : -len(".dist-info")] for name in names]


def _public(version: str) -> str:
    """A version without its local part: 0.22.1+cu129 and 0.22.1+cpu are builds of 0.22.1 (PEP 440)."""
    return version.partition("+")[0]


def _repository(reference: str) -> str:
    """A reference without its tag or digest."""
    plain = reference.partition("@")[0]
    head, colon, tail = plain.rpartition(":")
    return head if colon and "/" not in tail else plain


def _at_mirror(reference: str, mirror: str) -> str:
    """The same image at a mirror: its registry's name, if it has one, gives way to the mirror's."""
    first, slash, rest = reference.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    return "{}/{}".format(mirror.rstrip("/"), rest if has_registry else reference)
