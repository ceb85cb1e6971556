"""How an engine or a router takes a secret: a variable that holds it, or one that names its file.

Sources: vllm envs.py 0.22.1 (VLLM_API_KEY); huggingface_hub constants.py (HF_TOKEN_PATH); vllm-router 0.1.17
and vllm-ascend's proxy read OPENAI_API_KEY for their requests to engines (run 2026-11-20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.engines.haproxy import ENGINE_KEY_VARIABLE
from infra.spec.weights_source import HUB_SECRETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One secret as a program takes it.

    Args:
        name: of the secret in the stack.
        variable: environment variable of the program.
        holds: the secret itself, or the path of a file with it; of an edge none, as it reads the file by its name.
    """

    name: str
    variable: str
    holds: Literal["value", "path", "file"]


_HF_TOKEN = Credential(name="hf_token", variable="HF_TOKEN_PATH", holds="path")
_VLLM_KEY = Credential(name="api_key", variable="VLLM_API_KEY", holds="value")
_ROUTER_KEY = Credential(name="api_key", variable="OPENAI_API_KEY", holds="value")

_EDGE = tuple(
    Credential(name=name, variable="", holds="file")
    for name in ("edge_keys", "edge_certificate", "edge_private_key")
)
# An edge before a single endpoint sends that the key which a router would.
_EDGE_ENGINE_KEY = Credential(name="api_key", variable=ENGINE_KEY_VARIABLE, holds="value")

# sglang and sglang-router take an API key as a flag alone, where every user of the host could read it.
_KNOWN: Mapping[str, tuple[Credential, ...]] = {
    "vllm": (_HF_TOKEN, _VLLM_KEY),
    "vllm-ascend": (_HF_TOKEN, _VLLM_KEY),
    "sglang": (_HF_TOKEN,),
    "vllm-router": (_ROUTER_KEY,),
    "sglang-router": (),
    "ascend-proxy": (_ROUTER_KEY,),
    "haproxy": (*_EDGE, _EDGE_ENGINE_KEY),
}
# Every secret that some program takes, in the order in which hosts get them, and what staging alone takes.
TAKEN_SECRETS = tuple(
    dict.fromkeys(
        (*(each.name for taken in _KNOWN.values() for each in taken), *HUB_SECRETS.values())
    )
)
# Variables that operators know a secret by → the secret of a stack.
SECRET_OF_VARIABLE: Mapping[str, str] = {
    "HF_TOKEN": "hf_token",
    "HUGGING_FACE_HUB_TOKEN": "hf_token",
    "VLLM_API_KEY": "api_key",
    "OPENAI_API_KEY": "api_key",
}


def credentials_of(program: str, secrets: Mapping[str, object]) -> tuple[Credential, ...]:
    """The secrets of a stack that an engine or router takes.

    Args:
        program: name of the engine, router or edge.
        secrets: what the stack declares, by name.
    """
    known = _KNOWN.get(program, ())
    return tuple(credential for credential in known if credential.name in secrets)
