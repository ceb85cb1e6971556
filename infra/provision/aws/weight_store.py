"""Where the weights of a stack are kept; never destroyed with the machines."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi import CustomTimeouts, ResourceOptions
from pulumi_aws import efs, fsx, s3

from infra.catalog.figures import StorageKind
from infra.provision.aws.account import Account
from infra.provision.aws.first_boot import LUSTRE_FOLDER, lustre_source
from infra.provision.aws.naming import partition
from infra.provision.aws.stack_network import StackNetwork
from infra.provision.aws.weight_rules import KEPT, WantedStore
from infra.provision.naming import Tags
from infra.spec.stack import Weights

# Instead of 30 minutes each (lustre_file_system.go, Timeouts): a change of the tier moves all that lies on it.
LUSTRE_WAIT = CustomTimeouts(create="60m", update="6h")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Everything that a weight store is made from.

    Args:
        path: where weights lie on a host.
        bucket: name of an existing bucket; None to create one (not read for file systems without one).
        prefix: of the weights in the bucket, empty or ending in a slash.
    """

    storage: StorageKind
    path: str
    bucket: str | None
    prefix: str
    account: Account
    tags: Tags

    @property
    def makes_something(self) -> bool:
        """Whether anything is made that keeps weights, and is encrypted with a key."""
        return self.storage in KEPT and (self.storage != "s3-to-nvme" or self.bucket is None)


def choose_store(weights: Weights, account: Account, tags: Tags) -> StoreSettings:
    """The store that a stack's `weights:` asks for; S3 to the hosts' own disks unless it says otherwise."""
    bucket, prefix = account.weights_bucket, ""
    if weights.source is not None and weights.source.startswith("s3://"):
        bucket, _, prefix = weights.source.removeprefix("s3://").partition("/")
        prefix = prefix.rstrip("/") + "/" if prefix else ""
    return StoreSettings(
        storage=weights.storage or "s3-to-nvme",
        path=weights.path,
        bucket=bucket,
        prefix=prefix,
        account=account,
        tags=tags,
    )


def wanted_store(store: StoreSettings) -> WantedStore:
    """The store as it is held against the one that stands."""
    account = store.account
    return WantedStore(
        storage=store.storage,
        lustre=account.lustre,
        bucket=store.bucket,
        key_arn=account.kms_key_arn,
    )


def reading_key(store: StoreSettings, bucket_key: str | None) -> str | None:
    """The key that readers of the bucket need: the operator's for a bucket that is made, else that of the bucket."""
    return store.account.kms_key_arn if store.bucket is None else bucket_key


# What is paid for and nobody reads: parts of an upload that broke off, and what was overwritten or deleted.
_LEFT_OVER: s3.BucketLifecycleConfigurationRuleArgsDict = {
    "id": "left-over",
    "status": "Enabled",
    "filter": {"prefix": ""},
    "abort_incomplete_multipart_upload": {"days_after_initiation": 7},
    "noncurrent_version_expiration": {"noncurrent_days": 30},
}


