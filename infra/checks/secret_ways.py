"""Rules about the ways of secrets: from where an operator's machine gives them, and to whom a token goes.

Sources: huggingface_hub constants.py 2.4.0 (HF_ENDPOINT, HF_INFERENCE_ENDPOINT, HF_TOKEN_PATH); modelscope 1.40.2
hub/utils/utils.py (MODELSCOPE_DOMAIN) and hub/push_to_hub.py (MODELSCOPE_API_TOKEN); checked 2026-11-26.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from infra.checks.view import Finding, PlanView
from infra.engines.credentials import SECRET_OF_VARIABLE
from infra.plan.grammar import shown
from infra.plan.process import Process
from infra.spec.weights_source import HUB_SECRETS, LOOPBACK, Hub

# Variables that hold a hub's token, variables that say where the hub is, and the hub's own domains.
_TOKENS: Mapping[Hub, tuple[str, ...]] = {
    "huggingface": ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"),
    "modelscope": ("MODELSCOPE_API_TOKEN",),
}
_ADDRESSES: Mapping[Hub, tuple[str, ...]] = {
    "huggingface": ("HF_ENDPOINT", "HF_INFERENCE_ENDPOINT"),
    "modelscope": ("MODELSCOPE_DOMAIN",),
}
_DOMAINS: Mapping[Hub, tuple[str, ...]] = {
    "huggingface": ("huggingface.co",),
    "modelscope": ("modelscope.cn", "modelscope.ai"),
}


def tokens_stay_hidden(view: PlanView) -> Iterator[Finding]:
    """A hub's token travels where nobody on the way reads it; a plan from elsewhere sends it to that hub alone."""
    is_foreign = view.surroundings.spec is None
    for process in view.variants:
        for hub, names in _ADDRESSES.items():
            for name in names:
                address = process.env.get(name, "")
                where = _wrong_way(hub, address, is_foreign=is_foreign)
                if where is None or not _has_token(view, process, hub):
                    continue
                what = f"{name}={shown(address)} sends the token of {hub} {where}."
                token = f"{HUB_SECRETS[hub]}, {_TOKENS[hub][0]}"
                fix = f"Use https and the hub itself, or remove {name} or the token ({token})."
                field = f"roles.{process.role}.env.{name}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def secrets_are_the_plans(view: PlanView) -> Iterator[Finding]:
    """A plan from elsewhere takes no file and no variable of the operator that is not meant for it."""
    if view.surroundings.spec is not None:
        return
    for name, reference in view.plan.secrets.items():
        file, variable = reference.get("file"), reference.get("env")
        if name in view.surroundings.secrets_elsewhere:
            what = f"The plan takes {shown(file or '')} of this machine for {name}: it lies elsewhere than the plan."
            fix = f"Put what {name} is meant to be beside the plan, and name that file."
            yield Finding(field=f"secrets.{name}.file", what=what, fix=fix)
        if variable is not None and not _is_named_for(variable, name):
            known = [each for each, secret in SECRET_OF_VARIABLE.items() if secret == name]
            what = f"The plan takes the variable {variable} of this machine for {name}: it is named for something else."
            fix = f"Name {' or '.join((*known, f'…_{name.upper()}'))}, and set that variable."
            yield Finding(field=f"secrets.{name}.env", what=what, fix=fix)


def _has_token(view: PlanView, process: Process, hub: Hub) -> bool:
    return HUB_SECRETS[hub] in view.plan.secrets or any(process.env.get(n) for n in _TOKENS[hub])


def _wrong_way(hub: Hub, address: str, *, is_foreign: bool) -> str | None:
    """Where a hub's address sends a token that should not go there, as the end of a sentence."""
    if not address:
        return None
    parts = urlsplit(address if "://" in address else f"https://{address}")
    server = parts.hostname or ""
    if server in LOOPBACK:
        return None
    if parts.scheme.lower() != "https":
        return "over plain HTTP"
    is_hubs = any(server == each or server.endswith(f".{each}") for each in _DOMAINS[hub])
    return f"to {shown(server)}, which is not {hub}" if is_foreign and not is_hubs else None


def _is_named_for(variable: str, secret: str) -> bool:
    own = secret.upper()
    return (
        SECRET_OF_VARIABLE.get(variable) == secret
        or variable == own
        or variable.endswith(f"_{own}")
    )
