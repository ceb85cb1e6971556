"""What the emulated cloud answers when a program asks instead of making something."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from infra.rehearsal.cloud.cluster_lookups import CLUSTER_LOOKUPS
from infra.rehearsal.cloud.encryption_keys import KEY_LOOKUPS
from infra.rehearsal.cloud.google_lookups import GOOGLE_LOOKUPS
from infra.rehearsal.cloud.kind import RefusedError, values_at
from infra.rehearsal.cloud.load_balancer_kinds import LOAD_BALANCER
from infra.rehearsal.cloud.machine_kinds import TEMPLATE
from infra.rehearsal.cloud.network_kinds import SUBNET
from infra.rehearsal.cloud.question import Lookup, Question, missing
from infra.rehearsal.cloud.running_machines import Machine, num_free, running_machines
from infra.rehearsal.cloud.storage_kinds import BUCKET, BUCKET_ENCRYPTION
from infra.rehearsal.cloud.store import Reservation, Resource, Store
from infra.rehearsal.cloud.world import (
    IMAGES,
    NODE_IMAGES,
    PARAMETERS,
    QUOTAS,
    ZONES,
    is_offered,
)

RESERVATION_TYPE, BUCKET_TYPE = "AWS::EC2::CapacityReservation", "AWS::S3::Bucket"


def _availability_zone(question: Question) -> dict[str, object]:
    args, region = question.args, question.region
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


def _parameter(question: Question) -> dict[str, object]:
    name = question.text("name")
    known = {**NODE_IMAGES, **{each: value for each, (value, _) in PARAMETERS.items()}}
    if name not in known:
        raise missing("SSM Parameter", name)
    value = question.store.account.parameters.get(name, known[name])
    return {
        "id": name,
        "arn": f"arn:aws:ssm:{question.region}::parameter{name}",
        "type": "String",
        "value": value,
        "insecureValue": value,
        "version": 1,
        "withDecryption": True,
        "region": question.region,
    }


def _image(question: Question) -> dict[str, object]:
    (image,) = question.filter("image-id")
    account = question.store.account
    if image not in IMAGES and image not in account.images:
        what = "Your query returned no results. Please change your search criteria and try again."
        raise RefusedError("InvalidAMIID.NotFound", what)
    is_arm = (IMAGES.get(image) or account.images.get(image)) == "aarch64"
    return {
        "id": image,
        "imageId": image,
        "architecture": "arm64" if is_arm else "x86_64",
        "rootDeviceName": "/dev/xvda" if image in IMAGES else "/dev/sda1",
        "rootDeviceType": "ebs",
        "state": "available",
    }


def _offerings(question: Question) -> dict[str, object]:
    kinds = question.filter("instance-type")
    rows = [
        (kind, zone.zone_id)
        for kind in kinds
        for zone in ZONES.values()
        if zone.region == question.region
        and zone.type == "availability-zone"
        and is_offered(kind, zone)
    ]
    return {
        "id": question.region,
        "instanceTypes": [kind for kind, _ in rows],
        "locations": [zone for _, zone in rows],
        "locationTypes": ["availability-zone-id" for _ in rows],
    }


def _chosen_template(question: Question) -> Resource:
    """The one template with an id, or with tags; more than one is an error, as with the provider."""
    identity, tags = question.text("id"), question.args.get("tags")
    wanted = dict(tags) if isinstance(tags, Mapping) else {}
    found = [
        each
        for each in question.store.of_type(TEMPLATE)
        if identity in ("", each.id) and wanted.items() <= _tags_of(each).items()
    ]
    if len(found) != 1:
        raise missing("EC2 Launch Template", identity or f"{len(found)} with these tags")
    return found[0]


def _tags_of(resource: Resource) -> dict[str, object]:
    tags = resource.inputs.get("tags")
    return dict(tags) if isinstance(tags, Mapping) else {}


def _launch_template(question: Question) -> dict[str, object]:
    """The newest version of a template: the provider shows lists where a template takes one thing."""
    found = _chosen_template(question)
    reserved = found.inputs.get("capacityReservationSpecification")
    target = reserved.get("capacityReservationTarget") if isinstance(reserved, dict) else None
    rows = found.inputs.get("blockDeviceMappings")
    volumes = rows if isinstance(rows, list) else []
    return {
        "id": found.id,
        "instanceType": found.inputs.get("instanceType"),
        "imageId": found.inputs.get("imageId") or "",
        "keyName": found.inputs.get("keyName") or "",
        "tags": _tags_of(found),
        "userData": found.inputs.get("userData"),
        "networkInterfaces": found.inputs.get("networkInterfaces") or [],
        "blockDeviceMappings": [{**each, "ebs": [each["ebs"]]} for each in volumes],
        "capacityReservationSpecifications": [{"capacityReservationTargets": [target]}]
        if target
        else [],
    }


def _key_pair(question: Question) -> dict[str, object]:
    name = question.text("keyName")
    if name not in question.store.account.key_pairs:
        raise missing("EC2 Key Pair", name)
    return {"id": name, "keyName": name, "keyPairId": "key-00000000000000000"}


def _bucket(question: Question) -> dict[str, object]:
    name = question.text("bucket")
    if name not in question.store.account.buckets and not question.store.get(BUCKET, name):
        raise missing("S3 Bucket", name)
    return {
        "id": name,
        "bucket": name,
        "arn": f"arn:aws:s3:::{name}",
        "bucketRegion": question.region,
    }


def _topic(question: Question) -> dict[str, object]:
    name = question.text("name")
    if name not in question.store.account.topics:
        raise missing("SNS Topic", name)
    arn = f"arn:aws:sns:{question.region}:{question.store.account.account_id}:{name}"
    return {"id": arn, "arn": arn, "name": name}


def _reservation(question: Question, identity: str, *, is_block: bool) -> Reservation:
    found = question.store.account.reservations.get(identity)
    if found is None or (found.kind != "odcr") != is_block:
        raise missing("EC2 Capacity Reservation", identity)
    return found


def _block(question: Question) -> dict[str, object]:
    identity = question.text("id")
    found = _reservation(question, identity, is_block=True)
    zone = ZONES[found.zone_id]
    return {
        "id": identity,
        "instanceType": found.instance_type,
        "availabilityZone": zone.name,
        "availabilityZoneId": zone.zone_id,
        "instanceCount": found.num_instances,
        "reservationType": "capacity-block",
        "state": found.state,
        "startDate": found.start,
        "endDate": found.end,
    }


def _bucket_properties(question: Question, name: str) -> dict[str, object]:
    """A bucket as Cloud Control describes it; S3 encrypts every one, with a key of its own where no other is named."""
    account = question.store.account
    named = account.bucket_keys.get(name)
    for each in question.store.of_type(BUCKET_ENCRYPTION):
        if each.inputs.get("bucket") == name:
            path = "rules[].applyServerSideEncryptionByDefault.kmsMasterKeyId"
            named = str(next(values_at(each.inputs, path), "")) or None
    chosen = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": named} if named else {}
    rule = {"ServerSideEncryptionByDefault": chosen or {"SSEAlgorithm": "AES256"}}
    encryption = {"ServerSideEncryptionConfiguration": [rule]}
    return {"BucketName": name, "BucketEncryption": encryption}


def _cloud_control(question: Question) -> dict[str, object]:
    identity, kind = question.text("identifier"), question.text("typeName")
    if kind == BUCKET_TYPE:
        _bucket(Question(store=question.store, region=question.region, args={"bucket": identity}))
        return {"id": identity, "properties": json.dumps(_bucket_properties(question, identity))}
    if kind != RESERVATION_TYPE:
        raise RefusedError("NotEmulated", f"The emulated cloud does not answer for {kind}.")
    found = _reservation(question, identity, is_block=False)
    properties = {
        "Id": identity,
        "InstanceType": found.instance_type,
        "AvailabilityZone": ZONES[found.zone_id].name,
        "InstanceCount": found.num_instances,
        "TotalInstanceCount": found.num_instances,
    }
    return {"id": identity, "properties": json.dumps(properties)}


def _subnet(question: Question) -> dict[str, object]:
    identity = question.text("id")
    found = question.store.get(SUBNET, identity)
    if found is None:
        raise missing("EC2 Subnet", identity)
    return {
        **found.outputs,
        "id": identity,
        "availableIpAddressCount": num_free(found, running_machines(question.store)),
        "mapPublicIpOnLaunch": found.inputs.get("mapPublicIpOnLaunch") is True,
    }


def _instances(question: Question) -> dict[str, object]:
    """Machines by subnet and tags, nodes of groups among them; all that the emulation has are running."""
    rows = question.args.get("filters")
    wanted = {
        str(row["name"]): question.filter(str(row["name"]))
        for row in (rows if isinstance(rows, list) else [])
    }
    found = [
        each
        for each in running_machines(question.store)
        if all(_has(each, name, values) for name, values in wanted.items())
    ]
    return {
        "id": question.region,
        "ids": [each.id for each in found],
        "privateIps": [each.addresses[0] for each in found],
        "publicIps": [],
        "ipv6Addresses": [],
    }


def _has(machine: Machine, name: str, values: Sequence[str]) -> bool:
    """Whether a machine passes one filter of `DescribeInstances`."""
    if name.startswith("tag:"):
        return machine.tags.get(name.removeprefix("tag:")) in values
    if name == "subnet-id":
        return machine.subnet_id in values
    raise RefusedError("NotEmulated", f"The emulated cloud does not filter machines by {name}.")


def _load_balancer(question: Question) -> dict[str, object]:
    found = question.store.get(LOAD_BALANCER, question.text("arn"))
    if found is None:
        raise missing("ELBv2 Load Balancer", question.text("arn"))
    return {
        **found.outputs,
        "id": found.id,
        "securityGroups": found.inputs.get("securityGroups") or [],
        "internal": found.inputs.get("internal") is True,
        "loadBalancerType": found.inputs.get("loadBalancerType") or "application",
    }


def _availability_zones(question: Question) -> dict[str, object]:
    """The region's zones; of the kind that a filter names, else those that need no opting in."""
    kinds = question.filter("zone-type") or ("availability-zone",)
    found = [
        zone for zone in ZONES.values() if zone.region == question.region and zone.type in kinds
    ]
    return {
        "id": question.region,
        "names": [zone.name for zone in found],
        "zoneIds": [zone.zone_id for zone in found],
        "groupNames": sorted({zone.group for zone in found}),
    }


