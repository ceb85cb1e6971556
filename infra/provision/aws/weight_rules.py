"""What a stack's weight storage cannot be, cannot become, and is too slow for: judged before any call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from infra.catalog.figures import LoadingRates, StorageKind
from infra.catalog.lustre_sizes import EFA_STEP_GIB, STEP_GIB, LustreSettings
from infra.errors import Problem
from infra.memory.time_to_ready import lustre_gb_per_s
from infra.provision.aws.zone import Zone
from infra.provision.config_problems import account_problem, stack_problem
from infra.spec.stack import Weights

# What is created, filled and protected; another kind in its place would leave it without an owner.
KEPT: tuple[StorageKind, ...] = ("s3-to-nvme", "fsx-lustre", "efs")
LARGEST_GIB = (
    384_000  # more is a question to AWS: the default quota of a region, FSx for Lustre "Quotas"
)
_FILE_SYSTEMS: tuple[StorageKind, ...] = ("fsx-lustre", "efs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What has to be read from shared storage when engines start.

    Args:
        size_bytes: of checkpoint and draft.
        num_hosts: that read at once.
        target_s: seconds that it may take; None when the stack does not say.
    """

    size_bytes: int
    num_hosts: int
    target_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedStore:
    """The store that a stack and its configuration want.

    Args:
        lustre: size and tier of a file system.
        bucket: the operator's own that is named; None when the stack makes one.
        key_arn: that what is made is encrypted with; None for AWS's own.
    """

    storage: StorageKind
    lustre: LustreSettings
    bucket: str | None
    key_arn: str | None


def storage_problems(weights: Weights, zone: Zone, stack: str) -> Iterator[Problem]:
    """Storage that hosts on EC2 cannot have, or not in their zone."""
    if weights.storage == "pvc":
        fix = "Use s3-to-nvme, fsx-lustre, efs, shared-mount or local."
        yield _storage_problem("A volume claim is Kubernetes' own.", fix, stack)
    if zone.is_local and weights.storage in _FILE_SYSTEMS:
        # Nobody has published that either is offered there; a file system in the parent zone would be read
        # across the link between the two.
        what = (
            f"{zone.zone_id} is a Local Zone, where {weights.storage} is not known to be offered."
        )
        fix = "Use s3-to-nvme; a file system that you have there yourself is shared-mount."
        yield _storage_problem(what, fix, stack)


def change_problems(
    previous: Mapping[str, object], wanted: WantedStore, *, stack: str
) -> Iterator[Problem]:
    """What a standing store cannot be changed into.

    Args:
        previous: `weights` of the last inventory; empty when nothing stands.
        wanted: what the stack wants now.
        stack: the stack's name.
    """
    storage, lustre, bucket = wanted.storage, wanted.lustre, wanted.bucket
    was = previous.get("storage")
    if was != storage and _would_leave(previous, storage, bucket):
        what = f"Weights are kept in {was}; {storage} would leave that without an owner."
        yield _storage_problem(what, _way_to_leave(str(was), stack), stack)
        return
    if previous.get("is_made") is True and bucket is not None:
        what = (
            f"The stack keeps its weights in a bucket that it has made, and {bucket} is named now."
        )
        fix = f"Name no bucket. Or change a copy of the stack file with another name, which reads {bucket}."
        yield replace(_storage_problem(what, fix, stack), field="weights.source")
        return
    yield from _key_problems(previous, wanted, stack)
    standing = previous.get("lustre")
    if storage != "fsx-lustre" or not isinstance(standing, Mapping):
        return
    capacity, tier = _whole(standing, "capacity_gib"), _whole(standing, "throughput")
    had_efa = standing.get("efa") is True
    if lustre.has_efa != had_efa:
        what = "Whether a file system speaks EFA is settled when it is made; another one would be empty."
        value = str(had_efa).lower()
        yield account_problem("moe-infra:fsx_efa", what, value, stack)
    if had_efa and lustre.throughput != tier:
        what = f"The tier of an EFA-enabled file system cannot change: it is {tier} MB/s per TiB."
        yield account_problem("moe-infra:fsx_throughput", what, str(tier), stack)
    if lustre.capacity_gib < capacity:
        what = f"A file system never shrinks: it holds {capacity} GiB."
        yield account_problem("moe-infra:fsx_capacity_gib", what, str(capacity), stack)


def _key_problems(
    previous: Mapping[str, object], wanted: WantedStore, stack: str
) -> Iterator[Problem]:
    """Another key for what is kept: a file system has its own for good, and a bucket's objects keep theirs.

    FSx and EFS settle the key when a file system is made (lustre_file_system.go, file_system.go: ForceNew). What lies
    in a bucket stays encrypted with the key of its upload, which its readers then no longer might use.
    """
    was = str(previous.get("kms_key_arn") or "")
    now = wanted.key_arn or ""
    is_settled = was != "" or previous.get("storage") in _FILE_SYSTEMS
    if not previous.get("storage") or was == now or not is_settled:
        return
    kept = (
        "a file system" if previous.get("storage") in _FILE_SYSTEMS else "what lies in the bucket"
    )
    what = f"The key of {kept} is settled: it is {was or 'the one of AWS'}."
    problem = account_problem("moe-infra:kms_key_arn", what, was, stack)
    yield (
        problem
        if was
        else replace(problem, fix=f"Type: pulumi config rm kms_key_arn --stack {stack}")
    )


