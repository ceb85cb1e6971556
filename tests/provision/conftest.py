"""The program of a stack run in this process: real SDK, Pulumi's mocks, the emulated cloud behind them."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as kubernetes
import pytest
import yaml
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
from infra.spec.load import PROJECT
from tests.provision.cluster_answers import Cluster
from tests.provision.kubernetes_program import Made, put_kubectl, run_program, whole_cluster
from tests.provision.mocked_runs import PROJECT_NAME, configured, run_mocked

with warnings.catch_warnings():
    # pulumi-aws warns of its own deprecated classes when a module of it is loaded
    warnings.simplefilter("ignore", DeprecationWarning)
    for module in (
        *(aws.cloudcontrol, aws.ec2, aws.efs, aws.eks, aws.fsx, aws.iam, aws.kms, aws.lb),
        *(aws.s3, aws.ssm, aws.vpc),
        *(kubernetes.apps, kubernetes.core, kubernetes.helm, kubernetes.policy, kubernetes.rbac),
    ):
        hasattr(module, "loads_with_its_first_attribute")
# These packages are objects that stay: looking through them for garbage was a tenth of the folder's time.
gc.freeze()


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


Record = Callable[..., Recorded]


@pytest.fixture(scope="session")
def recordings() -> dict[object, Recorded]:
    """Runs of stacks in accounts that hold nothing else: many tests look at the same one."""
    return {}


def _nothing(_: Store) -> Mapping[str, str]:
    return {}


@pytest.fixture
def record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    catalog: Catalog,
    recordings: dict[object, Recorded],
) -> Record:
    """Run the program of a stack; keyword arguments are further configuration values.

    `prepare` makes what the account has already; `previous` is the inventory of the last run.
    """

    clouds = (tmp_path / f"cloud-{number}" for number in itertools.count())
    put_log_in(tmp_path / "log-in")
    monkeypatch.setenv("PATH", str(tmp_path / "log-in"), prepend=":")
    said: list[str] = []
    for severity in ("info", "warn"):
        monkeypatch.setattr(
            pulumi.log, severity, lambda text, *_, kind=severity: said.append(f"{kind}: {text}")
        )

    def run(
        stack: str,
        *,
        root: Path = PROJECT,
        prepare: Callable[[Store], Mapping[str, str]] = _nothing,
        previous: Mapping[str, Any] | None = None,
        **config: str,
    ) -> Recorded:
        is_shared = prepare is _nothing and previous is None
        key = (stack, _files_of(root), tuple(sorted(config.items())))
        if is_shared and key in recordings:
            return recordings[key]
        folder = next(clouds)
        values = _configuration(stack, root, folder, config, catalog)
        store = Store(folder)
        values |= {f"{PROJECT_NAME}:{key}": value for key, value in prepare(store).items()}
        cloud = _EmulatedCloud(store, values.get("aws:region", ""), previous or {})
        exported: list[Any] = []
        said.clear()

        def program() -> None:
            document = pulumi.Output.from_input(provision(root, stack, catalog))
            document.apply(exported.append)

        run_mocked(cloud, stack, values, program)
        recorded = Recorded(
            resources=cloud.resources,
            components=frozenset(cloud.components),
            inventory=plain(exported[0]),  # type: ignore[arg-type]
            said=tuple(said),
        )
        if is_shared:
            recordings[key] = recorded
        return recorded

    return run


def _files_of(root: Path) -> tuple[tuple[str, str], ...]:
    """Paths and texts of a test's own project; () for the project itself."""
    files = sorted(path for path in root.rglob("*") if path.is_file()) if root != PROJECT else ()
    return tuple((str(path.relative_to(root)), path.read_text()) for path in files)


def put_log_in(folder: Path) -> None:
    """The AWS command line, which nobody asks anything here."""
    folder.mkdir()
    (folder / "aws").write_text("#!/bin/sh\nexit 1\n")
    (folder / "aws").chmod(0o755)


def _configuration(
    stack: str, root: Path, cloud: Path, further: Mapping[str, str], catalog: Catalog
) -> dict[str, str]:
    """What the command line would hand to the program: defaults of Pulumi.yaml, then the stack's own values."""
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text(encoding="utf-8"))
    defaults = {
        f"{PROJECT_NAME}:{name}": configured(each["default"])
        for name, each in project["config"].items()
    }
    own = {f"{PROJECT_NAME}:{name}": value for name, value in further.items()}
    spec_file = root / "stacks" / f"{stack}.yaml"
    shipped = read_config(root, stack)
    return {
        **defaults,
        **prepare_account(stack, spec_file, cloud, shipped, catalog),
        **shipped,
        **own,
    }


@pytest.fixture
def provisioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Run the program of a stack in a cluster that answers so; keyword arguments are configuration values."""
    folder = tmp_path / "bin"

    def run(stack: str, answers: dict[str, Any] | None = None, **more: Any) -> Made:
        put_kubectl(folder, whole_cluster() if answers is None else answers)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        return run_program(stack, folder, **more)

    return run
