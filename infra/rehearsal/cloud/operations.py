"""What the provider protocol asks of the emulated cloud, on plain values: check, create, change, delete."""

from __future__ import annotations

from collections.abc import Mapping

from infra.rehearsal.cloud import (
    cluster_kinds,
    encryption_keys,
    endpoint_kinds,
    event_kinds,
    google_kinds,
    identity_kinds,
    load_balancer_kinds,
    machine_kinds,
    network_kinds,
    node_group_kinds,
    storage_kinds,
)
from infra.rehearsal.cloud.kind import Kind, Made, RefusedError, Request, find_linked, values_at
from infra.rehearsal.cloud.package_types import UnknownTypeError, resource_type
from infra.rehearsal.cloud.property_rules import property_failures
from infra.rehearsal.cloud.provider_changes import (
    changed_inputs,
    is_deleted_first,
    replacing_inputs,
    unknown_outputs,
)
from infra.rehearsal.cloud.recorded_outputs import constant_outputs
from infra.rehearsal.cloud.store import Resource, Store, digits
from infra.rehearsal.cloud.value_rules import value_failures
from infra.rehearsal.cloud.wire import UNKNOWN

KINDS: Mapping[str, Kind] = {
    **network_kinds.KINDS,
    **endpoint_kinds.KINDS,
    **event_kinds.KINDS,
    **identity_kinds.KINDS,
    **machine_kinds.KINDS,
    **storage_kinds.KINDS,
    **load_balancer_kinds.KINDS,
    **cluster_kinds.KINDS,
    **encryption_keys.KINDS,
    **node_group_kinds.KINDS,
    **google_kinds.KINDS,
}


def check(
    token: str, urn: str, inputs: dict[str, object], old: Mapping[str, object]
) -> list[tuple[str, str]]:
    """Property and reason for everything that the provider refuses by its schema; names what has no name.

    Args:
        token: type of the resource.
        urn: its name in the stack.
        inputs: changed in place: an automatic name is added.
        old: the inputs of the resource as it is, empty for a new one; it keeps its automatic name.
    """
    kind = KINDS.get(token)
    if kind is None:
        return [
            (
                "",
                f"The emulated cloud does not know {token}; see infra/rehearsal/cloud/operations.py.",
            )
        ]
    try:
        declared = resource_type(token)
    except UnknownTypeError as error:
        return [("", f"The package has no resource type {error}")]
    name = kind.auto_name
    if name is not None and inputs.get(name) is None and inputs.get(f"{name}Prefix") is None:
        inputs[name] = old.get(name) or _automatic(urn)
    # an automatic name is as long as that of the resource lets it be
    return [*property_failures(inputs, declared.inputs), *value_failures(token, inputs)]


def changes(
    token: str, old: Mapping[str, object], new: Mapping[str, object]
) -> tuple[list[str], list[str]]:
    """The properties that differ, and those among them that cannot change in place."""
    return changed_inputs(old, new), replacing_inputs(token, old, new)


def goes_first(token: str, urn: str, inputs: Mapping[str, object]) -> bool:
    """Whether the provider deletes a resource before it makes the one that replaces it."""
    name = KINDS[token].auto_name
    return is_deleted_first(token, inputs, "" if name is None else _automatic(urn))


def preview(token: str, inputs: Mapping[str, object]) -> dict[str, object]:
    """What a preview knows of a new resource: its inputs; the rest is unknown."""
    computed = resource_type(token).outputs - set(inputs)
    return {**dict.fromkeys(computed, UNKNOWN), **inputs}


def preview_change(
    token: str, old: Mapping[str, object], outputs: Mapping[str, object], new: Mapping[str, object]
) -> dict[str, object]:
    """What a preview knows of a changed resource: what it was, its new inputs, and less than that of some outputs.

    Args:
        token: type of the resource.
        old: its inputs before.
        outputs: its outputs before.
        new: its inputs after.
    """
    unknown = unknown_outputs(token, old, new)
    return {**_laid_over(outputs, new), **dict.fromkeys(unknown, UNKNOWN)}


