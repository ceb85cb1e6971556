"""Storage of the emulated cloud: buckets and Lustre file systems."""

from __future__ import annotations

import re
from collections.abc import Mapping

from infra.catalog.lustre_sizes import LustreSettings, lustre_problem
from infra.rehearsal.cloud.encryption_keys import encrypts
from infra.rehearsal.cloud.identity_kinds import check_resource_policy
from infra.rehearsal.cloud.kind import Kind, Link, Made, RefusedError, Request
from infra.rehearsal.cloud.network_kinds import EGRESS_RULE, INGRESS_RULE, SECURITY_GROUP, SUBNET
from infra.rehearsal.cloud.store import digits
from infra.rehearsal.cloud.world import ZONES

BUCKET = "aws:s3/bucket:Bucket"
ACCESS_BLOCK = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
BUCKET_POLICY = "aws:s3/bucketPolicy:BucketPolicy"
BUCKET_VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
BUCKET_LIFECYCLE = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
BUCKET_ENCRYPTION = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
)
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
ELASTIC = "aws:efs/fileSystem:FileSystem"
ELASTIC_POLICY = "aws:efs/fileSystemPolicy:FileSystemPolicy"
MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"

LUSTRE_PORT = 988  # FSx for Lustre User Guide, "File system access control with Amazon VPC", and its troubleshooting
_BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")


def _make_bucket(request: Request) -> Made:
    name = request.text("bucket")
    if not _BUCKET_NAME.fullmatch(name):
        raise RefusedError("InvalidBucketName", f"The specified bucket is not valid: {name}.")
    taken = {other.id for other in request.others(BUCKET)} | set(request.store.account.buckets)
    if name in taken:
        raise RefusedError("BucketAlreadyOwnedByYou", f"The bucket {name} exists already.")
    computed = {
        "arn": f"arn:aws:s3:::{name}",
        "bucketDomainName": f"{name}.s3.amazonaws.com",
        "bucketRegionalDomainName": f"{name}.s3.{request.region}.amazonaws.com",
    }
    return Made(id=name, computed=computed)


def _make_part_of_bucket(request: Request) -> Made:
    name = request.text("bucket")
    if not _bucket_exists(request, name):
        raise RefusedError("NoSuchBucket", f"The specified bucket does not exist: {name}.")
    return Made(id=name, computed={})


def _make_versioning(request: Request) -> Made:
    """S3 API, PutBucketVersioning: two words; that versioning was never on is the provider's own word."""
    if request.text("versioningConfiguration.status") not in ("Enabled", "Suspended", "Disabled"):
        what = "The XML you provided was not well-formed or did not validate against our published schema"
        raise RefusedError("MalformedXML", what)
    return _make_part_of_bucket(request)


# What a rule of a lifecycle may do: S3 API, LifecycleRule.
_ACTIONS = (
    "abortIncompleteMultipartUpload",
    "expiration",
    "noncurrentVersionExpiration",
    "noncurrentVersionTransitions",
    "transitions",
)


def _make_lifecycle(request: Request) -> Made:
    """S3 API, PutBucketLifecycleConfiguration: each rule does something."""
    rules = request.inputs.get("rules")
    for rule in rules if isinstance(rules, list) else []:
        if not any(rule.get(action) for action in _ACTIONS):
            raise RefusedError(
                "InvalidRequest", "At least one action needs to be specified in a rule"
            )
        if rule.get("status") not in ("Enabled", "Disabled"):
            raise RefusedError("MalformedXML", "The XML you provided was not well-formed")
    return _make_part_of_bucket(request)


def _make_bucket_encryption(request: Request) -> Made:
    """S3 API, PutBucketEncryption: a key goes with an algorithm of KMS alone; whether there is one, S3 does not ask."""
    rules = request.inputs.get("rules")
    for rule in rules if isinstance(rules, list) else []:
        chosen = rule.get("applyServerSideEncryptionByDefault") or {}
        word = chosen.get("sseAlgorithm")
        if word not in ("AES256", "aws:kms", "aws:kms:dsse"):
            raise RefusedError("MalformedXML", "The XML you provided was not well-formed")
        if word == "AES256" and chosen.get("kmsMasterKeyId"):
            what = "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse"
            raise RefusedError("InvalidArgument", what)
    return _make_part_of_bucket(request)


def _make_bucket_policy(request: Request) -> Made:
    made = _make_part_of_bucket(request)
    check_resource_policy(request.text("policy"), "MalformedPolicy")
    return made


