"""Which of a release's images a role runs in, and what it reaches other hosts over."""

from __future__ import annotations

from infra.catalog.host_networks import HostNetwork
from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator, Image, Release
from infra.spec.stack import Platform, Role


def network_between(
    role: Role, accelerator: Accelerator, platform: Platform, catalog: Catalog, *, moves_kv: bool
) -> HostNetwork | None:
    """The network that a role's processes reach other hosts over, where its libraries are not every image's.

    None for a role that stays on one host, where the accelerators' own fabric spans hosts, and where the platform does
    not say.

    Args:
        role: with its defaults.
        accelerator: of its hosts.
        platform: of the stack.
        catalog: what is true of the world.
        moves_kv: whether it hands KV caches to another role, or takes them.
    """
    num_devices = (
        (role.tensor_parallel or 1) * (role.pipeline_parallel or 1) * (role.data_parallel or 1)
    )
    is_alone = num_devices <= accelerator.devices_per_host and not moves_kv
    if is_alone or accelerator.fabric_spans_hosts:
        return None
    return next((each for each in catalog.networks() if platform in each.platforms), None)


def choose_image(
    release: Release, accelerator: Accelerator, network: HostNetwork | None
) -> Image | None:
    """The release's image for an accelerator, with the network's libraries where there is such a one.

    None when the catalogue has none for the accelerator.
    """
    images = [each for each in release.images if accelerator.id in each.accelerators]
    wanted = None if network is None else network.id
    fitting = [each for each in images if each.network == wanted]
    plain = [each for each in images if each.network is None]
    return next(iter([*fitting, *plain]), None)
