"""The edge's part of a stack file."""

from typing import Annotated, Literal

from pydantic import Field, StrictInt, StrictStr

from infra.spec.section import SecretReference, Section

EdgeName = Literal["haproxy"]
# Exact: no segment is empty or climbs, and nothing is encoded.
PATH_PATTERN = r"^(/[A-Za-z0-9_\-~][A-Za-z0-9._~\-]*)+$"
RequestPath = Annotated[StrictStr, Field(pattern=PATH_PATTERN, max_length=200)]


class EdgeTls(Section):
    """What the edge shows to clients."""

    certificate: SecretReference = Field(
        description="The certificate as PEM, its chain behind it; never its value."
    )
    key: SecretReference = Field(description="The certificate's private key as PEM.")


class Edge(Section):
    """What stands before the router, and asks every client for a key."""

    name: EdgeName = Field(description="The front's program, of the distribution's package.")
    host: Literal["router", "own"] = Field(
        default="router",
        description="router: beside the router, or beside the only endpoint; own: on the first host of the inventory's "
        "group `edge`.",
    )
    tls: EdgeTls | Literal["none"] | None = Field(
        default=None,
        description="Certificate and key, or none; must be said where the address is public.",
    )
    keys: SecretReference | None = Field(
        default=None,
        description="Clients' keys: lines of a name and a key; default: secrets.edge_keys.",
    )
    allow: tuple[RequestPath, ...] | None = Field(
        default=None,
        description="The paths that are let through, exact; default: what OpenAI's clients ask, and /health.",
    )
    connections_per_address: Annotated[StrictInt, Field(ge=1)] = Field(
        default=1024,
        description="Connections of one address that run no request with a right key; more are closed unheard. Where "
        "clients come through an address of others (a load balancer, a NAT), it is for all of them together.",
    )
    connections_per_key: Annotated[StrictInt, Field(ge=1)] = Field(
        default=256, description="Requests of one key that run at once; more are answered with 429."
    )