def _make_elastic_policy(request: Request) -> Made:
    check_resource_policy(request.text("policy"), "InvalidPolicyException")
    return Made(id=request.text("fileSystemId"), computed={})


def _check_change(request: Request, settings: LustreSettings) -> None:
    """A standing file system never shrinks, and with EFA keeps its tier."""
    if request.old is None:
        return
    old = request.old.inputs
    if settings.capacity_gib < int(str(old.get("storageCapacity"))):
        raise RefusedError("BadRequest", "Storage capacity can only be increased.")
    if settings.has_efa and settings.throughput != int(str(old.get("perUnitStorageThroughput"))):
        what = "The throughput of an EFA-enabled file system cannot be changed."
        raise RefusedError("BadRequest", what)


def _make_lustre(request: Request) -> Made:
    if request.text("deploymentType") != "PERSISTENT_2":
        raise RefusedError("BadRequest", "Only deployment type PERSISTENT_2 is emulated.")
    has_efa = request.inputs.get("efaEnabled") is True
    settings = LustreSettings(
        capacity_gib=int(request.text("storageCapacity") or 0),
        throughput=int(request.text("perUnitStorageThroughput") or 0),
        has_efa=has_efa,
    )
    if problem := lustre_problem(settings):
        raise RefusedError("BadRequest", problem.what)
    _check_change(request, settings)
    subnet = request.linked(SUBNET, "subnetIds")
    if subnet is None:
        raise RefusedError(
            "InvalidNetworkSettings", f"The subnet {request.text('subnetIds')} does not exist."
        )
    if ZONES[str(subnet.outputs["availabilityZoneId"])].type == "local-zone":
        raise RefusedError(
            "InvalidNetworkSettings", "FSx for Lustre is not offered in this Local Zone."
        )
    (_check_efa if has_efa else _check_lustre_port)(request)
    _check_key(request)
    identity = f"fs-{request.digits}"
    return Made(
        id=identity,
        computed={
            "arn": f"arn:aws:fsx:{request.region}:{request.account_id}:file-system/{identity}",
            "dnsName": f"{identity}.fsx.{request.region}.amazonaws.com",
            "mountName": digits(identity)[:8],
            "networkInterfaceIds": [f"eni-{digits(identity)}"],
            "ownerId": request.account_id,
            "vpcId": subnet.inputs.get("vpcId"),
            "storageType": "SSD",
        },
    )


def _check_key(request: Request) -> None:
    """A file system is encrypted with a key that is there and on."""
    arn = request.text("kmsKeyId")
    if arn and not encrypts(request.store, arn):
        raise RefusedError("BadRequest", f"The KMS key {arn} does not exist, or is not usable.")


def _check_lustre_port(request: Request) -> None:
    """Servers of a file system reach each other on Lustre's port; in a VPC's own group everything may."""
    groups = request.inputs.get("securityGroupIds")
    groups = set(map(str, groups)) if isinstance(groups, list) else set()
    for rule in request.store.of_type(INGRESS_RULE):
        given = rule.inputs
        is_any = given.get("ipProtocol") == "-1"
        ports = range(int(str(given.get("fromPort") or 0)), int(str(given.get("toPort") or 0)) + 1)
        source = str(given.get("referencedSecurityGroupId") or "")
        # addresses may be those of the subnet: what they leave out is not looked at
        is_within = source in groups or not source
        if (
            given.get("securityGroupId") in groups
            and is_within
            and (is_any or LUSTRE_PORT in ports)
        ):
            return
    if groups:
        what = "The provided security groups do not permit Lustre LNET network traffic on port"
        raise RefusedError("InvalidNetworkSettings", f"{what} {LUSTRE_PORT} among themselves.")


def _check_efa(request: Request) -> None:
    """EFA wants metadata settings, and groups that let their members exchange any traffic."""
    if not request.inputs.get("metadataConfiguration"):
        raise RefusedError("BadRequest", "An EFA-enabled file system needs metadataConfiguration.")
    groups = request.inputs.get("securityGroupIds")
    for group in groups if isinstance(groups, list) else []:
        for token in (INGRESS_RULE, EGRESS_RULE):
            if not any(
                rule.inputs.get("securityGroupId")
                == rule.inputs.get("referencedSecurityGroupId")
                == group
                and rule.inputs.get("ipProtocol") == "-1"
                for rule in request.store.of_type(token)
            ):
                what = "Insufficient security group permissions: all traffic to and from itself is required."
                raise RefusedError("InvalidNetworkSettings", f"{what} ({group})")


