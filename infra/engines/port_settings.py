"""Which flag or variable decides each port that a process binds, for messages: names as in `Bind.name`."""

from __future__ import annotations

from collections.abc import Mapping

_SETTINGS: Mapping[str, str] = {
    "http": "port",
    "dp_rpc": "data-parallel-rpc-port",
    "master": "master-port",
    "supervisor": "data-parallel-supervisor-port",
    "side_channel": "VLLM_NIXL_SIDE_CHANNEL_PORT",
    "kv": "kv_port in kv-transfer-config",
    "kv_events": "kv-events-config",
    "dist": "dist-init-addr",
    "nccl": "nccl-port",
    "prometheus": "prometheus-port",
}
# SGLang's prefill servers have a flag for it; vLLM's MooncakeConnector reads a variable.
_BOOTSTRAP: Mapping[str, str] = {
    "sglang": "disaggregation-bootstrap-port",
    "vllm": "VLLM_MOONCAKE_BOOTSTRAP_PORT",
}


def port_setting(name: str, family: str) -> str:
    """The flag without dashes, or the variable; the name itself for a port of something else.

    Args:
        name: of a `Bind` or a `Dial`.
        family: `vllm` or `sglang`, whose flags the engine speaks.
    """
    return _BOOTSTRAP[family] if name == "bootstrap" else _SETTINGS.get(name, name)
