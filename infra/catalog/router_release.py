"""Shapes of `routers/`: the pinned release of each router."""

from pydantic import StrictBool, StrictStr

from infra.catalog.access import RouterAccess
from infra.catalog.sourced import SourcedEntry


class RouterRelease(SourcedEntry):
    """`routers/<name>.yaml`: the pinned release of a router.

    Args:
        package: wheel and version, installed into a virtual environment on the router's host;
            None when the program ships inside the engine's image.
        engines: whose API it speaks.
        needs_disaggregation: whether it serves prefill and decode only.
        program: what starts it, with the path inside the environment or image.
    """

    id: StrictStr = ""
    version: StrictStr
    package: StrictStr | None = None
    flags_catalogue: StrictStr | None = None
    engines: tuple[StrictStr, ...]
    needs_disaggregation: StrictBool
    program: tuple[StrictStr, ...]
    access: RouterAccess
