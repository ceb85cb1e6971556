"""Kubernetes manifests with pod templates: Deployment, StatefulSet, LeaderWorkerSet, DisaggregatedSet and their like.

Sources: kubernetes.io container command, args and `$(VAR)` references; leaderworkerset.x-k8s.io/v1 and
disaggregatedset.x-k8s.io/v1 at kubernetes-sigs/lws commit 060ab4d, 2026-08-21.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.engines.recognition import recognise
from infra.inventory.book import documentation_hosts
from infra.plan.foreign.host_access import host_access
from infra.plan.foreign.manifest_pods import MAX_PODS, PODS_OF, ManifestPod, objects_of
from infra.plan.foreign.pod_facts import lacks_names, service_variables, silence_s
from infra.plan.foreign.script import EntryPoints, ScriptReader, repository_of
from infra.plan.foreign.shared_memory import of_pod
from infra.plan.foreign.shell import Shell
from infra.plan.foreign.shell_values import Scope, Value
from infra.plan.foreign.source import (
    Container,
    ForeignMount,
    Launch,
    NodesAsked,
    NotUnderstood,
    Recipe,
    Word,
)
from infra.plan.foreign.yaml_pages import Node, Page
from infra.spec.work import Work

_REFERENCE = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_DEVICES = re.compile(r"(nvidia\.com|amd\.com|huawei\.com)/[\w.-]+")
_SHELLS = ("sh", "bash")
# They start no pod by themselves.
_QUIET = frozenset(
    {
        "Service", "ConfigMap", "Secret", "Namespace", "PersistentVolumeClaim", "PersistentVolume", "ServiceAccount",
        "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Ingress", "HTTPRoute", "Gateway", "PodMonitor",
        "ServiceMonitor", "NetworkPolicy", "PodDisruptionBudget", "HorizontalPodAutoscaler", "StorageClass",
        "ResourceClaimTemplate", "ComputeDomain", "InferencePool", "InferenceModel", "DestinationRule",
    }
)  # fmt: skip


@dataclass(slots=True)
class _Reader:
    """Collects the processes of pods."""

    entrypoints: EntryPoints
    settings: Mapping[str, str]
    addresses: Mapping[str, str]
    linked: Mapping[str, Word]
    services: Sequence[Node]
    work: Work
    launches: list[Launch] = field(default_factory=list)
    notes: list[NotUnderstood] = field(default_factory=list)
    hints: list[Word] = field(default_factory=list)
    uses_ray: bool = False

    def pod(self, pod: ManifestPod) -> None:
        """Every container of a pod; those that run no engine are listed."""
        pod.template.spend()
        spec = pod.template.get("spec")
        self.hints += [selector.word() for selector in spec.get("nodeSelector").nodes()]
        for container in spec.get("containers").nodes():
            self._container(pod, spec, container)

    def _container(self, pod: ManifestPod, spec: Node, node: Node) -> None:
        node.spend()
        spec.get("volumes").spend()
        env = self._environment(pod, node)
        image = node.get("image").word() if node.get("image").is_there else None
        if image is not None:
            self.hints.append(image)
        box = Container(
            runtime="kubernetes",
            image=image,
            mounts=_mounts(spec, node),
            num_devices=_num_devices(node),
            has_own_network=True,
            lacks_names=lacks_names(spec),
            leads_in_turn=pod.leads_in_turn and node.get("readinessProbe", "httpGet").is_there,
            silence_s=silence_s(node),
            names=self._names(pod),
            shared_bytes=of_pod(spec, node.get("volumeMounts").nodes()),
            resources=_resources(node),
        )
        security = node.get("securityContext")
        told = [("privileged", security.get("privileged")), ("pid", spec.get("hostPID"))]
        told += [("cap-add", each) for each in security.get("capabilities", "add").nodes()]
        for option, given in told:
            value = "host" if option == "pid" and given.value is True else given.text().lower()
            self.notes += host_access(option, value, given.line)
        words = self._command(node, image, env)
        before = len(self.launches)
        script = _script_of(words)
        if script is not None:
            self._follow(pod, box, (script, words[words.index(script) + 1 :], env))
        elif recognise([word.text for word in words]) is not None:
            self.launches.append(
                Launch(
                    words=tuple(words),
                    env=env,
                    container=box,
                    host=pod.host,
                    role=pod.role,
                    group=self._group(pod, words),
                )
            )
        if len(self.launches) == before:
            why = "it starts no engine or router that I know"
            self.notes.append(NotUnderstood(node.line, f"container {node.get('name').text()}", why))

    def _names(self, pod: ManifestPod) -> tuple[str, ...]:
        """What others dial: the pod by its own name and its owner's, and services that select it."""
        told = {key: node.text() for key, node in pod.template.get("metadata", "labels").items()}
        set_of = "leaderworkerset.sigs.k8s.io"
        labels = {f"{set_of}/name": pod.owner, f"{set_of}/worker-index": str(pod.index), **told}
        found = [pod.host, pod.owner]
        for service in self.services:
            service.spend()
            wanted = {key: node.text() for key, node in service.get("spec", "selector").items()}
            if wanted and wanted.items() <= labels.items():
                found.append(service.get("metadata", "name").text())
        return tuple(dict.fromkeys(found))

    def _follow(
        self,
        pod: ManifestPod,
        box: Container,
        inside: tuple[Word, Sequence[Word], Mapping[str, Word]],
    ) -> None:
        script, arguments, env = inside
        reader = ScriptReader(self.entrypoints)
        scope = Scope(fixed=dict(self.settings), work=self.work)
        scope.values.update({name: Value(w.raw, w.open_names) for name, w in env.items()})
        scope.exported.update(dict.fromkeys(env))
        scope.lines.update({name: word.line for name, word in env.items()})
        scope.positional = tuple(Value(w.raw, w.open_names) for w in arguments[1:])
        scope.has_positional = True
        shell = Shell(scope, reader.handle)
        shell.follow(script.raw, script.line)
        self.notes += shell.not_understood
        self.uses_ray |= reader.uses_ray
        for found in reader.launches:
            group = self._group(pod, found.words)
            self.launches.append(
                replace(
                    found, container=box, host=pod.host, role=pod.role, group=group, blocks=False
                )
            )

    def _group(self, pod: ManifestPod, words: Sequence[Word]) -> str | None:
        program = recognise([word.text for word in words])
        return pod.group if program is not None and program.kind == "engine" else None

    def _environment(self, pod: ManifestPod, node: Node) -> dict[str, Word]:
        """Variables of a container, with what its controller injects."""
        line = node.line
        told = {
            "LWS_LEADER_ADDRESS": self.addresses[pod.leader],
            "LWS_GROUP_SIZE": str(pod.size),
            "LWS_WORKER_INDEX": str(pod.index),
        }
        env = {name: Word(value, line) for name, value in told.items()} if pod.size else {}
        if pod.template.get("spec", "enableServiceLinks").value is not False:
            env.update(self.linked)
        for entry in node.get("env").nodes():
            name, source = entry.get("name").text(), entry.get("valueFrom")
            at = entry.get("name").line
            if not source.is_there:
                env[name] = self._expanded(Word(entry.get("value").text(), at), env)
                continue
            path = source.get("fieldRef", "fieldPath").text()
            if path in ("status.podIP", "status.hostIP", "status.podIPs"):
                env[name] = Word(self.addresses[pod.host], at)
            elif "worker-index" in path:
                env[name] = Word(str(pod.index), at)
            elif not source.get("secretKeyRef").is_there:
                env[name] = Word(f"${name}", at, (name,))
        if node.get("envFrom").is_there:
            why = "variables of a ConfigMap or Secret"
            self.notes.append(NotUnderstood(node.get("envFrom").line, "envFrom", why))
        return env

    def _command(self, node: Node, image: Word | None, env: Mapping[str, Word]) -> tuple[Word, ...]:
        """What the container runs: its command or the image's entry point, and its arguments."""
        command = [item.script() for item in node.get("command").nodes()]
        arguments = [item.script() for item in node.get("args").nodes()]
        if not command and image is not None:
            known = self.entrypoints.get(repository_of(image.text), ())
            command = [Word(text, image.line) for text in known]
        return tuple(self._expanded(word, env) for word in (*command, *arguments))

    def _expanded(self, word: Word, env: Mapping[str, Word]) -> Word:
        """`$(VAR)` with the container's variables, as Kubernetes does; what it does not know stays."""
        open_names = list(word.open_names)

        def put(match: re.Match[str]) -> str:
            found = env.get(match[1])
            if found is None:
                return match[0]
            self.work.spend_text(len(found.raw) + len(found.open_names), word.line)
            open_names.extend(found.open_names)
            return found.raw

        return Word(_REFERENCE.sub(put, word.raw), word.line, tuple(open_names))


