"""The steps of a stack whose processes Kubernetes starts: a real control plane, and simulated hosts as its nodes.

What kubelets and the cluster's DNS do is played: a pod's container runs on the simulated host that has its node's
devices, names are those that the real endpoint controllers publish.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import TypeVar

from infra.agent.pod_launch import LEADER, has_token
from infra.catalog.load import Catalog
from infra.catalog.schema import Accelerator
from infra.engines.serving import COMPLETIONS, completion
from infra.errors import Differs, HostsFailed, NotReady
from infra.inventory.pods import EDGE_HOST, ROUTER_HOST
from infra.launch.proof.transport import check_transports
from infra.plan.endpoints import read_endpoints
from infra.plan.process import Plan, Process
from infra.rehearsal.cluster.api import Document, RefusedError
from infra.rehearsal.cluster.containers import PodContainer
from infra.rehearsal.cluster.played_kubelets import publish_names, start_pods, tell
from infra.rehearsal.cluster.pods import is_of_a_daemon_set, pods_in, resolve_pod, resolved
from infra.rehearsal.cluster.room import Room
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.made_up_secrets import made_up
from infra.rehearsal.pod_cluster import PodCluster
from infra.rehearsal.report import Report, counted
from infra.rehearsal.simulated_hosts import lent_python
from infra.spec.load import LoadedStack

T = TypeVar("T")
BOUND_S, TUNED_S, READY_S, SERVICE_S = 120.0, 120.0, 180.0, 60.0
LOOK_S = 0.2
NUM_REQUESTS = 4
REQUEST_S = 20.0


def of_the_cluster(step: Callable[[], T]) -> Callable[[], T]:
    """A step whose questions to the cluster may stay without a good answer.

    Raises:
        HostsFailed: one did.
    """

    def ask() -> T:
        try:
            return step()
        except (OSError, RefusedError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of this machine, not of the API server
            what = f"Its API server: {error}."
            raise HostsFailed("the rehearsed cluster", what, "Rehearse again.") from error

    return ask


@dataclass(slots=True, kw_only=True)
class InPods:
    """A stack's pods, from `pulumi up` to the token that went through them.

    Args:
        stack: the stack.
        plan: compiled for pods.
        lab: that the hosts are booted in.
        say: told about progress.
        resources: what ends with the rehearsal.
        room: the cluster, from `provision` on.
        containers: of engines and router by plan host, from `bind` on.
        running: those that were started last.
        secrets: values by name, made up.
    """

    stack: LoadedStack
    plan: Plan
    lab: Lab
    catalog: Catalog
    report: Report
    say: Callable[[str], None]
    resources: contextlib.ExitStack
    room: Room | None = None
    containers: dict[str, PodContainer] = field(default_factory=dict)
    running: list[PodContainer] = field(default_factory=list)
    secrets: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Make up what an operator would have."""
        self.secrets = made_up(self.plan.secrets)

    def lab_plan(self) -> Plan:
        """The plan with a documentation address for each host: its pod's."""
        hosts = tuple(
            replace(host, address=f"192.0.2.{number}")
            for number, host in enumerate(self.plan.hosts, start=1)
        )
        return replace(self.plan, hosts=hosts)

    def provision(self) -> str:
        """A control plane with nodes, and the stack in it by the real command line; what came of it, in words.

        Raises:
            PrerequisiteError: no cluster is built here, or the stack asks for more than nodes.
            HostsFailed: Pulumi or the cluster refused, or a pod found no node.
        """
        filled = PodCluster(
            stack=self.stack,
            plan=self.plan,
            lab=self.lab,
            catalog=self.catalog,
            say=self.say,
            resources=self.resources,
            secrets=self.secrets,
        ).fill()
        self.room = filled.room
        self.report.pulumi_dir = str(filled.project_folder)
        self.report.pulumi_env = dict(filled.environment)
        pods = self._bound(len(self.plan.hosts) + filled.num_accelerator_nodes)
        nodes = {pod["spec"]["nodeName"] for pod in pods}
        return (
            f"{filled.how}: {counted(len(pods), 'pod')} scheduled onto "
            f"{counted(len(nodes), 'simulated node')}"
        )

    def bind(self) -> None:
        """Give each pod with processes the simulated host that has its node's devices."""
        room = self._cluster()
        addresses = {host.name: host.address for host in self.lab_plan().hosts}
        accelerator = self._accelerator()
        # a router's wheel is this project's own, and starts with its Python
        router = tuple(lent_python().values())
        for pod in pods_in(room.api, self.stack.name):
            if is_of_a_daemon_set(pod) or _is_edge(pod):
                continue
            name = resolve_pod(room.api, pod, "").told["name"]
            self.containers[name] = PodContainer(
                lab=self.lab,
                host=name,
                pod=resolve_pod(room.api, pod, addresses[name]),
                accelerator=accelerator,
                binds=router if name == ROUTER_HOST else (),
            )

    def tune(self) -> str:
        """Run the DaemonSet's pods; what became of their nodes, in words.

        Raises:
            HostsFailed: a node is not as its profile says.
        """
        room = self._cluster()
        self.bind()
        hosts = {
            each.pod.node: each.host
            for each in self.containers.values()
            if each.host != ROUTER_HOST
        }
        agents = [
            PodContainer(
                lab=self.lab,
                host=hosts[pod["spec"]["nodeName"]],
                pod=resolve_pod(room.api, pod, f"198.51.100.{number}"),
                accelerator=self._accelerator(),
            )
            for number, pod in enumerate(pods_in(room.api, self.stack.name), start=1)
            if is_of_a_daemon_set(pod)
        ]
        self.running = agents
        try:
            start_pods(room.api, agents, TUNED_S)
        except NotReady as error:
            raise HostsFailed(error.where, error.what, error.fix) from error
        counts: Counter[str] = Counter()
        for agent in agents:
            program, folder = agent.pod.container["command"][1], agent.pod.container["command"][3]
            code, said = agent.ask(["python3", program, "report", folder])
            if code != 0:
                what = f"{agent.pod.name} does not report its tuning: {said}."
                raise HostsFailed(agent.host, what, "Its last lines say why.")
            (host,) = json.loads(said)["hosts"]
            counts.update(row["state"] for row in host["items"])
        listed = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.items())
        return f"{self.plan.tuning} by the DaemonSet on {counted(len(agents), 'node')}: {listed}"

    def start(self) -> str:
        """Start every container as its kubelet would, until every pod has proven itself; in words.

        Raises:
            NotReady: a pod has not, or a name leads elsewhere.
        """
        api, containers = self._cluster().api, self.containers
        for each in containers.values():
            tell(api, each.pod, is_ready=False)
        # a router's name is that of a service with an address of its own
        wanted = {
            host.address: containers[host.name].pod
            for host in self.plan.hosts
            if host.name not in (ROUTER_HOST, EDGE_HOST)
        }
        # by its leader's name a launcher tells its own revision
        by_name = {each.pod.name: each.pod for each in containers.values()}
        for each in containers.values():
            leader = each.pod.environment.get(LEADER, "").removesuffix(f".{self.stack.name}")
            if leader:
                wanted[leader] = by_name[leader.partition(".")[0]]
        publish_names(api, self.stack.name, self.lab, wanted, list(containers))
        self.running = list(containers.values())
        start_pods(api, self.running, READY_S)
        engines = sum(process.kind == "engine" for process in self.plan.processes)
        through = ", the router's with a token through it" if self._has_router() else ""
        return (
            f"{counted(engines, 'engine process', 'es')} in {counted(len(containers), 'pod')}: "
            f"every startup probe has passed{through}"
        )

    def verify(self) -> str:
        """The plan's own commands run in the pods, completions go through the clients' service, groups by their fabric.

        Raises:
            Differs: another command runs, or a group or a transfer has fallen back to another transport.
            NotReady: the service leads nowhere, or answers without a token.
        """
        for each in self.containers.values():
            self._verify_commands(each)
        address, port = self._clients()
        host = next(name for name, c in self.containers.items() if c.pod.address == address)
        model = read_endpoints(self.plan, self.catalog).model
        for _ in range(NUM_REQUESTS):
            self._complete(host, port, model)
        told = self._verify_transports()
        commands = sum(process.kind != "edge" for process in self.plan.processes)
        said = f"; {counted(told, 'transport')} between hosts, by the engines' own lines"
        return (
            f"{counted(commands, 'command')} as planned; "
            f"{counted(NUM_REQUESTS, 'completion')} through the service of clients"
            f"{said if told else ''}"
        )

    def last_words(self, where: str) -> dict[str, list[str]]:
        """What the pods on hosts that an error names said last."""
        named = where.replace(",", " ").split()
        return {each.pod.name: each.last_words() for each in self.running if each.host in named}

    def _cluster(self) -> Room:
        if self.room is None:
            message = "the provision step has not run"
            raise AssertionError(message)
        return self.room

    def _accelerator(self) -> Accelerator:
        """The one of all nodes: stacks in pods have no other."""
        return self.catalog.accelerator(self.plan.hosts[0].accelerator)

    def _has_router(self) -> bool:
        """Whether clients are behind one."""
        return ROUTER_HOST in self.containers

    def _bound(self, count: int) -> list[Document]:
        """All pods, once each of them has a node."""
        api, until = self._cluster().api, time.monotonic() + BOUND_S
        while True:
            pods = pods_in(api, self.stack.name)
            if len(pods) == count and all("nodeName" in pod["spec"] for pod in pods):
                return pods
            if time.monotonic() > until:
                names = [p["metadata"]["name"] for p in pods if "nodeName" not in p["spec"]]
                waiting = ", ".join(names) or "none"
                what = (
                    f"{len(pods)} of {count} pods after {BOUND_S:.0f} s; without a node: {waiting}."
                )
                fix = "Rehearse with --keep, and ask `kubectl get events --all-namespaces`."
                raise HostsFailed("the rehearsed cluster", what, fix)
            time.sleep(LOOK_S)

    def _verify_commands(self, container: PodContainer) -> None:
        """The launcher was told the plan's commands, and engines run with them and with their variables."""
        running = [(pid, list(words)) for pid, words in self.lab.processes(container.host)]
        own = container.pod.environment
        told = {row["id"]: row["argv"] for row in container.pod.told["processes"]}
        for process in self.plan.on_host(container.host):
            argv = [resolved(word, own) for word in process.argv]
            is_told = [resolved(word, own) for word in told.get(process.id, ())] == argv
            # behind the interpreter that the simulated engine needs; a router's wheel gives itself a title
            pids = [pid for pid, words in running if words[-len(argv) :] == argv]
            if not is_told or not (pids or process.kind == "router"):
                what = f"{process.id} does not run as planned in {container.pod.name}."
                raise Differs(container.host, what, "Compare `fab plan` with what runs there.")
            for pid in pids:
                others = other_variables(process, own, self._environ(container.host, pid))
                if others:
                    what = f"{process.id} runs in {container.pod.name} without its {', '.join(others)}."
                    raise Differs(container.host, what, "Compare `fab plan` with what runs there.")

    def _verify_transports(self) -> int:
        """How many engines tell what their group or their KV goes over: those that are told to (`NCCL_DEBUG`)."""
        lines: dict[str, list[str]] = {}
        for container in self.containers.values():
            said, processes = container.lines(), self.plan.on_host(container.host)
            for process in processes:
                # a launcher of several says whose each line is
                start = f"[{process.id}] " if len(processes) > 1 else ""
                own = [line.removeprefix(start) for line in said if line.startswith(start)]
                lines[process.id] = own
        checks = check_transports(self.plan, self.catalog, lines)
        for check in checks:
            if check.ok is False:
                fix = "See what of its fabric the pod asks for, and what it is given."
                raise Differs(check.process, check.detail, fix)
        return sum(check.ok is True for check in checks)

    def _environ(self, host: str, pid: int) -> dict[str, str]:
        """The variables that a process was started with."""
        said = self.lab.run(host, ["cat", f"/proc/{pid}/environ"]).stdout.decode()
        pairs = (each.partition("=") for each in said.split("\0"))
        return {name: value for name, _, value in pairs}

    def _clients(self) -> tuple[str, int]:
        """Where the clients' service leads: the address and port behind it."""
        api = self._cluster().api
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.stack.name}/endpointslices"
        service = (
            f"{self.stack.name}-router" if self._has_router() else f"{self.stack.name}-endpoint"
        )
        until = time.monotonic() + SERVICE_S
        while time.monotonic() < until:
            for piece in api.items(path):
                if piece["metadata"]["labels"]["kubernetes.io/service-name"] == service:
                    for endpoint in piece.get("endpoints") or ():
                        if endpoint["conditions"].get("ready"):
                            return endpoint["addresses"][0], int(piece["ports"][0]["port"])
            time.sleep(LOOK_S)
        raise NotReady(f"service {service}", "It has no ready endpoint.", "See its pod.")

    def _complete(self, host: str, port: int, model: str) -> None:
        body = json.dumps(completion(model, max_tokens=4))
        headers = {"Content-Type": "application/json", **self._key()}
        try:
            connection = self.lab.http(host, port, REQUEST_S)
            with contextlib.closing(connection):
                connection.request("POST", COMPLETIONS, body, headers)
                answer = connection.getresponse()
                said = answer.read()
        except (OSError, HTTPException) as error:
            what = f"port {port} of {host} does not answer: {error!r}."
            raise NotReady("the clients' service", what, "See the router's last lines.") from error
        if not has_token(said):
            what = f"{answer.status} {said[:200].decode(errors='replace')}"
            raise NotReady("the clients' service", what, "See the router's last lines.")

    def _key(self) -> Mapping[str, str]:
        key = self.secrets.get("api_key")
        return {"Authorization": f"Bearer {key}"} if key else {}


def _is_edge(pod: Document) -> bool:
    """Whether a pod is the edge's: it is scheduled, and not played, as no node has HAProxy's image."""
    return bool(pod["metadata"]["labels"].get("app.kubernetes.io/component") == EDGE_HOST)


def other_variables(
    process: Process, own: Mapping[str, str], found: Mapping[str, str]
) -> list[str]:
    """Names of the plan's variables that a process has otherwise, or not at all.

    Args:
        process: of the plan.
        own: of its pod, which answers the plan's expressions.
        found: that it was started with.
    """
    # what is put before the image's own value is not known here
    known = {name: resolved(value, own) for name, value in process.env.items()}
    return [
        name
        for name, value in known.items()
        if name not in process.env_prepend and found.get(name) != value
    ]
