"""What the emulated Google project answers when a program asks."""

from __future__ import annotations

from collections.abc import Mapping

from infra.rehearsal.cloud.google_kinds import MACHINE, SUBNETWORK, num_in_use
from infra.rehearsal.cloud.google_world import (
    FAMILIES,
    IMAGE_DATE,
    IMAGE_PROJECT,
    PROXY_BLOCKS,
    image_link,
)
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.question import Lookup, Question


def _gone(what: str) -> RefusedError:
    return RefusedError(
        "notFound", f"googleapi: Error 404: The resource '{what}' was not found, notFound"
    )


def _image(question: Question) -> dict[str, object]:
    project, family = question.text("project"), question.text("family")
    newest = {
        each: f"{each}-{question.store.account.parameters.get(each, IMAGE_DATE)}"
        for each in FAMILIES
    }
    name = question.text("name") or newest.get(family, family)
    known = {*newest.values(), *(f"{each}-{IMAGE_DATE}" for each in FAMILIES)}
    is_own = name in question.store.account.images
    if not is_own and (project != IMAGE_PROJECT or name not in known):
        raise _gone(f"projects/{project}/global/images/{family and 'family/'}{family or name}")
    return {
        "id": f"projects/{project}/global/images/{name}",
        "name": name,
        "family": family,
        "selfLink": image_link(project, name),
        "status": "READY",
    }


def _reservation(question: Question) -> dict[str, object]:
    name, zone = question.text("name"), question.text("zone")
    found = question.store.account.reservations.get(name)
    path = f"projects/{question.text('project')}/zones/{zone}/reservations/{name}"
    if found is None or found.zone_id != zone:
        raise _gone(path)
    used = num_in_use(question.store.of_type(MACHINE), name)
    return {
        "id": path,
        "status": "READY" if found.state == "active" else found.state,
        "specificReservationRequired": True,
        "specificReservations": [
            {
                "assuredCount": found.num_instances,
                "count": found.num_instances,
                "inUseCount": used,
                "instanceProperties": [{"machineType": found.instance_type}],
                "sourceInstanceTemplate": "",
            }
        ],
    }


def _machine(question: Question) -> dict[str, object]:
    name, zone = question.text("name"), question.text("zone")
    identity = f"projects/{question.text('project')}/zones/{zone}/instances/{name}"
    found = question.store.get(MACHINE, identity)
    if found is None:
        raise RefusedError(
            "notFound", f"{identity} not found"
        )  # magic-modules, HandleDataSourceNotFoundError
    affinity = found.inputs["reservationAffinity"]
    disk = found.inputs["bootDisk"]
    specific = affinity.get("specificReservation") if isinstance(affinity, Mapping) else None
    parameters = disk.get("initializeParams") if isinstance(disk, Mapping) else None
    return {
        "id": identity,
        "machineType": found.inputs["machineType"],
        "labels": found.inputs.get("labels") or {},
        "resourcePolicies": [policy] if (policy := found.inputs.get("resourcePolicies")) else [],
        "reservationAffinities": [
            {"type": "SPECIFIC_RESERVATION", "specificReservations": [specific]}
        ],
        "bootDisks": [{"initializeParams": [parameters]}],
        "networkInterfaces": found.outputs["networkInterfaces"],
    }


def _subnetwork(question: Question) -> dict[str, object]:
    name, region = question.text("name"), question.text("region")
    identity = f"projects/{question.text('project')}/regions/{region}/subnetworks/{name}"
    found = question.store.get(SUBNETWORK, identity)
    if found is None:
        raise RefusedError("notFound", f"{identity} not found")
    return {"id": identity, "ipCidrRange": found.inputs["ipCidrRange"]}


def _proxy_blocks(question: Question) -> dict[str, object]:
    if question.text("rangeType") != "iap-forwarders":
        raise RefusedError(
            "NotEmulated", "The emulated cloud knows the blocks of iap-forwarders alone."
        )
    blocks = list(PROXY_BLOCKS)
    return {
        "id": "netblock-ip-ranges-iap-forwarders",
        "cidrBlocks": blocks,
        "cidrBlocksIpv4s": blocks,
        "cidrBlocksIpv6s": [],
    }


GOOGLE_LOOKUPS: Mapping[str, Lookup] = {
    "gcp:compute/getImage:getImage": _image,
    "gcp:compute/getInstance:getInstance": _machine,
    "gcp:compute/getNetblockIPRanges:getNetblockIPRanges": _proxy_blocks,
    "gcp:compute/getReservation:getReservation": _reservation,
    "gcp:compute/getSubnetwork:getSubnetwork": _subnetwork,
}