def is_manifest(pages: Sequence[Page]) -> bool:
    """Whether a document is a Kubernetes object."""
    return any(p.root.get("apiVersion").is_there and p.root.get("kind").is_there for p in pages)


def read_manifests(
    pages: Sequence[Page], settings: Mapping[str, str], entrypoints: EntryPoints
) -> Recipe:
    """The processes of the pods that manifests make.

    Raises:
        TooMuchWorkError: their pods or scripts do too much to be followed.
    """
    pods: list[ManifestPod] = []
    notes: list[NotUnderstood] = []
    objects = objects_of(pages)
    for root in objects:
        kind, name = root.get("kind").text(), root.get("metadata", "name").text("pod")
        build = PODS_OF.get(kind)
        if build is not None:
            pods += build(root, name)
            pages[0].work.spend(len(pods), root.line)
        elif kind not in _QUIET:
            notes.append(
                NotUnderstood(root.get("kind").line, f"{kind} {name}", "an object of another kind")
            )
    if len(pods) > MAX_PODS:
        notes.append(
            NotUnderstood(1, "replicas", f"only the first {MAX_PODS} of {len(pods)} pods are read")
        )
        pods = pods[:MAX_PODS]
    book = documentation_hosts([pod.host for pod in pods])
    addresses = {pod.host: book.address(pod.host, seen_from=pod.host) for pod in pods}
    linked = service_variables(objects)
    services = [root for root in objects if root.get("kind").text() == "Service"]
    reader = _Reader(entrypoints, settings, addresses, linked, services, pages[0].work)
    for pod in pods:
        reader.pod(pod)
    return Recipe(
        format="Kubernetes manifest",
        launches=tuple(reader.launches),
        not_understood=(*notes, *reader.notes),
        is_whole=False,
        addresses=addresses,
        hints=tuple(dict.fromkeys(reader.hints)),
        uses_ray=reader.uses_ray,
        nodes_asked=_nodes_asked(pods, reader),
    )


