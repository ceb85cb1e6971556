"""What a deployment can do for clients, read from its own flags."""

from __future__ import annotations

from collections.abc import Sequence

from infra.engines.settings import RoleSettings

CAPABILITIES = ("chat", "stream", "vision", "tools", "reasoning")


def capabilities_of(roles: Sequence[RoleSettings]) -> tuple[str, ...]:
    """The capabilities that every role supports, in the order of `CAPABILITIES`."""
    supported = [_of_role(settings) for settings in roles]
    return tuple(name for name in CAPABILITIES if all(name in role for role in supported))


def _of_role(settings: RoleSettings) -> set[str]:
    found = {"chat", "stream"}
    shape = settings.weights.checkpoint.shape
    if (
        shape is not None
        and shape.vision is not None
        and "language-model-only" not in settings.flags
    ):
        found.add("vision")
    is_sglang = settings.release.engine == "sglang"
    if "tool-call-parser" in settings.flags and (
        is_sglang or "enable-auto-tool-choice" in settings.flags
    ):
        found.add("tools")
    if "reasoning-parser" in settings.flags:
        found.add("reasoning")
    return found
