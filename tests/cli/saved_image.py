"""Archives of images as `docker save` of release 28 and `podman save` write them, with one layer of any size."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

LABEL = "moe-infra.rehearsal.image"


def save_image(
    path: Path, tag: str, *, played: dict[str, object] | None = None, layer_bytes: int = 1 << 20
) -> str:
    """Write an archive of one image; its id.

    Args:
        path: the archive.
        tag: the image's name in it.
        played: what the stand-in runs of it, in the form of `host.json`.
        layer_bytes: random, so that no archive is like another one.
    """
    layer = os.urandom(layer_bytes)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Labels": {LABEL: json.dumps(played or {})}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    text = json.dumps(config).encode()
    name, layer_name = (
        f"blobs/sha256/{hashlib.sha256(part).hexdigest()}" for part in (text, layer)
    )
    listed = [{"Config": name, "RepoTags": [tag], "Layers": [layer_name]}]
    with tarfile.open(path, "w") as archive:
        for member, content in (
            (layer_name, layer),
            (name, text),
            ("manifest.json", json.dumps(listed).encode()),
        ):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return f"sha256:{hashlib.sha256(text).hexdigest()}"
