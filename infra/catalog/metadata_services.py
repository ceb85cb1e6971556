"""Where clouds give a machine's own credentials away to whoever asks from there, as data (`metadata_services.yaml`)."""

from functools import cache
from pathlib import Path

from pydantic import StrictStr

from infra.catalog.files import read_entry
from infra.catalog.sourced import Entry, SourcedEntry

FILE = Path(__file__).with_name("metadata_services.yaml")


class MetadataService(Entry):
    """A service that answers HTTP on port 80 of link-local or otherwise private addresses.

    Args:
        cloud: whose it is, in words.
        addresses: IPv4 and IPv6.
    """

    cloud: StrictStr
    addresses: tuple[StrictStr, ...]


class MetadataServices(SourcedEntry):
    """`metadata_services.yaml`."""

    services: tuple[MetadataService, ...]


@cache
def metadata_addresses() -> tuple[str, ...]:
    """Every address of `metadata_services.yaml`, in its order.

    Raises:
        CatalogueError: the file is wrong.
    """
    found = read_entry(FILE, MetadataServices)
    return tuple(address for service in found.services for address in service.addresses)
