"""Asks one release, in its own environment: `python -m infra.packages.verdicts.asking_process FILE`.

Standard library only beside the release itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infra.packages.verdicts import in_routers, in_sglang, in_vllm, in_vllm_ascend
from infra.packages.verdicts.interview import AllAsked, Interview

# A speaker imports its release and takes the way that the release's program takes, up to what needs an accelerator;
# on the way it asks for the next command.
SPEAKERS: Mapping[str, Callable[[dict[str, Any], Interview], None]] = {
    "vllm": in_vllm.speak,
    "vllm-ascend": in_vllm_ascend.speak,
    "sglang": in_sglang.speak,
    "vllm-router": in_routers.speak_vllm_router,
    "sglang-router": in_routers.speak_sglang_router,
}


def main(file: str) -> None:
    """Append one answer a line to the file that the document names."""
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    interview = Interview(document)
    try:
        SPEAKERS[document["package"]](document, interview)
    except AllAsked:
        pass
    except BaseException as error:
        if not interview.is_asked:
            raise
        interview.answer(error)
    else:
        interview.answer(None)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
