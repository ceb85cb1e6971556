"""The operation `read`: small files as text."""

from typing import Dict, Optional

from .host import MAX_TEXT_BYTES, Host


def answer(request: Dict[str, object], host: Host) -> Dict[str, object]:
    """The text of each file; None for one that is not there or is larger than 256 KiB."""
    paths = request.get("paths")
    listed = [str(path) for path in paths] if isinstance(paths, list) else []
    return {"schema_version": 1, "files": {path: _text(host, path) for path in listed}}


def _text(host: Host, path: str) -> Optional[str]:
    try:
        with open(host.path(path), "rb") as stream:
            content = stream.read(MAX_TEXT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return content.decode("utf-8", "replace") if len(content) <= MAX_TEXT_BYTES else None
