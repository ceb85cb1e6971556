"""`fab estimate`: what fits, how long until it answers, what it costs; several layouts side by side."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra.catalog.eks import read_eks_parts
from infra.catalog.load import Catalog
from infra.catalog.lustre_sizes import LustreSettings
from infra.checks.view import view_plan
from infra.errors import StackError
from infra.memory.cluster_price import ClusterDay
from infra.memory.price import HourlyPrice
from infra.memory.reservation_end import reservation_end
from infra.plan.compile import compile_stack
from infra.render.estimate_listing import estimate_listing
from infra.render.estimates import Estimate, Surroundings, estimate_document, estimate_plan
from infra.render.memory_picture import draw_memory
from infra.render.purchases import FullerStack, purchase_document, purchase_lines
from infra.spec.load import LoadedStack, load_stack
from infra.spec.stack import CLOUDS
from infra.tasks.choice import same_choice
from infra.tasks.fuller_stacks import fuller_stacks
from infra.tasks.options import Options
from infra.tasks.output import SCHEMA_VERSION, Output
from infra.tasks.picture_file import write_picture
from infra.tasks.pulumi_config import config_path, configured, default_of
from infra.tasks.stack_options import chosen_stack

MAX_RESERVED = 10_000
# Before it nothing could be reserved; and there are hours before it, by which machines are given back.
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_TIERS = ("fsx_capacity_gib", "fsx_throughput", "fsx_efa")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the command line says of all layouts; None for what follows from each."""

    request_tokens: int | None
    num_reserved: int | None


def run(options: Options, output: Output) -> int:
    """Print the estimate of a stack and, beside it, of every layout to compare it with."""
    catalog, stack = Catalog(), chosen_stack(options)
    others = [_other_layout(options, words) for words in options.words("compare")]
    until = _until(options)
    asked = _Asked(request_tokens=options.count("length"), num_reserved=options.count("reserved"))
    estimates = [
        _estimate(name, each, asked, catalog) for name, each in [(stack.name, stack), *others]
    ]
    price = estimates[0].price
    _refuse_reserved(price, asked.num_reserved, estimates[0].num_hosts)
    end = None
    if until is not None:
        _refuse_until(until, price)
    if until and price.kind:
        is_eks = stack.spec.platform == "aws-eks"
        end = reservation_end(until, datetime.now(UTC), price.kind, are_managed_nodes=is_eks)
    fuller = _fuller(options, stack, price, catalog)
    picture = options.text("picture")
    if picture is not None:
        write_picture(Path(picture), draw_memory(estimates))
        output.message(f"Drawn: {picture}")
    compared = [{"name": each.name, **estimate_document(each)} for each in estimates[1:]]
    output.document(
        {
            "schema_version": SCHEMA_VERSION,
            "stack": stack.name,
            "ok": True,
            **estimate_document(estimates[0]),
            "purchase": purchase_document(price, end, fuller),
            "compare": compared,
        }
    )
    output.data(estimate_listing(estimates))
    for each in estimates:
        output.data(f"\n{each.name}: {_notes(each)}")
    for line in purchase_lines(price, end, fuller):
        output.data(line)
    output.next_command(f"fab check {same_choice(options)}")
    return 0


def _refuse_reserved(price: HourlyPrice, num_reserved: int | None, num_hosts: int) -> None:
    """Refuse a reservation that the stack does not fit into, or cannot have.

    Raises:
        StackError: it holds fewer machines than the stack takes, or machines are not reserved.
    """
    if num_reserved is None:
        return
    _refuse_unreserved("--reserved", price)
    if num_reserved > MAX_RESERVED:
        what = f"{num_reserved} machines are more than any reservation holds."
        raise StackError("--reserved", what, "Write the number that you hold.")
    if num_reserved < num_hosts:
        what = f"{num_reserved} machines do not hold the stack: it takes {num_hosts}."
        raise StackError("--reserved", what, f"Reserve {num_hosts}, or change the stack.")


def _refuse_unreserved(option: str, price: HourlyPrice) -> None:
    """Refuse what is said of a reservation where machines come from none.

    Raises:
        StackError: they do.
    """
    if price.kind in (None, "on-demand"):
        what = "The stack's machines come from no reservation."
        fix = "Leave it out, or set capacity.kind: --set capacity.kind=capacity-block."
        raise StackError(option, what, fix)


def _refuse_until(until: datetime, price: HourlyPrice) -> None:
    """Refuse the end of a reservation that is over, or that the stack cannot have.

    Raises:
        StackError: it is over, or machines are not reserved.
    """
    _refuse_unreserved("--until", price)
    if until <= datetime.now(UTC):
        what = f"{until:%Y-%m-%dT%H:%M:%SZ} is over."
        raise StackError("--until", what, "Write when the reservation ends.")