def loading_warnings(
    storage: StorageKind, lustre: LustreSettings, loading: Loading, rates: LoadingRates
) -> Iterator[str]:
    """Everything worth saying of how weights are read."""
    for warning in (
        loading_warning(storage, lustre, loading, rates),
        efa_warning(storage, lustre, loading.num_hosts),
    ):
        if warning is not None:
            yield warning


def loading_warning(
    storage: StorageKind, lustre: LustreSettings, loading: Loading, rates: LoadingRates
) -> str | None:
    """A sentence when weights cannot be read in the stack's time target; None when they can, or nobody knows."""
    if storage == "fsx-lustre":
        rate = lustre_gb_per_s(lustre, loading.num_hosts)
        place = f"{lustre.capacity_gib} GiB at {lustre.throughput} MB/s per TiB"
    elif storage == "efs":
        rate, place = rates.reads_gb_per_s["efs"], "EFS"
    else:
        return None
    seconds = loading.size_bytes / 1e9 / rate
    if loading.target_s is None:
        if storage == "efs":
            return f"EFS is for small files: {_told(loading, rate, seconds)}."
        return None
    if seconds <= loading.target_s:
        return None
    told = (
        f"{place}: {_told(loading, rate, seconds)}; weights.load_target_s is {loading.target_s} s."
    )
    return f"{told} {_way_out(storage, lustre, loading)}"


def efa_warning(storage: StorageKind, lustre: LustreSettings, num_hosts: int) -> str | None:
    """What has to be done on hosts before they read a Lustre file system over EFA; None where none is meant."""
    if storage != "fsx-lustre" or not lustre.has_efa:
        return None
    plain = LustreSettings(
        capacity_gib=lustre.capacity_gib, throughput=lustre.throughput, has_efa=False
    )
    return (
        f"Hosts read the file system over TCP, at {lustre_gb_per_s(plain, num_hosts):.2f} GB/s each, until the "
        "set-up of EFA clients has run on them (FSx for Lustre User Guide, 'Configuring EFA clients'); an `efa` net in "
        "`lnetctl net show` proves it."
    )


def enough_lustre(lustre: LustreSettings, loading: Loading) -> int | None:
    """The least size in GiB, in the same kind and tier, that meets the target; None when none does."""
    if loading.target_s is None:
        return None
    step = EFA_STEP_GIB[lustre.throughput] if lustre.has_efa else STEP_GIB
    wanted = loading.size_bytes / 1e9 / loading.target_s
    for capacity_gib in range(step, LARGEST_GIB + 1, step):
        larger = LustreSettings(
            capacity_gib=capacity_gib, throughput=lustre.throughput, has_efa=lustre.has_efa
        )
        if lustre_gb_per_s(larger, loading.num_hosts) >= wanted:
            return capacity_gib
    return None


def _would_leave(previous: Mapping[str, object], storage: StorageKind, bucket: str | None) -> bool:
    """Whether another kind of storage takes away what the stack has made; an operator's own bucket is named still."""
    was = previous.get("storage")
    if was != "s3-to-nvme":
        return was in KEPT
    read = str(previous.get("source") or "").removeprefix("s3://").partition("/")[0]
    is_ours = bucket is None or read != bucket
    stays = bucket is None and storage == "fsx-lustre"
    return is_ours and not stays


def _way_to_leave(was: str, stack: str) -> str:
    own = ", or go on naming a bucket of your own (weights_bucket)" if was == "s3-to-nvme" else ""
    return (
        f"Stay with {was}{own}; or change a copy of the stack file with another name: this stack goes on owning what "
        f"it has made, and `pulumi destroy --exclude-protected --stack {stack}` takes the rest, but reserved machines, "
        "which docs/operations-cloud.md gives back."
    )


def _told(loading: Loading, rate: float, seconds: float) -> str:
    size = f"{loading.size_bytes / 1e9:.0f} GB on each of {loading.num_hosts} hosts"
    return f"{size} at {rate:.2f} GB/s take {seconds:.0f} s"


def _way_out(storage: StorageKind, lustre: LustreSettings, loading: Loading) -> str:
    enough = enough_lustre(lustre, loading) if storage == "fsx-lustre" else None
    if enough is None:
        return "Use storage: s3-to-nvme."
    return f"{enough} GiB of that tier would do (fsx_capacity_gib), or storage: s3-to-nvme."


def _whole(values: Mapping[str, object], name: str) -> int:
    return int(float(str(values.get(name) or 0)))


def _storage_problem(what: str, fix: str, stack: str) -> Problem:
    return stack_problem("weight-storage", "weights.storage", what, fix, stack)
