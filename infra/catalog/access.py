"""Whom engines and routers let in, as their files of the catalogue say it."""

from typing import Literal

from pydantic import StrictBool, StrictStr

from infra.catalog.sourced import Entry


class EngineAccess(Entry):
    """Whom an engine's HTTP server lets in.

    Args:
        key_guards: prefixes of paths that ask for a key where the engine has one; () where it takes none from a stack.
        open_paths: paths that answer anybody all the same, what harms most first.
    """

    key_guards: tuple[StrictStr, ...]
    open_paths: tuple[StrictStr, ...]


class RouterAccess(Entry):
    """Whom a router lets in.

    Args:
        client_key: `none` where it asks clients for no key, whatever it is given; `flag` where --api-key guards all.
        sends_own_key: whether engines are asked with a key of the router's in the place of the client's.
        passes_any_post: whether a POST to a path that it does not know goes through to engines.
        control_paths: paths by which its clients change or empty what it serves.
    """

    client_key: Literal["none", "flag"]
    sends_own_key: StrictBool
    passes_any_post: StrictBool
    control_paths: tuple[StrictStr, ...]