def _until(options: Options) -> datetime | None:
    """The moment of `--until`.

    Raises:
        StackError: it is no moment, or without a time zone.
    """
    text = options.text("until")
    if text is None:
        return None
    fix = "Write it as `pulumi preview` prints it: --until 2026-12-15T11:30:00Z."
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise StackError("--until", f"{text!r} has no time zone.", fix)
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise StackError("--until", f"{text!r} is no moment.", fix) from error
    if moment < EARLIEST:
        raise StackError("--until", f"{text!r} is the end of no reservation.", fix)
    return moment


def _fuller(
    options: Options, stack: LoadedStack, price: HourlyPrice, catalog: Catalog
) -> tuple[FullerStack, ...]:
    """Stacks like the chosen one that use what is reserved and idle."""
    if price.kind == "on-demand" or price.num_bought == price.num_used:
        return ()
    return fuller_stacks(
        stack, price.num_bought, lambda words: _written_over(options, words), catalog
    )


def _other_layout(options: Options, words: str) -> tuple[str, LoadedStack]:
    """A layout of `--compare`: another stack, or fields written over the chosen one's.

    Raises:
        StackError: there is no such stack, or a field is wrong.
    """
    try:
        parts = shlex.split(words)
    except ValueError as error:
        raise StackError(f"--compare {words}", f"{error}.", "Close the quotes.") from error
    if len(parts) == 1 and "=" not in parts[0]:
        loaded = load_stack(parts[0])
        return loaded.name, loaded
    if not parts or any("=" not in part for part in parts):
        what = "That is neither a stack nor FIELD=VALUE words."
        fix = 'Write --compare NAME or --compare "roles.decode.data_parallel=32 port=8080".'
        raise StackError(f"--compare {words}", what, fix)
    return " ".join(parts), _written_over(options, tuple(parts))


def _written_over(options: Options, words: tuple[str, ...]) -> LoadedStack:
    """The chosen stack with further fields written over it."""
    named = options.text("stack") or str(Path(options.needed("file")).absolute())
    return load_stack(named, (*options.words("set"), *words))


def _estimate(name: str, stack: LoadedStack, asked: _Asked, catalog: Catalog) -> Estimate:
    """The estimate of one layout.

    Raises:
        StackError: it cannot be compiled, or its checkpoint is one that the catalogue does not know.
    """
    spec = stack.spec
    compiled = compile_stack(stack, catalog=catalog)
    cloud = CLOUDS.get(spec.platform)
    storage = spec.weights.storage or ("s3-to-nvme" if cloud == "aws" else None)
    surroundings = Surroundings(
        storage=storage,
        lustre=_lustre(stack.name) if storage == "fsx-lustre" else None,
        request_tokens=asked.request_tokens,
        cloud=cloud,
        capacity=spec.capacity.kind if spec.capacity else None,
        num_reserved=asked.num_reserved,
        cluster=_cluster(stack.name) if spec.platform == "aws-eks" else None,
    )
    estimate = estimate_plan(name, view_plan(compiled.plan, catalog), surroundings)
    if estimate is None or not estimate.roles:
        what = f"The sizes of {spec.checkpoint} are not in the catalogue."
        fix = f"Add its shape to infra/catalog/checkpoints/{spec.checkpoint}.yaml."
        raise StackError(f"{stack.file} checkpoint", what, fix)
    return estimate


def _lustre(stack_name: str) -> LustreSettings:
    """Size and tier of a stack's file system: its Pulumi configuration's, else the project's defaults.

    Raises:
        InfraError: the configuration holds something else than numbers there.
    """
    given = configured(stack_name, _TIERS)
    found = {key: given.get(key, default_of(key)) for key in _TIERS}
    try:
        return LustreSettings(
            capacity_gib=int(found["fsx_capacity_gib"]),
            throughput=int(found["fsx_throughput"]),
            has_efa=found["fsx_efa"].lower() == "true",
        )
    except ValueError as error:
        what = "fsx_capacity_gib and fsx_throughput are whole numbers."
        raise StackError(
            str(config_path(stack_name)), what, "Correct them with `pulumi config set`."
        ) from error


def _cluster(stack_name: str) -> ClusterDay:
    """A stack's cluster today: of the version that its Pulumi configuration names, else of the catalogue's."""
    named = configured(stack_name, ["kubernetes_version"]).get("kubernetes_version")
    version = named or read_eks_parts().kubernetes.version
    return ClusterDay(kubernetes_version=version, day=datetime.now(UTC).date())


def _notes(estimate: Estimate) -> str:
    """Where the time and the price come from, and what does not fit."""
    short = [role.load.role for role in estimate.roles if not role.fits]
    lacking = (
        f" {', '.join(short)} cannot hold one request of the length it admits." if short else ""
    )
    return f"{estimate.ready.why}; {estimate.price.why}.{lacking}"