def _nodes_asked(pods: Sequence[ManifestPod], reader: _Reader) -> tuple[NodesAsked, ...]:
    """Groups of several pods of which some start an engine, and others of the same template's devices do not."""
    running = {launch.host for launch in reader.launches}
    groups: dict[str, list[ManifestPod]] = {}
    for pod in pods:
        if pod.size > 1:
            groups.setdefault(pod.group, []).append(pod)
    found = []
    for members in groups.values():
        asking = [p for p in members if _asks_for_devices(p) or p.host in running]
        used = sum(pod.host in running for pod in asking)
        first = members[0]
        line = first.template.line
        found.append(NodesAsked(by=first.owner, line=line, asked=len(asking), used=used))
    return tuple(found)


def _asks_for_devices(pod: ManifestPod) -> bool:
    containers = pod.template.get("spec", "containers").nodes()
    return any(_num_devices(container) for container in containers)


def _script_of(words: Sequence[Word]) -> Word | None:
    if not words or words[0].text.rpartition("/")[2] not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], start=1):
        if re.fullmatch(r"-[a-z]*c", word.text) and index + 1 < len(words):
            return words[index + 1]
    return None


def _num_devices(node: Node) -> int | None:
    """What the container asks for of the vendors' device plugins."""
    for kind in ("limits", "requests"):
        for name, amount in node.get("resources", kind).items():
            if _DEVICES.fullmatch(name) and amount.number() > 0:
                return amount.number()
    return None


def _resources(node: Node) -> frozenset[str]:
    """The names of what the container asks for: device plugins', and the kubelet's own."""
    kinds = (node.get("resources", kind).items() for kind in ("limits", "requests"))
    return frozenset(name for pairs in kinds for name, amount in pairs if amount.text() != "0")


def _mounts(spec: Node, node: Node) -> tuple[ForeignMount, ...]:
    """Mounts of host paths; other volumes have no source on a host."""
    paths = {
        volume.get("name").text(): volume.get("hostPath", "path").text()
        for volume in spec.get("volumes").nodes()
    }

    def source(mount: Node) -> str:
        name, below = mount.get("name").text(), mount.get("subPath").text()
        path = paths.get(name)
        return f"{path}/{below}" if path and below else path or f"volume:{name}"

    return tuple(
        ForeignMount(
            source=source(mount),
            target=mount.get("mountPath").text(),
            read_only=mount.get("readOnly").value is True,
            line=mount.line,
        )
        for mount in node.get("volumeMounts").nodes()
    )
