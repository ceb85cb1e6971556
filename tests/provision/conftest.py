"""The program of a stack run in this process: real SDK, Pulumi's mocks, the emulated cloud behind them."""

from __future__ import annotations

import asyncio
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi.runtime
import pulumi_aws as aws
import pytest
import yaml
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks

from infra.provision.program import provision
from infra.rehearsal.cloud import operations
from infra.rehearsal.cloud.kind import RefusedError
from infra.rehearsal.cloud.lookups import look_up
from infra.rehearsal.cloud.scratch_project import prepare_account, read_config
from infra.rehearsal.cloud.store import Store
from infra.rehearsal.cloud.wire import plain
from infra.spec.load import PROJECT

PROJECT_NAME = "moe-infra"

with warnings.catch_warnings():
    # pulumi-aws warns of its own deprecated classes when a module of it is loaded
    warnings.simplefilter("ignore", DeprecationWarning)
    for module in (aws.ec2, aws.fsx, aws.iam, aws.s3, aws.ssm, aws.vpc):
        hasattr(module, "loads_with_its_first_attribute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Everything a program registered, and what it exported.

    Args:
        resources: inputs by (type's last word, logical name).
        components: (type, logical name).
    """

    resources: Mapping[tuple[str, str], dict[str, Any]]
    components: frozenset[tuple[str, str]]
    inventory: dict[str, Any]

    def of_type(self, name: str) -> dict[str, dict[str, Any]]:
        """Inputs by logical name."""
        return {
            logical: inputs for (kind, logical), inputs in self.resources.items() if kind == name
        }


class _EmulatedCloud(Mocks):
    """Mocks that answer as the emulated cloud does, refusals included."""

    def __init__(self, store: Store, region: str) -> None:
        self.store = store
        self.region = region
        self.resources: dict[tuple[str, str], dict[str, Any]] = {}
        self.components: set[tuple[str, str]] = set()

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not args.custom:
            self.components.add((args.typ, args.name))
            return args.name, {}
        inputs = plain(args.inputs)
        assert isinstance(inputs, dict)
        urn = f"urn:pulumi:test::{PROJECT_NAME}::{args.typ}::{args.name}"
        failures = operations.check(args.typ, urn, inputs, {})
        if failures:
            raise RefusedError("Check", str(failures))
        key = (args.typ.rpartition(":")[2], args.name)
        assert key not in self.resources, f"{key} is registered twice"
        self.resources[key] = inputs
        resource = operations.create(self.store, self.region, urn, inputs)
        return resource.id, resource.outputs

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        return look_up(self.region, args.token, args.args), []


Record = Callable[..., Recorded]


class _RememberingPolicy(asyncio.DefaultEventLoopPolicy):
    """Remembers the loops that it makes: the SDK opens one in each of its threads and closes none.

    One that the garbage collector finds may have lost its sockets already, and then cannot close itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: list[asyncio.AbstractEventLoop] = []

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        self.made.append(loop)
        return loop


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop of its own, set before the mocks are; all that were opened meanwhile are closed."""
    before = asyncio.get_event_loop_policy()
    policy = _RememberingPolicy()
    asyncio.set_event_loop_policy(policy)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        for each in policy.made:
            each.close()
        asyncio.set_event_loop_policy(before)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Run the program of a stack; keyword arguments are further configuration values."""

    clouds = (tmp_path / f"cloud-{number}" for number in itertools.count())

    def run(stack: str, *, root: Path = PROJECT, **config: str) -> Recorded:
        folder = next(clouds)
        values = _configuration(stack, root, folder, config)
        cloud = _EmulatedCloud(Store(folder), values.get("aws:region", ""))
        exported: list[Any] = []

        def program() -> None:
            document = pulumi.Output.from_input(provision(root, stack))
            document.apply(exported.append)

        with _event_loop() as loop:
            pulumi.runtime.set_mocks(cloud, project=PROJECT_NAME, stack=stack, preview=False)
            pulumi.runtime.set_all_config(values)
            loop.run_until_complete(pulumi.runtime.stack.run_pulumi_func(program))
            pulumi.runtime.set_all_config({})
        return Recorded(
            resources=cloud.resources,
            components=frozenset(cloud.components),
            inventory=plain(exported[0]),  # type: ignore[arg-type]
        )

    return run


def _configuration(
    stack: str, root: Path, cloud: Path, further: Mapping[str, str]
) -> dict[str, str]:
    """What the command line would hand to the program: defaults of Pulumi.yaml, then the stack's own values."""
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text(encoding="utf-8"))
    defaults = {
        f"{PROJECT_NAME}:{name}": _text(each["default"]) for name, each in project["config"].items()
    }
    own = {f"{PROJECT_NAME}:{name}": value for name, value in further.items()}
    spec_file = root / "stacks" / f"{stack}.yaml"
    shipped = read_config(root, stack)
    return {**defaults, **prepare_account(stack, spec_file, cloud, shipped), **shipped, **own}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
