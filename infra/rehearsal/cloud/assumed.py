"""What the emulated cloud takes for true without a document that says so.

Everything else rests on the installed pulumi-aws (names, required properties, kinds of value), on AWS's service
models and CloudFormation schemas (words, limits, patterns, what never changes), or on a page that the module names.
`docs/provisioning.md` prints this list; whoever sees a real account refuse or allow one of these strikes it out here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One assumed rule.

    Args:
        what: the rule, one sentence.
        if_wrong: what an operator would see.
    """

    what: str
    if_wrong: str


ASSUMED: tuple[Assumption, ...] = (
    Assumption(
        what="The Dallas Local Zone hangs on zone use1-az6.",
        if_wrong="Nothing: the program asks the cloud for the parent; only the rehearsal's addresses move.",
    ),
    Assumption(
        what="A Local Zone offers no NAT gateway, interface endpoint, load balancer, EFS or FSx for Lustre.",
        if_wrong="Nothing breaks: gateways stand in the parent zone, and GB200 loads from S3.",
    ),
    Assumption(
        what="A load balancer in the parent zone reaches an address in the Local Zone.",
        if_wrong="The target stays unhealthy; clients inside the network call the router's host instead.",
    ),
    Assumption(
        what="A network card of p6e-gb200 takes one interface.",
        if_wrong="Nothing: no shipped layout uses a second one.",
    ),
    Assumption(
        what="UltraServer blocks are looked up as capacity blocks are.",
        if_wrong="The look-up is refused with the provider's words before anything is made.",
    ),
    Assumption(
        what="A managed node group takes a launch template with `efa-only` interfaces, and two security groups on "
        "each.",
        if_wrong="The node group is refused with EKS's words; the cluster stands, and `addressed` is the way out.",
    ),
    Assumption(
        what="A node group is refused at once when its reservation or its subnets have no room for all of its nodes; "
        "addresses of pods are not counted.",
        if_wrong="The group's creation waits and fails after its time limit; the next `up` goes on.",
    ),
    Assumption(
        what="Google's machines with RDMA interfaces are launched one by one with a placement policy of their "
        "topology, and take their subnets in the order gVNIC, MRDMA.",
        if_wrong="Compute Engine refuses the first machine with its own words; networks stand, and nothing is charged.",
    ),
    Assumption(
        what="A reservation of Google's that is read-only shared, or consumed by block, counts as one reservation.",
        if_wrong="The launch is refused with Compute Engine's words.",
    ),
    Assumption(
        what="What the Google provider replaces and changes in place is as in magic-modules of 2026-08-21.",
        if_wrong="A preview of the real provider shows another step; machines are protected and stay.",
    ),
)
