"""`fab stacks`: the table of shipped stacks."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.plan.compile import CompiledStack, compile_file
from infra.spec.load import stack_names
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output, table

HEAD = ("stack", "model", "engine", "hardware", "roles", "hosts", "devices", "platform")


def run(options: Options, output: Output) -> int:
    """Print every shipped stack, compiled against documentation addresses."""
    del options
    catalog = Catalog()
    compiled = [compile_file(name, catalog=catalog) for name in stack_names()]
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": None,
            "ok": True,
            "stacks": [_document(stack) for stack in compiled],
        }
    )
    output.data(table([HEAD, *(_row(stack) for stack in compiled)]))
    output.next_command("fab plan --stack NAME")
    return 0


def _row(compiled: CompiledStack) -> tuple[str, ...]:
    plan = compiled.plan
    hardware = " + ".join(dict.fromkeys(host.accelerator for host in plan.hosts))
    return (
        plan.stack,
        plan.checkpoint,
        f"{plan.engine.name} {plan.engine.version}",
        hardware,
        _roles(compiled),
        str(plan.num_hosts),
        str(sum(len(process.devices) for process in plan.processes)),
        plan.platform,
    )


def _roles(compiled: CompiledStack) -> str:
    """`2 x prefill DP4 TP1, decode DP16 TP1`."""
    words = []
    for settings in compiled.resolved.roles:
        times = f"{settings.replicas} x " if settings.replicas > 1 else ""
        data = f"DP{settings.data_parallel} " if settings.data_parallel > 1 else ""
        words.append(f"{times}{settings.role} {data}TP{settings.tensor_parallel}")
    return ", ".join(words)


def _document(compiled: CompiledStack) -> dict[str, object]:
    plan = compiled.plan
    return {
        "name": plan.stack,
        "summary": compiled.stack.spec.summary,
        "model": plan.model,
        "checkpoint": plan.checkpoint,
        "engine": {"name": plan.engine.name, "version": plan.engine.version},
        "accelerators": list(dict.fromkeys(host.accelerator for host in plan.hosts)),
        "platform": plan.platform,
        "roles": [
            {
                "role": settings.role,
                "replicas": settings.replicas,
                "data_parallel": settings.data_parallel,
                "tensor_parallel": settings.tensor_parallel,
            }
            for settings in compiled.resolved.roles
        ],
        "num_hosts": plan.num_hosts,
        "num_devices": sum(len(process.devices) for process in plan.processes),
    }
