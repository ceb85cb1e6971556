"""The shape of `networks/<id>.yaml`: a network between hosts that asks its processes for libraries of its own."""

from pydantic import Field, StrictStr

from infra.catalog.schema import EnvironmentValue
from infra.catalog.sourced import SourcedEntry
from infra.spec.stack import Platform


class HostNetwork(SourcedEntry):
    """A network between hosts.

    Args:
        platforms: where every host with accelerators has it.
        user_space: folders of its libraries, in an image or mounted from the host; a process without any of them goes
            over TCP, and says nothing.
        pod_resource: what its device plugin calls one device. The plugin puts the device's files into a pod.
        device_folder: where these files lie.
        env: variables of every process that reaches other hosts over it.
        chosen_by: variables and values by which a command says that it goes over it.
        nixl_backends: what NIXL moves KV with over it.
        unreached_by: transports of experts (`all2all-backend`, `moe-a2a-backend`) that do not work over it.
    """

    id: StrictStr = ""
    platforms: tuple[Platform, ...]
    user_space: tuple[StrictStr, ...]
    pod_resource: StrictStr
    device_folder: StrictStr
    env: dict[StrictStr, EnvironmentValue] = Field(default_factory=dict)
    chosen_by: dict[StrictStr, EnvironmentValue]
    nixl_backends: tuple[StrictStr, ...]
    unreached_by: tuple[StrictStr, ...]
