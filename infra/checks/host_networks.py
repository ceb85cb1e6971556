"""Rules about a network between hosts that asks processes for libraries of its own."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalog.host_networks import HostNetwork
from infra.catalog.schema import Image
from infra.checks.view import Finding, PlanView
from infra.engines.vllm import KV_ROLES
from infra.plan.host_mounts import is_at_or_below
from infra.plan.process import Process
from infra.spec.stack import KUBERNETES

# By family, the flag that names how experts of other hosts are reached.
EXPERT_TRANSPORT = {"vllm": "all2all-backend", "sglang": "moe-a2a-backend"}


def user_space_there(view: PlanView) -> Iterator[Finding]:
    """What reaches other hosts over such a network runs in an image with its libraries, or is shown the host's."""
    if view.plan.runtime == "native" or not _is_stock(view):
        return
    for process, network, sign in _leaving(view):
        paths = [path for mount in process.mounts for path in (mount.source, mount.target)]
        if any(is_at_or_below(path, each) for path in paths for each in network.user_space):
            continue
        what = (
            f"{process.id} reaches other hosts over {network.id} ({sign}), and {view.plan.engine.image} has no "
            "libraries for that: NCCL and NIXL take TCP, and say nothing."
        )
        images = [
            image.reference
            for image in view.release.images
            if image.network == network.id and view.accelerator(process).id in image.accelerators
        ]
        folders = " and ".join(network.user_space)
        fix = f"Use an image with {folders}, or mount the host's read-only, on LD_LIBRARY_PATH."
        if images:
            fix = f"Use {images[0]}, or an image of your own with {folders}."
        yield Finding(field="engine.image", what=what, fix=fix, process=process.id)


def experts_reach_hosts(view: PlanView) -> Iterator[Finding]:
    """Experts of a group over hosts are reached by a transport that works over the network between them.

    An image of somebody's own may hold another library under the transport's name.
    """
    is_native = view.plan.runtime == "native"
    if view.plan.engine.image and not is_native and not _is_known(view):
        return
    name = EXPERT_TRANSPORT[view.family]
    for process, network, sign in _leaving(view):
        backend = str(view.flags(process).get(name) or "")
        if backend in network.unreached_by and _spans_hosts(view, process):
            what = (
                f"{name} {backend} of {process.id} moves tokens between hosts by adapters that the accelerators drive "
                f"themselves; {network.id} ({sign}) has none."
            )
            fix = "Use the default transport, or keep each group on one host."
            field = f"roles.{process.role}.flags.{name}"
            yield Finding(field=field, what=what, fix=fix, process=process.id)


def plugin_alone_shows_devices(view: PlanView) -> Iterator[Finding]:
    """A pod that asks a device plugin for a network's devices is shown these, and not all that its node has."""
    if view.plan.platform not in KUBERNETES:
        return
    for process in view.variants:
        host = view.plan.host(process.host)
        for network in view.catalog.networks():
            is_asked = network.id in host.networks or view.plan.platform in network.platforms
            sources = [mount.source for mount in process.mounts]
            shown = [s for s in sources if _meet(s, network.device_folder)]
            if is_asked and shown:
                what = (
                    f"{shown[0]} of the node is mounted over what the plugin of {network.pod_resource} puts there: "
                    f"beside adapters of another kind that network is not found, and NCCL takes TCP."
                )
                fix = "Remove the mount: the plugin shows the pod its own devices."
                field = f"roles.{process.role}"
                yield Finding(field=field, what=what, fix=fix, process=process.id)


def _leaving(view: PlanView) -> Iterator[tuple[Process, HostNetwork, str]]:
    """One process of each kind that reaches other hosts over such a network, which, and what says so."""
    for process in view.variants:
        if not _spans_hosts(view, process) and not _moves_kv(view, process):
            continue
        for network in view.catalog.networks():
            if sign := _sign(view, process, network):
                yield process, network, sign


def _sign(view: PlanView, process: Process, network: HostNetwork) -> str | None:
    """What says that a process reaches other hosts over a network; None where nothing does."""
    for variable, value in network.chosen_by.items():
        if process.env.get(variable) == value:
            return f"{variable}={value}"
    if view.accelerator(process).fabric_spans_hosts:
        return None
    if view.plan.platform in network.platforms:
        return f"platform {view.plan.platform}"
    if network.id in view.plan.host(process.host).networks:
        return f"the network of {process.host}"
    return None


def _spans_hosts(view: PlanView, process: Process) -> bool:
    return len({member.host for member in view.groups[process.group]}) > 1


def _moves_kv(view: PlanView, process: Process) -> bool:
    """Whether KV caches go between hosts: prefill and decode lie on several."""
    hosts = {each.host for each in view.engines if each.role in KV_ROLES}
    return process.role in KV_ROLES and len(hosts) > 1


def _is_stock(view: PlanView) -> bool:
    """Whether the image is one of the catalogue's, of any release, without such libraries."""
    return any(each.network is None for each in _images(view))


def _is_known(view: PlanView) -> bool:
    """Whether the image is one of the catalogue's, of any release: what it holds is what upstream builds."""
    return bool(_images(view))


def _images(view: PlanView) -> list[Image]:
    own = _name(view.plan.engine.image)
    return [each for each in view.release.images if own.endswith(_name(each.reference))]


def _name(image: str) -> str:
    """`owner/name` of a reference, whichever registry has it."""
    head, _, tail = image.partition("@")[0].rpartition("/")
    return f"/{head.rpartition('/')[2]}/{tail.partition(':')[0]}"


def _meet(path: str, folder: str) -> bool:
    """Whether a mount of a path shows a folder, a part of it, or what holds it."""
    return is_at_or_below(path, folder) or is_at_or_below(folder, path)