def _caller(question: Question) -> dict[str, object]:
    account = question.store.account
    return {
        "id": account.account_id,
        "accountId": account.account_id,
        "arn": f"arn:aws:sts::{account.account_id}:assumed-role/{account.caller_role}/operator",
        "userId": "AROAREHEARSAL:operator",
    }


def _service_quota(question: Question) -> dict[str, object]:
    code = question.text("quotaCode")
    if code not in QUOTAS:
        raise missing("Service Quotas Service Quota", f"{question.text('serviceCode')}/{code}")
    name, usual = QUOTAS[code]
    return {
        "id": f"arn:aws:servicequotas:{question.region}::ec2/{code}",
        "quotaName": name,
        "serviceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "value": question.store.account.quotas.get(code, usual),
        "adjustable": True,
    }


LOOKUPS: Mapping[str, Lookup] = {
    **CLUSTER_LOOKUPS,
    **GOOGLE_LOOKUPS,
    **KEY_LOOKUPS,
    "aws:cloudcontrol/getResource:getResource": _cloud_control,
    "aws:ec2/getAmi:getAmi": _image,
    "aws:ec2/getCapacityBlockReservation:getCapacityBlockReservation": _block,
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": _offerings,
    "aws:ec2/getInstances:getInstances": _instances,
    "aws:ec2/getKeyPair:getKeyPair": _key_pair,
    "aws:ec2/getLaunchTemplate:getLaunchTemplate": _launch_template,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:index/getAvailabilityZone:getAvailabilityZone": _availability_zone,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _availability_zones,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:lb/getLoadBalancer:getLoadBalancer": _load_balancer,
    "aws:s3/getBucket:getBucket": _bucket,
    "aws:servicequotas/getServiceQuota:getServiceQuota": _service_quota,
    "aws:sns/getTopic:getTopic": _topic,
    "aws:ssm/getParameter:getParameter": _parameter,
}


def look_up(store: Store, region: str, token: str, args: Mapping[str, object]) -> dict[str, object]:
    """The answer to an invoke: the arguments, and what is known.

    Raises:
        RefusedError: there is no such thing, the operator may not ask, or the emulation does not know the question.
    """
    lookup = LOOKUPS.get(token)
    if lookup is None:
        raise RefusedError("NotEmulated", f"The emulated cloud does not answer {token}.")
    name = token.rpartition(":")[2]
    if name in store.account.forbidden:
        if token.startswith("gcp:"):
            what = f"googleapi: Error 403: Required '{name}' permission for the project, forbidden"
            raise RefusedError("forbidden", what)
        what = f"You are not authorized to perform this operation: {name}"
        raise RefusedError("UnauthorizedOperation", what)
    return {**args, **lookup(Question(store=store, region=region, args=args))}
