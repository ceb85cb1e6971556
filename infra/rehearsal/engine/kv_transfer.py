"""The KV-transfer configuration of one process, and what its connector demands."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple

from .catalogue import JsonFields
from .command_line import Arguments
from .failures import Failed, invalid
from .parallel import Parallel, Version
from .world import is_in_container

# Where vllm-ascend's images have Mooncake as a wheel; until then they build it.
MOONCAKE_WHEEL = (0, 23, 0)
MOONCAKE_LIBRARY = "ascend_transport.so"
Connector = Literal["nixl", "mooncake", "ascend-mooncake", "none"]

# The plugins of NIXL 1.5.1 and of its source tree.
NIXL_BACKENDS = (
    "UCX", "LIBFABRIC", "GDS", "GDS_MT", "POSIX", "OBJ", "GUSLI", "GPUNETIO", "AZURE_BLOB", "INFINIA", "HF3FS",
    "Mooncake", "UCCL",
)  # fmt: skip
HCCN_CONFIGURATION = "/etc/hccn.conf"


class KvTransfer(NamedTuple):
    """How one process hands KV cache to others, or takes it."""

    connector: Connector
    role: str
    engine_id: str
    port: int
    extra: dict[str, Any]
    fails_on_load_error: bool

    @property
    def is_producer(self) -> bool:
        """Whether other engines fetch KV cache from here."""
        return self.role in ("kv_producer", "kv_both")

    @property
    def is_consumer(self) -> bool:
        """Whether this engine fetches KV cache."""
        return self.role in ("kv_consumer", "kv_both")


def read_kv_transfer(
    args: Arguments, fields: JsonFields, known: frozenset[str]
) -> KvTransfer | None:
    """Return the KV-transfer configuration, or None without one.

    Args:
        args: of the process.
        fields: of the release's configuration classes.
        known: the connectors that the release registers.

    Raises:
        Failed: the connector, or one inside of it, is not known to this release, or lacks its role.
    """
    config = args["kv_transfer_config"]
    if not isinstance(config, dict) or not config.get("kv_connector"):
        return None
    name = config["kv_connector"]
    _check_connector(config, fields.classes["KVTransferConfig"], known)
    kinds: dict[str, Connector] = {
        "NixlConnector": "nixl",
        "NixlPullConnector": "nixl",
        "NixlPushConnector": "nixl",
        "MooncakeConnector": "mooncake",
        "MooncakeConnectorV1": "ascend-mooncake",
        "MooncakeHybridConnector": "ascend-mooncake",
        "MooncakeLayerwiseConnector": "ascend-mooncake",
    }
    return KvTransfer(
        connector=kinds.get(name, "none"),
        role=config["kv_role"],
        engine_id=str(config.get("engine_id") or random_id()),
        port=int(config.get("kv_port", 14579)),
        extra=config.get("kv_connector_extra_config") or {},
        fails_on_load_error=config.get("kv_load_failure_policy", "fail") == "fail",
    )


def _check_connector(
    config: dict[str, Any], taken: dict[str, list[str]], known: frozenset[str]
) -> None:
    """The class of a connector is looked up with the configuration, and those of the connectors inside of it."""
    name = config["kv_connector"]
    if name not in known and not config.get("kv_connector_module_path"):
        raise invalid("VllmConfig", f"Unsupported connector type: {name}")
    if name != "MultiConnector":
        return
    inner = (config.get("kv_connector_extra_config") or {}).get("connectors")
    if inner is None:
        raise Failed("AssertionError", "ktcs is not None", "EngineCore")
    for each in inner:
        for key in each:
            if key not in taken:
                raise invalid("VllmConfig", f"{key}\n  Unexpected keyword argument")
        if each.get("kv_connector") is None:
            raise invalid("VllmConfig", "Connector name is not set in KVTransferConfig")
        if each.get("kv_role") is None:
            message = "Please specify kv_role when kv_connector is set, supported roles are"
            raise invalid("VllmConfig", f"{message} ('kv_producer', 'kv_both', 'kv_consumer')")
        _check_connector(each, taken, known)


def rank_engine_id(kv: KvTransfer, parallel: Parallel, rank: int, version: Version) -> str:
    """Return the engine id of one rank: vLLM appends the local rank, from 0.33.0 the global one."""
    if parallel.size == 1:
        return kv.engine_id
    local = 0 if parallel.mode in ("external", "multi-port") else rank - parallel.first_rank
    return f"{kv.engine_id}_dp{rank if version >= (0, 33) else local}"


def random_id() -> str:
    """Return a random identity in the form of a UUID; the uuid module is slow to import."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def check_backends(kv: KvTransfer) -> None:
    """Check that NIXL has a plugin of each name that it is told.

    Raises:
        Failed: NIXL's own error.
    """
    for name in kv.extra.get("backends", ()):
        if name not in NIXL_BACKENDS:
            raise Failed("KeyError", repr(name), "EngineCore")


