"""The hash of a plan as any other tool would compute it of its document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def document_hash(document: Mapping[str, object]) -> str:
    """SHA-256 of a document: sorted keys, no spaces, UTF-8; of secrets the names alone."""
    secrets = document.get("secrets")
    named: dict[str, object] = (
        {name: {} for name in secrets} if isinstance(secrets, Mapping) else {}
    )
    document = {**document, "secrets": named}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
