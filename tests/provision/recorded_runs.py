"""The program of a stack run in this process: real SDK, Pulumi's mocks, the emulated cloud behind them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
import pulumi
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks

from infra.catalog.load import Catalog
from infra.provision.previous import READ_OUTPUTS
from infra.provision.program import provision
from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.cluster_objects import create_object
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.scratch_project import prepare_account
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cloud.wire import plain
from infra.rehearsal.pulumi_project import read_config
from tests.provision.mocked_runs import PROJECT_NAME, default_values, files_of, run_mocked

Prepare = Callable[[Store], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Everything a program registered, and what it exported.

    Args:
        resources: inputs by (type's last word, logical name).
        components: (type, logical name).
        said: messages to the operator, as `severity: text`.
    """

    resources: Mapping[tuple[str, str], dict[str, Any]]
    components: frozenset[tuple[str, str]]
    inventory: dict[str, Any]
    said: tuple[str, ...]

    def of_type(self, name: str) -> dict[str, dict[str, Any]]:
        """Inputs by logical name."""
        return {
            logical: inputs for (kind, logical), inputs in self.resources.items() if kind == name
        }


class _RefusedCall(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """How a refused look-up reaches a program from the real engine."""

    def __init__(self, token: str, refused: RefusedError) -> None:
        super().__init__()
        self._said = f"invocation of {token} returned an error: {refused}"

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return self._said


class _EmulatedCloud(Mocks):
    """Mocks that answer as the emulated cloud does, refusals included."""

    def __init__(self, store: Store, region: str, previous: Mapping[str, Any]) -> None:
        self.store = store
        self.region = region
        self.previous = previous
        self.resources: dict[tuple[str, str], dict[str, Any]] = {}
        self.components: set[tuple[str, str]] = set()
        self.kubeconfig = ""

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not args.custom:
            self.components.add((args.typ, args.name))
            return args.name, {}
        inputs = plain(args.inputs)
        assert isinstance(inputs, dict)
        urn = f"urn:pulumi:test::{PROJECT_NAME}::{args.typ}::{args.name}"
        if args.typ.startswith("kubernetes:") or args.typ.endswith(":kubernetes"):
            return self._new_object(args, inputs, urn)
        failures = operations.check(args.typ, urn, inputs, {})
        if failures:
            raise RefusedError("Check", str(failures))
        self._remember(args, inputs)
        resource = operations.create(self.store, self.region, urn, inputs)
        return resource.id, resource.outputs

    def _new_object(
        self, args: MockResourceArgs, inputs: dict[str, Any], urn: str
    ) -> tuple[str, dict[str, Any]]:
        """An object of a cluster's API, or the provider that reaches it."""
        self._remember(args, inputs)
        if args.typ.startswith("pulumi:providers:"):
            self.kubeconfig = inputs["kubeconfig"]
            return args.name, inputs
        made = create_object(self.store, self.kubeconfig, urn, args.typ, inputs)
        return made.id, made.outputs

    def _remember(self, args: MockResourceArgs, inputs: dict[str, Any]) -> None:
        key = (args.typ.rpartition(":")[2], args.name)
        assert key not in self.resources, f"{key} is registered twice"
        self.resources[key] = inputs

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        if args.token == READ_OUTPUTS:
            return {"outputs": {"inventory": self.previous} if self.previous else {}}, []
        try:
            return look_up(self.store, self.region, args.token, args.args), []
        except RefusedError as error:
            raise _RefusedCall(args.token, error) from None


def nothing(_: Store) -> Mapping[str, str]:
    """An account that holds nothing else than what the stack needs."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stack's program with all that it is given.

    Args:
        root: the project's folder.
        prepare: makes what the account has already.
        previous: the inventory of the last run.
        config: configuration values by short key; they win.
    """

    stack: str
    root: Path
    prepare: Prepare
    previous: Mapping[str, Any]
    config: Mapping[str, str]

    @property
    def key(self) -> object:
        """The same for runs that register the same."""
        previous = json.dumps(self.previous, sort_keys=True)
        config = tuple(sorted(self.config.items()))
        return self.stack, files_of(self.root), self.prepare, previous, config


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """Runs programs, each once: many tests look at the same one.

    Args:
        said: where messages to the operator arrive.
    """

    catalog: Catalog
    said: list[str]
    recordings: dict[object, Recorded] = field(default_factory=dict)

    def record(self, run: Run, folder: Path) -> Recorded:
        """What a program registers; `folder` is new, for its account."""
        key = run.key
        if key not in self.recordings:
            self.recordings[key] = self._record(run, folder)
        return self.recordings[key]

    def _record(self, run: Run, folder: Path) -> Recorded:
        values = self._configuration(run, folder)
        store = Store(folder, is_written=False)
        values |= {f"{PROJECT_NAME}:{key}": value for key, value in run.prepare(store).items()}
        cloud = _EmulatedCloud(store, values.get("aws:region", ""), run.previous)
        exported: list[Any] = []
        self.said.clear()

        def program() -> None:
            document = pulumi.Output.from_input(provision(run.root, run.stack, self.catalog))
            document.apply(exported.append)

        run_mocked(cloud, run.stack, values, program)
        return Recorded(
            resources=cloud.resources,
            components=frozenset(cloud.components),
            inventory=plain(exported[0]),  # type: ignore[arg-type]
            said=tuple(self.said),
        )

    def _configuration(self, run: Run, cloud: Path) -> dict[str, str]:
        """What the command line would hand to the program: defaults of Pulumi.yaml, then the stack's own values."""
        own = {f"{PROJECT_NAME}:{name}": value for name, value in run.config.items()}
        spec_file = run.root / "stacks" / f"{run.stack}.yaml"
        shipped = read_config(run.root, run.stack)
        account = prepare_account(run.stack, spec_file, cloud, shipped, self.catalog)
        return {**default_values(), **account, **shipped, **own}
