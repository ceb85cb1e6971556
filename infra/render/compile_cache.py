"""What engines compile, kept on the host: a container goes at every stop, and what it compiled with it.

A folder is of one image (by its id) and one accelerator. What another image compiled is never read, and no engine of
another image writes there, so that nobody has to compare what is inside.
"""

from __future__ import annotations

import shlex

from infra.catalog.load import Catalog, UnknownIdError
from infra.catalog.schema import Release
from infra.plan.process import Plan, Process
from infra.render.container import ContainerRuntime
from infra.render.host_paths import cache_folder

# In a container: the folder of its own image and accelerator.
CONTAINER_FOLDER = "/var/cache/moe-infra-compile"
# In the shell behind `cache_lines`: one word that mounts the folder, or none.
CACHE_MOUNT = f'${{cache:+"--mount=type=bind,source=$cache,target={CONTAINER_FOLDER}"}}'


def cache_variables(plan: Plan, process: Process, catalog: Catalog) -> dict[str, str]:
    """The variables that name a process's caches; {} where it has none, or no container that would lose them.

    What the process is told otherwise is left to it: it keeps that cache itself.
    """
    if process.kind != "engine" or plan.runtime == "native":
        return {}
    release = _release(plan, catalog)
    if release is None:
        return {}
    vendor = catalog.accelerator(plan.host(process.host).accelerator).vendor
    folders = release.compile_caches.get(vendor, {})
    return {
        name: f"{CONTAINER_FOLDER}/{folder}"
        for name, folder in folders.items()
        if name not in process.env
    }


def cache_lines(runtime: ContainerRuntime, image: str, stack: str, accelerator: str) -> list[str]:
    """Shell lines that set `cache` to the folder of an image and accelerator, to "" where there can be none.

    An engine that cannot keep what it compiles serves nevertheless.
    """
    asked = f"{runtime} image inspect --format {shlex.quote('{{.Id}}')} {shlex.quote(image)}"
    folder = shlex.quote(f"{cache_folder(stack)}/compile/{accelerator}")
    return [
        f"image=$({asked}) || image=",
        f'cache=${{image:+{folder}/"${{image#sha256:}}"}}',
        'test -z "$cache" || mkdir -p "$cache" || cache=',
    ]


def _release(plan: Plan, catalog: Catalog) -> Release | None:
    try:
        return catalog.release(plan.engine.name, plan.engine.version)
    except UnknownIdError:
        return None