def _make_association(request: Request) -> Made:
    bucket = request.text("dataRepositoryPath").removeprefix("s3://").partition("/")[0]
    if not _bucket_exists(request, bucket):
        raise RefusedError("BadRequest", f"The bucket {bucket} does not exist.")
    for other in request.others(ASSOCIATION):
        keys = ("fileSystemId", "fileSystemPath")
        if all(other.inputs.get(key) == request.text(key) for key in keys):
            raise RefusedError(
                "BadRequest", f"{request.text('fileSystemPath')} is associated already."
            )
    identity = f"dra-{request.digits}"
    arn = f"arn:aws:fsx:{request.region}:{request.account_id}:association/{identity}"
    return Made(id=identity, computed={"arn": arn, "associationId": identity})


def _make_elastic(request: Request) -> Made:
    _check_key(request)
    identity = f"fs-{request.digits}"
    return Made(
        id=identity,
        computed={
            "arn": f"arn:aws:elasticfilesystem:{request.region}:{request.account_id}:file-system/{identity}",
            "dnsName": f"{identity}.efs.{request.region}.amazonaws.com",
            "ownerId": request.account_id,
        },
    )


def _make_mount_target(request: Request) -> Made:
    subnet, system = request.linked(SUBNET, "subnetId"), request.text("fileSystemId")
    zone = ZONES[str(subnet.outputs["availabilityZoneId"])] if subnet else None
    if zone is not None and zone.type == "local-zone":
        raise RefusedError("UnsupportedAvailabilityZone", "EFS is not offered in this Local Zone.")
    for other in request.others(MOUNT_TARGET):
        beside = request.store.get(SUBNET, str(other.inputs.get("subnetId")))
        is_there = beside and zone and beside.outputs["availabilityZoneId"] == zone.zone_id
        if other.inputs.get("fileSystemId") == system and is_there:
            what = f"{system} has a mount target in this zone already."
            raise RefusedError("MountTargetConflict", what)
    return Made(
        id=f"fsmt-{request.digits}",
        computed={
            "dnsName": f"{system}.efs.{request.region}.amazonaws.com",
            "availabilityZoneId": zone.zone_id if zone else "",
            "networkInterfaceId": f"eni-{digits(request.digits)}",
        },
    )


def _bucket_exists(request: Request, name: str) -> bool:
    return name in request.store.account.buckets or request.store.get(BUCKET, name) is not None


KINDS: Mapping[str, Kind] = {
    BUCKET: Kind(noun="S3 Bucket", make=_make_bucket, auto_name="bucket"),
    ACCESS_BLOCK: Kind(
        noun="S3 Bucket Public Access Block",
        make=_make_part_of_bucket,
    ),
    BUCKET_POLICY: Kind(noun="S3 Bucket Policy", make=_make_bucket_policy),
    BUCKET_VERSIONING: Kind(noun="S3 Bucket Versioning", make=_make_versioning),
    BUCKET_ENCRYPTION: Kind(
        noun="S3 Bucket Server-side Encryption Configuration", make=_make_bucket_encryption
    ),
    BUCKET_LIFECYCLE: Kind(noun="S3 Bucket Lifecycle Configuration", make=_make_lifecycle),
    LUSTRE: Kind(
        noun="FSx for Lustre File System",
        make=_make_lustre,
        links=(
            Link(path="securityGroupIds[]", token=SECURITY_GROUP, code="InvalidNetworkSettings"),
            Link(path="subnetIds", token=SUBNET, code="InvalidNetworkSettings"),
        ),
    ),
    ELASTIC: Kind(
        noun="EFS File System",
        make=_make_elastic,
    ),
    ELASTIC_POLICY: Kind(
        noun="EFS File System Policy",
        make=_make_elastic_policy,
        links=(Link(path="fileSystemId", token=ELASTIC, code="FileSystemNotFound"),),
    ),
    MOUNT_TARGET: Kind(
        noun="EFS Mount Target",
        make=_make_mount_target,
        links=(
            Link(path="fileSystemId", token=ELASTIC, code="FileSystemNotFound"),
            Link(path="subnetId", token=SUBNET, code="SubnetNotFound"),
            Link(path="securityGroups[]", token=SECURITY_GROUP, code="SecurityGroupNotFound"),
        ),
    ),
    ASSOCIATION: Kind(
        noun="FSx for Lustre Data Repository Association",
        make=_make_association,
        links=(Link(path="fileSystemId", token=LUSTRE, code="FileSystemNotFound"),),
    ),
}
