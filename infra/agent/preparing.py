"""The operation `prepare`: load what the next requests will ask for, while nobody waits for an answer yet."""

import importlib
from typing import Dict

from .conversation import OPERATIONS
from .host import Host, Refused


def answer(request: Dict[str, object], _host: Host) -> Dict[str, object]:
    """Load the modules of some operations, and further ones by name; nothing is looked at and nothing changed."""
    operations, parts = request.get("operations"), request.get("parts")
    for operation in operations if isinstance(operations, list) else []:
        if operation not in OPERATIONS:
            raise Refused("{!r} is not an operation of this agent".format(operation))
        importlib.import_module(OPERATIONS[str(operation)], __package__)
    for part in parts if isinstance(parts, list) else []:
        importlib.import_module("." + str(part), __package__)
    return {"schema_version": 1}
