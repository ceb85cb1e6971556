"""Rules about the KV connectors that command lines name: which there are, also inside one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra.checks.pairing import KV_ROLES
from infra.checks.view import Finding, PlanView
from infra.engines.command_line import as_map
from infra.engines.json_values import class_problems
from infra.plan.process import Process

MULTI = "MultiConnector"
CONFIG_CLASS = "KVTransferConfig"
# Plugins of NIXL (ai-dynamo/nixl src/plugins, and Mooncake's and UCCL's own); one without a name is a KeyError.
NIXL_BACKENDS = frozenset(
    {
        "UCX", "LIBFABRIC", "GDS", "GDS_MT", "POSIX", "OBJ", "GUSLI", "GPUNETIO", "AZURE_BLOB", "INFINIA", "HF3FS",
        "Mooncake", "UCCL",
    }
)  # fmt: skip


def connector_known(view: PlanView) -> Iterator[Finding]:
    """Prefill and decode each name a connector that the release registers, or bring its module; so do those inside."""
    for process in view.variants:
        config = view.kv_config(process)
        if config.get("kv_connector") is None and process.role in KV_ROLES:
            what = f"{process.role} names no kv_connector: nothing would be transferred."
            yield _finding(process, what, "Use kv_transfer: nixl or mooncake.")
        for what, fix in _problems(view, config, ""):
            yield _finding(process, what, fix)


def stages_transferred(view: PlanView) -> Iterator[Finding]:
    """NIXL hands over the KV of one pipeline stage before vLLM 0.26: of several, the last one's handshake is kept.

    From 0.26.0 on handshakes are kept by stage and tensor rank; before, a later stage's takes the place of an earlier
    one's (get_kv_connector_handshake_metadata of v1/worker/gpu_worker.py).
    """
    for process in view.variants:
        stages = view.size(process, "pipeline-parallel-size")
        if view.kv_connector(process) == "NixlConnector" and stages > 1:
            release = f"{view.release.engine} {view.release.version}"
            what = (
                f"--pipeline-parallel-size is {stages} on {process.role}, and NIXL of {release} publishes the layers "
                "of one stage: transfers fail, or land in layers of another."
            )
            field = f"roles.{process.role}.pipeline_parallel"
            fix = "Use pipeline_parallel: 1, or vLLM 0.26.0 or later."
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def _problems(
    view: PlanView, config: Mapping[str, object], inside: str
) -> Iterator[tuple[str, str]]:
    """(what, fix) of a connector's map and of those inside it; `inside` says where it stands, empty for the flag's."""
    release = f"{view.release.engine} {view.release.version}"
    name, known = config.get("kv_connector"), _registered(view)
    is_own = name is None or bool(config.get("kv_connector_module_path")) or "$" in str(name)
    if not is_own and known and name not in known:
        what = f"{release} has no connector {name}{inside}."
        fix = f"Use one of {', '.join(sorted(known))}, or name its kv_connector_module_path."
        yield what, fix
    if str(name).startswith("Nixl"):
        backends = as_map(config.get("kv_connector_extra_config")).get("backends")
        for backend in backends if isinstance(backends, list | tuple) else ():
            if backend not in NIXL_BACKENDS:
                what = f"NIXL has no plugin {backend} (backends{inside})."
                yield what, f"Use one of {', '.join(sorted(NIXL_BACKENDS))}."
    if name == MULTI:
        yield from _inner_problems(view, as_map(config.get("kv_connector_extra_config")))


def _inner_problems(view: PlanView, extra: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """MultiConnector builds a configuration of each of its `connectors` (multi_connector.py@0.17.0, 0.22.1)."""
    rows, inside = extra.get("connectors"), f" inside {MULTI}"
    if not isinstance(rows, list):
        what = f"{MULTI} has no list of `connectors` in kv_connector_extra_config."
        yield what, "Give it one map for each, with kv_connector and kv_role."
        return
    for row in rows:
        config = as_map(row)
        if view.fields is not None:
            for path, reason in class_problems(CONFIG_CLASS, config, view.fields):
                yield f"{path}{inside}: {reason}.", "Correct it: each is built as the flag's own."
        if config.get("kv_connector") is None or config.get("kv_role") is None:
            lacking = "kv_role" if config.get("kv_connector") else "kv_connector"
            yield f"A connector{inside} has no {lacking}.", f"Add {lacking}."
        yield from _problems(view, config, inside)


def _registered(view: PlanView) -> frozenset[str]:
    """The connectors of the release and of what it sits on."""
    names = dict.fromkeys([view.release.flags_catalogue, *view.release.envs_catalogues])
    return frozenset[str]().union(
        *(view.catalog.package(name).names("kv_connectors") for name in names)
    )


def _finding(process: Process, what: str, fix: str) -> Finding:
    return Finding(field="kv_transfer", what=what, fix=fix, process=process.id)
