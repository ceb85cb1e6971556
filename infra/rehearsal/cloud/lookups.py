"""What the emulated cloud answers when a program asks instead of making something."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.world import PARAMETERS, ZONES

Lookup = Callable[[str, Mapping[str, object]], dict[str, object]]


def _availability_zone(region: str, args: Mapping[str, object]) -> dict[str, object]:
    wanted = {key: args[key] for key in ("zoneId", "name") if args.get(key)}
    found = [
        zone
        for zone in ZONES.values()
        if zone.region == region
        and wanted.get("zoneId", zone.zone_id) == zone.zone_id
        and wanted.get("name", zone.name) == zone.name
        and (args.get("allAvailabilityZones") is True or zone.type == "availability-zone")
    ]
    if len(found) != 1:
        what = f"reading EC2 Availability Zone: {len(found)} zones match {wanted} in {region}"
        raise RefusedError("InvalidParameterValue", what)
    zone = found[0]
    is_local = zone.type == "local-zone"
    return {
        **args,
        "id": zone.name,
        "name": zone.name,
        "nameSuffix": zone.name.removeprefix(region),
        "zoneId": zone.zone_id,
        "zoneType": zone.type,
        "region": region,
        "state": "available",
        "groupName": zone.group,
        "groupLongName": zone.group,
        "networkBorderGroup": zone.group,
        "optInStatus": "not-opted-in" if is_local else "opt-in-not-required",
        "parentZoneId": zone.parent_id,
        "parentZoneName": ZONES[zone.parent_id].name if is_local else "",
    }


def _parameter(region: str, args: Mapping[str, object]) -> dict[str, object]:
    name = str(args.get("name"))
    if name not in PARAMETERS:
        raise RefusedError(
            "ParameterNotFound", f"reading SSM Parameter ({name}): couldn't find resource"
        )
    value, _ = PARAMETERS[name]
    return {
        **args,
        "id": name,
        "arn": f"arn:aws:ssm:{region}::parameter{name}",
        "type": "String",
        "value": value,
        "insecureValue": value,
        "version": 1,
        "withDecryption": True,
        "region": region,
    }


LOOKUPS: Mapping[str, Lookup] = {
    "aws:index/getAvailabilityZone:getAvailabilityZone": _availability_zone,
    "aws:ssm/getParameter:getParameter": _parameter,
}


def look_up(region: str, token: str, args: Mapping[str, object]) -> dict[str, object]:
    """The answer to an invoke.

    Raises:
        RefusedError: there is no such thing, or the emulation does not know the question.
    """
    lookup = LOOKUPS.get(token)
    if lookup is None:
        raise RefusedError("NotEmulated", f"The emulated cloud does not answer {token}.")
    return lookup(region, args)
