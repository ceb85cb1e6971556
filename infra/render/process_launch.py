"""How each process of a plan is started: in a container, from a virtual environment, or from a package."""

from __future__ import annotations

from infra.catalog.load import Catalog
from infra.catalog.router_release import RouterRelease
from infra.catalog.schema import Mount
from infra.engines import haproxy
from infra.errors import StackError
from infra.plan.process import Plan, Process
from infra.render.compile_cache import cache_variables
from infra.render.container import DeviceAccess
from infra.render.host_paths import ENGINE_ENVIRONMENTS, ROUTER_ENVIRONMENTS
from infra.render.launch_script import ContainerLaunch, NativeLaunch


def process_launch(
    plan: Plan, process: Process, router: RouterRelease | None, catalog: Catalog
) -> ContainerLaunch | NativeLaunch:
    """How a process is started; `router` is the release of one that is a router, None for others."""
    if process.kind == "edge":
        return NativeLaunch(environment=None, package=haproxy.PACKAGE)
    if router is not None and router.package is not None:
        return NativeLaunch(
            environment=f"{ROUTER_ENVIRONMENTS}/{router.id}-{router.version}",
            package=router.package,
        )
    if plan.runtime == "native":
        name = f"{plan.engine.name}-{plan.engine.version}"
        package = f"{plan.engine.name}=={plan.engine.version}"
        return NativeLaunch(environment=f"{ENGINE_ENVIRONMENTS}/{name}", package=package)
    devices = None
    mounts, cache = process.mounts, None
    if process.kind == "engine":
        host = plan.host(process.host)
        access = catalog.accelerator(host.accelerator).container
        engine_hosts = {p.host for p in plan.processes if p.kind == "engine"}
        devices = DeviceAccess(
            access=access, num_devices=host.num_devices, spans_hosts=len(engine_hosts) > 1
        )
        weights = Mount(source=plan.weights_path, target=plan.weights_path)
        mounts = (weights, *process.mounts, *access.mounts)
        cache = host.accelerator if cache_variables(plan, process, catalog) else None
    return ContainerLaunch(
        runtime=plan.runtime,
        image=runnable_image(plan.engine.image),
        entrypoint=plan.engine.entrypoint,
        devices=devices,
        mounts=mounts,
        cache=cache,
    )


def router_release(process: Process, catalog: Catalog) -> RouterRelease:
    """The router whose program the argument vector starts with.

    Raises:
        StackError: none of the catalogue's.
    """
    release = catalog.router_of(process.argv)
    if release is not None:
        return release
    known = ", ".join(catalog.ids("routers"))
    what = f"{' '.join(process.argv[:3])} is not how any known router starts."
    raise StackError(process.id, what, f"Known are {known}.")


def runnable_image(image: str) -> str:
    """What an image is started by: its tag where it has one, for mirrors and archives give no other name.

    That the tag is the wanted digest is looked at by `up` and `verify`.
    """
    name, _, digest = image.partition("@")
    has_tag = ":" in name.rpartition("/")[2]
    return name if has_tag or not digest else image