class WeightStore(pulumi.ComponentResource):
    """A bucket, and for FSx a Lustre file system that is filled from it; or an EFS file system.

    What is created is protected, and stays in the account even when it leaves the state. `place` is
    what `inventory.weights` exports; `bucket_arn` is None where no bucket is read, `mount` what hosts
    mount under the weights' path, None where they use their own disks or the image does it; `lustre` is the file
    system, where it is one.
    """

    def __init__(self, name: str, settings: StoreSettings, network: StackNetwork) -> None:
        super().__init__("moe-infra:weights:WeightStore", name)
        self._settings = settings
        self._kept = ResourceOptions(parent=self, protect=True, retain_on_delete=True)
        self.bucket_arn: pulumi.Output[str] | None = None
        self.mount: pulumi.Input[str] | None = None
        self.lustre: fsx.LustreFileSystem | None = None
        self.place: dict[str, pulumi.Input[object]] = {
            "storage": settings.storage,
            "path": settings.path,
        }
        if settings.account.kms_key_arn is not None and settings.makes_something:
            self.place["kms_key_arn"] = settings.account.kms_key_arn
        if settings.storage in ("s3-to-nvme", "fsx-lustre"):
            source = self._source()
            if settings.storage == "fsx-lustre":
                self._lustre(network, source)
        elif settings.storage == "efs":
            self._efs(network)
        elif settings.storage == "shared-mount":
            self.mount = settings.account.weights_mount
        self.register_outputs({})

    def _source(self) -> pulumi.Output[str]:
        """Where weights are read from, as a URL."""
        bucket = self._bucket()
        self.bucket_arn = bucket.apply(
            lambda name: f"arn:{partition(self._settings.account.region)}:s3:::{name}"
        )
        source = pulumi.Output.concat("s3://", bucket, "/", self._settings.prefix)
        self.place["source"] = source
        return source

    def _bucket(self) -> pulumi.Output[str]:
        """The name of the bucket, created unless one exists."""
        if self._settings.bucket is not None:
            return pulumi.Output.from_input(self._settings.bucket)
        self.place["is_made"] = True
        bucket = s3.Bucket("weights", tags=self._settings.tags.of("weights"), opts=self._kept)
        s3.BucketPublicAccessBlock(
            "weights",
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._kept,
        )
        s3.BucketPolicy(
            "weights",
            bucket=bucket.id,
            policy=bucket.arn.apply(lambda arn: tls_policy("s3:*", [arn, f"{arn}/*"])),
            opts=self._kept,
        )
        versioning = s3.BucketVersioning(
            "weights",
            bucket=bucket.id,
            versioning_configuration={"status": "Enabled"},
            opts=self._kept,
        )
        s3.BucketLifecycleConfiguration(
            "weights",
            bucket=bucket.id,
            rules=[_LEFT_OVER],
            opts=ResourceOptions.merge(self._kept, ResourceOptions(depends_on=[versioning])),
        )
        self._encrypt(bucket)
        name: pulumi.Output[str] = bucket.id
        return name

    def _encrypt(self, bucket: s3.Bucket) -> None:
        """The operator's key for all that comes into the bucket; S3 has one of its own for every bucket."""
        key_arn = self._settings.account.kms_key_arn
        if key_arn is None:
            return
        s3.BucketServerSideEncryptionConfiguration(
            "weights",
            bucket=bucket.id,
            rules=[
                {
                    "apply_server_side_encryption_by_default": {
                        "sse_algorithm": "aws:kms",
                        "kms_master_key_id": key_arn,
                    },
                    # one question to KMS for many objects
                    "bucket_key_enabled": True,
                }
            ],
            opts=self._kept,
        )

    def _lustre(self, network: StackNetwork, source: pulumi.Input[str]) -> None:
        """The file system, filled from the bucket."""
        lustre = self._settings.account.lustre
        system = fsx.LustreFileSystem(
            "weights",
            deployment_type="PERSISTENT_2",
            storage_capacity=lustre.capacity_gib,
            per_unit_storage_throughput=lustre.throughput,
            efa_enabled=lustre.has_efa,
            kms_key_id=self._settings.account.kms_key_arn,
            metadata_configuration={"mode": "AUTOMATIC"},
            file_system_type_version="2.15",
            subnet_ids=network.subnet_id,
            security_group_ids=[network.host_group_id],
            tags=self._settings.tags.of("weights"),
            # With EFA its creation fails until the group lets its members talk.
            opts=ResourceOptions.merge(
                self._kept,
                ResourceOptions(depends_on=list(network.member_rules), custom_timeouts=LUSTRE_WAIT),
            ),
        )
        fsx.DataRepositoryAssociation(
            "weights",
            file_system_id=system.id,
            file_system_path=f"/{LUSTRE_FOLDER}",
            data_repository_path=source,
            batch_import_meta_data_on_create=True,
            s3={"auto_import_policy": {"events": ["NEW", "CHANGED", "DELETED"]}},
            tags=self._settings.tags.of("weights"),
            opts=self._kept,
        )
        self.lustre = system
        self.place["file_system"] = system.id
        # By these the next run sees a change that the file system cannot make.
        self.place["lustre"] = {
            "capacity_gib": lustre.capacity_gib,
            "throughput": lustre.throughput,
            "efa": lustre.has_efa,
        }
        self.mount = pulumi.Output.all(system.dns_name, system.mount_name).apply(
            lambda names: lustre_source(names[0], names[1])
        )

    def _efs(self, network: StackNetwork) -> None:
        """An elastic file system, and the way to it from the hosts' subnet."""
        tags = self._settings.tags.of("weights")
        system = efs.FileSystem(
            "weights",
            encrypted=True,
            kms_key_id=self._settings.account.kms_key_arn,
            throughput_mode="elastic",
            tags=tags,
            opts=self._kept,
        )
        # it replaces the policy by which everybody in the network may do everything
        efs.FileSystemPolicy(
            "weights",
            file_system_id=system.id,
            policy=system.arn.apply(elastic_policy),
            opts=self._kept,
        )
        target = efs.MountTarget(
            "weights",
            file_system_id=system.id,
            subnet_id=network.subnet_id,
            security_groups=[network.host_group_id],
            opts=ResourceOptions(parent=self),
        )
        self.place["file_system"] = system.id
        # of the target, not of the file system: a host must not boot before there is a way to it
        self.mount = target.dns_name.apply(lambda name: f"{name}:/")


def tls_policy(actions: str, resources: list[str], *allowed: dict[str, object]) -> str:
    """The policy document of something that answers no one in plain text.

    Args:
        actions: all of them, by one word.
        resources: ARNs.
        allowed: further statements.
    """
    plain = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": actions,
        "Resource": resources,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [plain, *allowed]})


def elastic_policy(arn: str) -> str:
    """The policy document of a file system: hosts that reach its mount target read and write, over TLS alone."""
    mounted = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
    actions = [f"elasticfilesystem:Client{each}" for each in ("Mount", "Write", "RootAccess")]
    allowed: dict[str, object] = {
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": actions,
        "Resource": arn,
        "Condition": mounted,
    }
    return tls_policy("*", [arn], allowed)
