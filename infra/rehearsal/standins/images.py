"""The container images that a simulated host holds, and how a reference names one."""

from __future__ import annotations

from .documents import read_document
from .failures import Refusal
from .host_state import state_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHORT_ID = 12
DEFAULT_REGISTRY = "registry-1.docker.io"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
VARIANTS = {"amd64": "", "arm64": "/v8"}
# Programs that an image of each engine has on its PATH, beside those that its entry lists.
PROGRAMS_OF_ENGINE = {
    "vllm": ("vllm", "python", "python3"),
    "vllm-ascend": ("vllm", "python", "python3"),
    "sglang": ("sglang", "python", "python3"),
}
SHELLS = ("bash", "sh")


def held_images(host: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the host holds: what `load` brought, and what `host.json` lists besides."""
    loaded = loaded_images()
    names = {split_reference(image["reference"])[:2] for image in loaded}
    listed = host.get("images") or []
    return [*loaded, *(i for i in listed if split_reference(i["reference"])[:2] not in names)]


def loaded_images() -> list[dict[str, Any]]:
    """Return the images that came out of archives."""
    try:
        found: list[dict[str, Any]] = read_document(f"{state_folder()}/loaded.json")
    except FileNotFoundError:
        return []
    return found


def find_image(images: list[dict[str, Any]], reference: str) -> dict[str, Any] | None:
    """Return the image that a reference names: name with tag, name with digest, or image id."""
    wanted_name, wanted_tag, wanted_digest = split_reference(reference)
    bare_id = reference.removeprefix("sha256:")
    for image in images:
        name, tag, _ = split_reference(image["reference"])
        if wanted_digest:
            if name == wanted_name and image.get("digest") == wanted_digest:
                return image
        elif (name, tag) == (wanted_name, wanted_tag) or (
            len(bare_id) >= SHORT_ID and image_id(image)[7:].startswith(bare_id)
        ):
            return image
    return None


def pull_image(host: dict[str, Any], reference: str) -> dict[str, Any]:
    """Return an image that `host.json` lists under `pullable`; all other registries are out of reach.

    Raises:
        Refusal: as on a host without a way to the registry.
    """
    image = find_image(host.get("pullable") or [], reference)
    if image is None:
        registry = registry_of(reference)
        raise Refusal("registry_unreachable", registry=registry, reference=reference)
    return image


def split_reference(reference: str) -> tuple[str, str, str]:
    """Return name without docker.io, tag (`latest` when none is given) and digest (or "")."""
    rest, _, digest = reference.partition("@")
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, tag = rest, ""
    for prefix in ("docker.io/", "index.docker.io/"):
        name = name.removeprefix(prefix)
    name = name.removeprefix("library/")
    return name, tag or "latest", digest


def familiar_reference(reference: str) -> str:
    """Return a reference as the client repeats it: with its tag."""
    name, tag, digest = split_reference(reference)
    return f"{name}@{digest}" if digest else f"{name}:{tag}"


def registry_of(reference: str) -> str:
    """Return the registry that a pull would ask."""
    first, slash, _ = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost") and first != "docker.io":
        return first
    return DEFAULT_REGISTRY


def image_id(image: dict[str, Any]) -> str:
    """Return the id of an image, which differs from its digest as it does on a real host."""
    given: str | None = image.get("id")
    return given or "sha256:" + image["digest"][len("sha256:") :][::-1]


def go_architecture(architecture: str) -> str:
    """Return Go's name of a processor architecture."""
    return ARCHITECTURES.get(architecture, architecture)


def platform_text(architecture: str) -> str:
    """Return a platform as docker prints it: `linux/arm64/v8`."""
    name = go_architecture(architecture)
    return f"linux/{name}{VARIANTS.get(name, '')}"


def programs_of(image: dict[str, Any]) -> tuple[str, ...]:
    """Return the names that stand for the simulated engine in an image's PATH."""
    return PROGRAMS_OF_ENGINE.get(image.get("engine") or "", ())


def image_environment(image: dict[str, Any]) -> dict[str, str]:
    """Return the variables that an image declares, PATH always among them."""
    environment = {"PATH": DEFAULT_PATH}
    environment.update(image.get("env") or {})
    return environment


def image_document(image: dict[str, Any]) -> dict[str, Any]:
    """Return what `docker image inspect` prints of an image."""
    name, tag, _ = split_reference(image["reference"])
    environment = [f"{key}={value}" for key, value in image_environment(image).items()]
    return {
        "Id": image_id(image),
        "RepoTags": [f"{name}:{tag}"],
        "RepoDigests": [f"{name}@{image['digest']}"] if image.get("digest") else [],
        "Parent": "",
        "Comment": "",
        "Created": image.get("created", "2026-01-01T00:00:00Z"),
        "DockerVersion": "",
        "Author": "",
        "Config": {
            "Env": environment,
            "Cmd": image.get("command"),
            "Image": "",
            "Volumes": None,
            "WorkingDir": image.get("working_folder", ""),
            "Entrypoint": image.get("entrypoint") or None,
            "Labels": image.get("labels"),
            "User": image.get("user", ""),
        },
        "Architecture": go_architecture(image["architecture"]),
        "Os": "linux",
        "Size": image.get("size_bytes", 20_000_000_000),
    }