def check_ascend_sizes(kv: KvTransfer, parallel: Parallel) -> None:
    """Check the sizes that MooncakeConnectorV1 is told against the real ones.

    Raises:
        Failed: vllm-ascend's own ValueError or AssertionError.
    """
    sides = []
    if kv.is_producer:
        sides.append("prefill")
    if kv.is_consumer:
        sides.append("decode")
    for side in sides:
        config = kv.extra.get(side, {})
        for key, noun, real in (
            ("tp_size", "tensor", parallel.tensor),
            ("dp_size", "data", parallel.size),
        ):
            if key in config and config[key] != real:
                raise Failed(
                    "ValueError",
                    f"KV transfer '{side}' config has a conflicting {noun} parallel size. "
                    f"Expected {real}, but got {config[key]}.",
                )


def check_ascend_connector(kv: KvTransfer, parallel: Parallel, plugin: str) -> None:
    """The checks of MooncakeConnectorV1's worker and of Mooncake itself.

    Raises:
        Failed: a size is missing or impossible, or Mooncake does not find its libraries or its configuration.
    """
    for side in ("prefill", "decode"):
        for key in ("tp_size", "dp_size"):
            if key not in kv.extra.get(side, {}):
                raise Failed(
                    "AssertionError", f"kv_connector_extra_config.{side}.{key}", "EngineCore"
                )
    prefill, decode = kv.extra["prefill"]["tp_size"], kv.extra["decode"]["tp_size"]
    if prefill < decode:
        raise Failed(
            "ValueError",
            f"prefill_tp_size: {prefill} must be greater than or equal to the decode_tp_size: {decode}",
            process="EngineCore",
        )
    if kv.role == "kv_consumer" and parallel.pipeline != 1:
        raise Failed("AssertionError", "decode pp_size must be 1", "EngineCore")
    _load_mooncake(plugin)
    path = os.environ.get("MOE_REHEARSAL_HCCN_CONF", HCCN_CONFIGURATION)
    if not os.path.isfile(path):
        raise Failed(
            "RuntimeError",
            f"TransferEngine initialization failed with ret_value: -1\n"
            f"(mooncake) can't open conf file: {path}",
            process="EngineCore",
        )


def _load_mooncake(plugin: str) -> None:
    """Load Mooncake as its Python module does: where images have built it, ld.so is told its folder by a shell alone.

    Sources: vllm-ascend Dockerfile.a3@v0.22.1rc1 (`make install` to /usr/local/lib, no `ldconfig`) and @v0.23.0rc1 (a
    wheel, whose libraries lie beside each other), mooncake_transfer_engine.py@v0.22.1rc1; vllm-ascend issue 6949.

    Raises:
        Failed: vllm-ascend's own ImportError, after the loader's.
    """
    if not is_in_container(dict(os.environ)) or _numbers(plugin) >= MOONCAKE_WHEEL:
        return
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if not any(os.path.exists(os.path.join(each, MOONCAKE_LIBRARY)) for each in folders if each):
        raise Failed(
            "ImportError",
            f"{MOONCAKE_LIBRARY}: cannot open shared object file: No such file or directory\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            "ImportError: Please install mooncake by following the instructions at "
            "https://github.com/kvcache-ai/Mooncake/blob/main/doc/en/build.md to run vLLM with MooncakeConnector.",
            "EngineCore",
        )


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release: `0.22.1rc1` is (0, 22, 1)."""
    return tuple(int(part) for part in version.partition("rc")[0].split("."))