def _laid_over(outputs: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    """Outputs with new inputs in their place; what the cloud had put beside an input in its block stays."""
    laid = dict(outputs)
    for name, value in new.items():
        was = outputs.get(name)
        is_block = isinstance(was, dict) and isinstance(value, dict)
        laid[name] = _laid_over(was, value) if is_block else value  # type: ignore[arg-type]
    return laid


def create(store: Store, region: str, urn: str, inputs: dict[str, object]) -> Resource:
    """Make a resource and keep it.

    Raises:
        RefusedError: the cloud says no; nothing was made.
    """
    with store.lock:
        request = Request(
            store=store,
            region=region,
            urn=urn,
            digits=store.new_digits(urn),
            inputs=inputs,
            old=None,
        )
        return _make(request)


def update(
    store: Store, region: str, identity: str, urn: str, inputs: dict[str, object]
) -> Resource:
    """Change a resource in place.

    Raises:
        RefusedError: the cloud says no, or the resource is gone; nothing was changed.
    """
    token = type_of(urn)
    with store.lock:
        old = store.get(token, identity)
        if old is None:
            raise RefusedError(
                "NotFound", f"updating {KINDS[token].noun} ({identity}): it does not exist"
            )
        seed = str(old.hidden["digits"])
        return _make(
            Request(store=store, region=region, urn=urn, digits=seed, inputs=inputs, old=old)
        )


def delete(store: Store, identity: str, urn: str) -> None:
    """Destroy a resource; nothing happens when it is gone.

    Raises:
        RefusedError: another resource still needs it.
    """
    token = type_of(urn)
    with store.lock:
        resource = store.get(token, identity)
        if resource is None:
            return
        for other in store.all():
            kind = KINDS.get(other.type)
            for link in kind.links if kind and other is not resource else ():
                if (
                    link.token == token
                    and link.holds
                    and any(
                        find_linked(store, link, value) is resource
                        for value in values_at(other.inputs, link.path)
                    )
                ):
                    what = f"deleting {KINDS[token].noun} ({identity}): {other.id} depends on it"
                    raise RefusedError("DependencyViolation", what)
        refused = KINDS[token].keeps(resource)
        if refused is not None:
            what = f"deleting {KINDS[token].noun} ({identity}): {refused}"
            raise RefusedError(refused.code, what)
        for each in KINDS[token].belongings(store, resource):
            store.remove(each.type, each.id)
        store.remove(token, identity)


def type_of(urn: str) -> str:
    """The type token of a resource: the last of the types in its URN."""
    return urn.split("::")[2].rpartition("$")[2]


def _make(request: Request) -> Resource:
    token = type_of(request.urn)
    kind = KINDS[token]
    verb = "creating" if request.old is None else "updating"
    try:
        _check_links(request, kind)
        cluster_kinds.refuse_second(request, token)
        made = kind.make(request)
    except RefusedError as error:
        raise RefusedError(error.code, f"{verb} {kind.noun} ({_name(request)}): {error}") from error
    resource = Resource(
        type=token,
        id=made.id,
        urn=request.urn,
        inputs=dict(request.inputs),
        outputs=_outputs(token, made, request),
        hidden={"digits": request.digits, **made.hidden},
    )
    request.store.put(resource)
    return resource


def _check_links(request: Request, kind: Kind) -> None:
    for link in kind.links:
        for value in values_at(request.inputs, link.path):
            if find_linked(request.store, link, value) is None:
                raise RefusedError(link.code, f"{link.path}: '{value}' does not exist")


def _outputs(token: str, made: Made, request: Request) -> dict[str, object]:
    """Inputs and computed properties; only those that the package declares."""
    recorded = constant_outputs(token, request.region)
    outputs = {**recorded, "region": request.region, **request.inputs, **made.computed}
    outputs["tagsAll"] = request.inputs.get("tags") or {}
    declared = resource_type(token).outputs | {"id"}
    return {"id": made.id, **{name: value for name, value in outputs.items() if name in declared}}


def _name(request: Request) -> str:
    return request.urn.rpartition("::")[2]


def _automatic(urn: str) -> str:
    """The name that a resource gets when the program gives none."""
    return f"{urn.rpartition('::')[2]}-{digits(urn)[:7]}"
