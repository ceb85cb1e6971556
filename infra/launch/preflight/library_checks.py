"""Checks of what the kernel offers to libraries that processes are started with."""

from __future__ import annotations

from collections.abc import Iterator

from infra.launch.preflight.scene import Scene, Trouble

LIBRARY = "jemalloc"
SMALL_PAGES = 4096


def jemalloc_hosts(scene: Scene) -> tuple[str, ...]:
    """The hosts with processes that preload jemalloc."""
    named = {
        process.host
        for process in scene.plan.processes
        for variables in (process.env, process.env_prepend)
        if LIBRARY in variables.get("LD_PRELOAD", "")
    }
    return tuple(host for host in scene.engine_hosts if host in named)


def find_large_pages(scene: Scene) -> Iterator[Trouble]:
    """Kernels with pages larger than a jemalloc may have been built for: such a one ends every process at once.

    Upstream builds for 64 KiB on Arm since 5.3.1, distributions differ before (falcosecurity/falco#3954,
    qdrant/qdrant#6512).
    """
    for name in jemalloc_hosts(scene):
        told = (scene.hosts[name].text("page-size") or "").strip()
        if told.isdigit() and int(told) > SMALL_PAGES:
            image = scene.plan.engine.image
            yield Trouble(
                host=name,
                severity="warn",
                observed=f"the kernel has pages of {int(told) // 1024} KiB, and LD_PRELOAD names {LIBRARY}",
                wanted=f"a {LIBRARY} that was built for such pages",
                fix=f"Try it on {name}: {scene.plan.runtime} run --rm -e LD_PRELOAD=LIBRARY --entrypoint true {image}",
            )
