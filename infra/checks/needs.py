"""What a rule has to know to be judged: of an imported file some of it may be unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Need = Literal[
    "release", "names", "accelerator", "checkpoint", "addresses", "whole", "layout", "ports"
]

# What a finding that holds wherever the hosts are does not ask for.
PLACES: tuple[Need, ...] = ("addresses", "whole", "layout")
# Rules that speak of routers alone: where nothing but a router may be missing members, all others are judged.
OF_ROUTERS = frozenset({"router-endpoints", "router-key", "router-patience"})
# Rules about what the compiler alone decides: an imported plan says nothing of it.
COMPILERS_OWN = frozenset(
    {
        "derived-field",
        "missing-image",
        "different-images",
        "accelerator-not-rented",
        "pair-incomplete",
        "load-target",
        "key-not-taken",
        "secret-file",
        "open-entrance",
        "mixed-group",
        "recipe-release",
        "no-recipe",
        "plain-endpoint",
        "host-remote-code",  # of a bare command line nobody knows what it is wrapped in
    }
)

NEEDS: Mapping[Need, frozenset[str]] = {
    # the release, or releases on both sides of it: parser, classes, defaults, behaviour
    "release": frozenset(
        {
            "unknown-flag",
            "json-flag-value",
            "parser-name",
            "quantization-method",
            "attention-backend",
            "attention-accelerator",
            "attention-settings",
            "attention-model",
            "server-arguments",
            "flag-combination",
            "chat-template",
            "unread-variable",
            "variable-value",
            "ignored-value",
            "draft-checkpoint",
            "mapped-weights",
            "aiter-heads",
            "fp8-cache-untried",
            "latent-offloading",
            "expert-transport",
            "overlap-transport",
            "block-size-order",
            "kv-role-deprecated",
            "kv-connector",
            "transfer-stages",
            "additional-config-key",
            "number-variable",
            "flash-comm-layout",
            "balance-scheduling",
            "recompute-scheduler",
            "recompute-on-prefill",
            "kv-port-drawn",
            "kv-port-low",
            "draft-incomplete",
            "batched-tokens",
            "instance-sizes",
            "leader-start-rank",
            "model-architecture",
            "draft-disagrees",
            "decode-stages",
            "prefill-contexts",
            "context-parallel-size",
            "role-setting",
            "interleave-size",
            "balance-scheduling-early",
            "ready-timeout",
            "swap-space",
            "balancing-modes",
            "headless-mode",
            "ranks-per-host",
            "weights-memory",
            "kv-memory",
            "kv-memory-tight",
        }
    ),
    # a release with a name: what is built from some branch may register and read more than any release
    "names": frozenset(
        {
            "advisory",
            "unknown-flag",
            "json-flag-value",
            "parser-name",
            "quantization-method",
            "attention-backend",
            "chat-template",
            "unread-variable",
            "variable-value",
            "ignored-value",
            "kv-connector",
            "additional-config-key",
            "number-variable",
        }
    ),
    "accelerator": frozenset(
        {
            "engine-vendor",
            "attention-accelerator",
            "attention-settings",
            "checkpoint-accelerator",
            "image-architecture",
            "library-architecture",
            "draft-accelerator",
            "ray-data-parallel",
            "fabric-domain",
            "pod-per-rank",
            "service-port",
            "aiter-heads",
            "aiter-vskip",
            "fp8-cache-untried",
            "latent-offloading",
            "expert-transport",
            "kv-port-drawn",
            "kv-port-low",
            "weights-memory",
            "kv-memory",
            "kv-memory-tight",
        }
    ),
    "checkpoint": frozenset(
        {
            "heads-divisible",
            "attention-model",
            "context-length",
            "checkpoint-accelerator",
            "draft-checkpoint",
            "aiter-heads",
            "flash-comm-layout",
            "model-architecture",
            "probe-patience",
            "ready-timeout",
            "router-patience",
            "swap-space",
            "weights-memory",
            "kv-memory",
            "kv-memory-tight",
            "vision-nixl",
            "quantization-ignored",
            "fp8-cache-untried",
            "latent-offloading",
            "one-prefill-one-decode",
        }
    ),
    "addresses": frozenset(
        {
            "dangling-connect",
            "leader-address",
            "side-channel-host",
            "host-variable",
            "loopback-endpoint",
            "router-endpoints",
            "public-address",
        }
    ),
    # every process of the deployment, or of the group
    "whole": frozenset(
        {
            "ranks-incomplete",
            "dangling-connect",
            "router-endpoints",
            "router-key",
            "instance-sizes",
            "peer-sizes",
            "roles-disagree",
            "roles-uneven",
            "draft-disagrees",
            "served-name-differs",
            "router-patience",
            "one-prefill-one-decode",
        }
    ),
    "layout": frozenset(
        {
            "dispatch-buffer",
            "parallel-size",
            "heads-divisible",
            "context-parallel-size",
            "ranks-incomplete",
            "group-flags-differ",
            "group-flags-uneven",
            "group-variables-differ",
            "group-variables-uneven",
            "shared-memory",
            "devices-unused",
            "hosts-unused",
            "container-network",
            "pod-names",
            "pods-in-turn",
            "balancing-modes",
            "local-ranks",
            "node-place",
            "nodes-meet",
            "api-servers",
            "headless-mode",
            "ranks-per-host",
            "sglang-data-parallel",
            "server-arguments",
            "expert-balancing",
            "experts-even",
            "device-shared",
            "instance-sizes",
            "peer-sizes",
            "ascend-prefill-width",
            "flash-comm-layout",
            "leader-start-rank",
            "ray-data-parallel",
            "fabric-domain",
            "pod-per-rank",
            "decode-stages",
            "transfer-stages",
            "prefill-contexts",
            "ready-timeout",
            "leader-address",
            "dangling-connect",
            "port-twice",
            "kv-port-drawn",
            "kv-port-low",
            "weights-memory",
            "kv-memory",
            "kv-memory-tight",
            "aiter-heads",
        }
    ),
    "ports": frozenset(
        {"port-twice", "port-range", "port-variable", "internal-port", "service-port"}
    ),
}
