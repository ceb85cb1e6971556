"""vllm-ascend on top of vLLM: Mooncake's `MooncakeConnectorV1` and its port arithmetic.

Source: vllm_ascend/distributed/kv_transfer/kv_p2p/mooncake_connector.py and utils.py
`check_kv_extra_config` @0.22.1rc1, read 2026-11-20.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.catalog.schema import Mount
from infra.engines import group_settings
from infra.engines.contract import GroupContext, PortRequest, ProcessContext, owned
from infra.engines.settings import Flag, RoleSettings, Variable
from infra.engines.vllm import KV_ROLES, Vllm
from infra.spec.stack import RoleName

HCCN_CONF = Mount(source="/etc/hccn.conf", target="/etc/hccn.conf")


class VllmAscend(Vllm):
    """vLLM with the Ascend platform plugin."""

    group_settings = group_settings.ASCEND

    def kv_port_requests(self, settings: RoleSettings) -> tuple[PortRequest, ...]:
        """One port per device of a group; consumers bind none but carry a number of their own."""
        if settings.kv_transfer is None:
            return ()
        count = settings.data_parallel * settings.rank_devices if settings.role == "prefill" else 1
        return (PortRequest(name="kv", scope="group", count=count),)

    def common_kv_flags(self, settings: RoleSettings) -> tuple[Flag, ...]:
        """Nothing in common: every group has its own engine_id and kv_port."""
        del settings
        return ()

    def kv_mounts(self, settings: RoleSettings) -> tuple[Mount, ...]:
        """Mooncake reads the devices' addresses from the host's /etc/hccn.conf.

        Source: vllm-ascend pd_disaggregation_mooncake_multi_node.md; without it see vllm-ascend#7711.
        """
        return () if settings.kv_transfer is None else (HCCN_CONF,)

    def group_kv_flags(self, context: GroupContext) -> tuple[Flag, ...]:
        """`--kv-transfer-config` with the sizes of one instance of each role, as the connector asserts."""
        if context.settings.kv_transfer is None:
            return ()
        config = {
            "kv_connector": "MooncakeConnectorV1",
            "kv_role": KV_ROLES[context.settings.role],
            "kv_port": str(context.ports["kv"]),
            "engine_id": str(context.index),
            "kv_connector_extra_config": {
                name: _sizes(context.peers, name) for name in ("prefill", "decode")
            },
        }
        return (owned("kv-transfer-config", config, "from kv_transfer; sizes are per instance"),)

    def group_kv_variables(self, context: GroupContext) -> tuple[Variable, ...]:
        """Nothing: the connector takes its port from the flag."""
        del context
        return ()

    def own_kv_variables(self, context: ProcessContext) -> tuple[Variable, ...]:
        """Nothing, as for the group."""
        del context
        return ()


def _sizes(peers: Mapping[RoleName, RoleSettings], name: str) -> dict[str, int]:
    settings = next(settings for role, settings in peers.items() if role == name)
    return {"dp_size": settings.data_parallel, "tp_size": settings.tensor_parallel}
