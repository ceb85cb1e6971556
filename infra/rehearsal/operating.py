"""What an operator does in a rehearsal: the same calls into production rooms as the tasks make."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from infra.catalog.load import Catalog
from infra.errors import Differs, HostsFailed, NotReady
from infra.inventory.book import match_hosts
from infra.inventory.hosts import Inventory, InventoryHost
from infra.launch.bring_up import start
from infra.launch.deployment import Deployment, Limits, client_of
from infra.launch.fleet import SshFleet, SystemClock, ask_all, rows_of
from infra.launch.host_tuning import TuningOrder, count_of, tune
from infra.launch.installation import install, state_request
from infra.launch.observation import observe
from infra.launch.proof.verification import verify
from infra.launch.secret import Secret
from infra.plan.endpoints import read_endpoints
from infra.plan.process import Plan
from infra.rehearsal.made_up_secrets import made_up
from infra.rehearsal.real_engines import has_real_engines
from infra.rehearsal.report import counted
from infra.remote.connecting import SshOptions
from infra.render.host_state import host_state
from infra.render.wanted_tuning import Tuning
from infra.spec.edge_keys import as_hosts_get_them

# A simulated engine loads in under a second; what takes longer than this will never come.
READY_S = 60.0
# A real one imports and warms up on processors that it shares with everything else here.
REAL_READY_S = 900.0
REQUEST_S = 20.0
# A chat at a few tokens per second, where others take most of the processors.
REAL_REQUEST_S = 180.0
MAX_NAMED = 3
# What production code says to type reaches hosts only while they are there.
LOOK = "With --keep the hosts stay: `fab logs` and `fab verify` show more there."


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator at work on the hosts of a plan.

    Args:
        secrets: values made up for the rehearsal; an operator's real ones are never read.
        catalog: what is true of the world.
    """

    deployment: Deployment
    secrets: Mapping[str, Secret]
    catalog: Catalog

    def prove_weights(self) -> None:
        """Every checkpoint is on every host, whole.

        Raises:
            HostsFailed: one is not.
        """
        requests = {
            host: state_request(self.deployment, state.of_groups("weights"), "check", {})
            for host, state in self.deployment.states.items()
        }
        reports = ask_all(self.deployment.fleet, requests, timeout_s=self.deployment.limits.ask_s)
        for host, report in reports.items():
            for row in rows_of(report, "items"):
                if row["state"] != "ok":
                    raise HostsFailed(
                        host, f"{row['id']}: {row['why']}.", "Stage the weights again."
                    )

    def tune(self) -> str:
        """Bring every host to the tuning profile; what came of it, in words.

        Raises:
            HostsFailed: an item failed.
        """
        deployment = self.deployment
        rows = tune(
            deployment.fleet,
            deployment.states,
            TuningOrder(mode="apply", timeout_s=deployment.limits.ask_s),
        )
        failed = [
            f"{host} {row['id']}: {row['why']}"
            for host, items in rows.items()
            for row in items
            if row["state"] == "failed"
        ]
        if failed:
            what = f"{len(failed)} items failed: {'; '.join(failed[:MAX_NAMED])}."
            raise HostsFailed("tune-hosts", what, "See why beside each item.")
        states = ("changed", "ok", "blocked", "not_applicable")
        counts = [f"{count_of(rows, state)} {state.replace('_', ' ')}" for state in states]
        return f"{deployment.plan.tuning} on {counted(len(rows), 'host')}: {', '.join(counts)}"

    def install(self) -> None:
        """Files and images on every host; nothing is started."""
        install(self.deployment, self.secrets, tunes=False)

    def start(self) -> str:
        """Start what is installed and prove every rank; what proved the whole, in words.

        Raises:
            NotReady: something does not serve.
        """
        try:
            served = start(self.deployment, self.secrets)
        except NotReady as error:
            raise NotReady(error.where, error.what, LOOK) from error
        through = f"; through the router: {served.through_router}" if served.through_router else ""
        return f"{counted(len(served.proofs), 'rank')} generated a token{through}"

    def verify(self) -> str:
        """Drift, then every capability through every rank and the router.

        Raises:
            Differs: a host is not as declared.
            NotReady: something does not serve.
        """
        is_real = has_real_engines(self.deployment.plan, self.catalog)
        limit_s = REAL_REQUEST_S if is_real else REQUEST_S
        checks = verify(self.deployment, self.secrets, limit_s, self.catalog)
        for kind, error in ((True, Differs), (False, NotReady)):
            wrong = [check for check in checks if check.is_wrong and check.is_drift is kind]
            if wrong:
                words = "; ".join(f"{c.process} {c.check}: {c.detail}" for c in wrong[:MAX_NAMED])
                what = f"{len(wrong)} of {len(checks)} checks failed: {words}."
                raise error("the deployment", what + self._restarts(), LOOK)
        capabilities = ", ".join(self.deployment.plan.capabilities)
        unknown = sum(check.ok is None for check in checks)
        rest = f", {unknown} tell nothing" if unknown else ""
        return f"{len(checks) - unknown} checks passed ({capabilities}){rest}"

    def _restarts(self) -> str:
        """What the watchers know of groups that they have restarted; with the hosts it is gone."""
        stack, hosts = self.deployment.plan.stack, list(self.deployment.states)
        rows = observe(self.deployment.fleet, hosts, stack, timeout_s=self.deployment.limits.ask_s)
        groups = {row.group.group: row.group.words for row in rows if row.group is not None}
        return "".join(f" {name}: {words}." for name, words in groups.items() if words)


@contextlib.contextmanager
def operator_at_work(
    plan: Plan, inventory: Inventory, catalog: Catalog, tuning: Tuning, say: Callable[[str], None]
) -> Iterator[Operator]:
    """An operator who reaches the hosts over SSH, as the inventory says.

    Args:
        plan: compiled against this inventory.
        inventory: the hosts.
        catalog: what is true of the world.
        tuning: the stack's profile.
        say: told about progress.
    """
    hosts = match_hosts([(host.name, host.groups[0]) for host in plan.hosts], inventory)
    values = made_up(plan.secrets)
    secrets = {name: Secret(value) for name, value in as_hosts_get_them(values).items()}
    key = secrets.get("api_key")
    fleet = SshFleet(hosts, SshOptions())
    ready_s = REAL_READY_S if has_real_engines(plan, catalog) else READY_S
    try:
        deployment = Deployment(
            plan=plan,
            states={
                host.name: host_state(plan, host.name, tuning=tuning, catalog=catalog)
                for host in plan.hosts
            },
            endpoints=read_endpoints(plan, catalog),
            fleet=fleet,
            hang_up=fleet.hang_up,
            clock=SystemClock(),
            limits=Limits(ready_s=ready_s, router_s=READY_S),
            headers={"Authorization": f"Bearer {key.reveal()}"} if key else {},
            client=client_of(values),
            say=say,
            nonce=os.urandom(8).hex(),
        )
        yield Operator(deployment, secrets, catalog)
    finally:
        fleet.close()


def ways_in(inventory: Inventory, ssh_arguments: tuple[str, ...]) -> dict[str, InventoryHost]:
    """The hosts by name, each as the lab's own ssh_config has it: its name says all, whatever the stack says of it.

    Args:
        inventory: the hosts.
        ssh_arguments: words that name that ssh_config.
    """
    return {
        host.name: replace(host, address=host.name, user=None, ssh_arguments=ssh_arguments)
        for host in inventory.hosts
    }
