"""Releases that the catalogue can judge by: the pinned ones, and those of which it has the package alone."""

from __future__ import annotations

from infra.catalog.load import Catalog, UnknownIdError, version_key
from infra.catalog.schema import Release
from infra.spec.nearest import nearest


def read_versions(catalog: Catalog, engine: str) -> tuple[str, ...]:
    """The versions of an engine whose package was read, oldest first; pinned ones are among them."""
    folder = catalog.root / "packages"
    stems = (path.stem for path in folder.glob(f"{engine}-[0-9]*.json"))
    found = {stem.removeprefix(f"{engine}-") for stem in stems}
    if engine == "vllm-ascend":  # its flags are those of its vLLM
        found = {v for v in found if (folder / f"vllm-{base_version(v)}.json").is_file()}
    return tuple(sorted({*found, *catalog.releases(engine)}, key=version_key))


def read_release(catalog: Catalog, engine: str, version: str) -> Release:
    """A release to judge by: a pinned one, or its package's contents over what the nearest pinned one is.

    A release that is not pinned has no images and sets no variables: nothing can be deployed from it.

    Raises:
        UnknownIdError: its package was never read.
    """
    pinned = catalog.releases(engine)
    if version in pinned:
        return catalog.release(engine, version)
    known = read_versions(catalog, engine)
    if version not in known:
        what = f"The catalogue has no {engine} {version}."
        raise UnknownIdError(f"infra/catalog/packages/{engine}", what, nearest(version, known))
    older = [v for v in pinned if version_key(v) < version_key(version)]
    base = base_version(version) if engine == "vllm-ascend" else None
    own = f"{engine}-{version}"
    flags_catalogue = own if base is None else f"vllm-{base}"
    similar = catalog.release(engine, older[-1] if older else pinned[0])
    share = catalog.flags(flags_catalogue).by_name.get("gpu-memory-utilization")
    default = share.default if share is not None else None
    return similar.model_copy(
        update={
            "id": version,
            "summary": f"{engine} {version}, read for judging alone",
            "version": version,
            "base_version": base,
            "flags_catalogue": flags_catalogue,
            "envs_catalogues": (own,) if base is None else (f"vllm-{base}", own),
            "gpu_memory_utilization": default
            if isinstance(default, float)
            else similar.gpu_memory_utilization,
            "images": (),
            "env": {},
            "chat_templates": tuple(sorted(catalog.package(own).names("chat_templates"))),
        }
    )


def releases_around(catalog: Catalog, engine: str, version: str) -> tuple[str, ...]:
    """The version itself where its package was read, else the nearest on both sides; () where one side has none."""
    known = read_versions(catalog, engine)
    if version in known:
        return (version,)
    key = version_key(version)
    older = [v for v in known if version_key(v) < key]
    newer = [v for v in known if version_key(v) > key]
    return (older[-1], newer[0]) if older and newer else ()


def base_version(plugin: str) -> str:
    """The vLLM that a release of vllm-ascend sits on: that of its own numbers (its compatibility matrix)."""
    numbers = version_key(plugin)[0]
    return ".".join(map(str, numbers))
