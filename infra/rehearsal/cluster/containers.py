"""What a kubelet does on its node: a pod's container started, probed and heard, on a simulated host.

The container runs in the stand-in of docker, with what the pod's specification asks for and nothing else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infra.catalog.schema import Accelerator, Mount
from infra.errors import HostsFailed
from infra.rehearsal.cluster.api import Document
from infra.rehearsal.cluster.nodes import FABRIC
from infra.rehearsal.cluster.pods import ResolvedPod, resolved
from infra.rehearsal.cluster.unplayed import unplayed
from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.errors import LabError
from infra.render.cluster_facts import EFA_RESOURCE
from infra.render.container import DeviceAccess, device_options, mount_options

VOLUMES = "/var/lib/kubelet/pods"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBE_S = 1.0  # of a probe that says nothing else: the API's default
ASK_S = 60.0
LAST_LINES = 12
# containerd's unit says infinity; no pod can ask for another limit.
OPEN_FILES = "nofile=1048576:1048576"
CARDS = {FABRIC, EFA_RESOURCE}  # what plugins of cards call them
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContainer:
    """The container of a pod.

    Args:
        lab: of its node.
        host: the simulated host that is the node.
        accelerator: of the node.
        binds: folders of this machine that prepared volumes lead to, at their own places.
    """

    lab: Lab
    host: str
    pod: ResolvedPod
    accelerator: Accelerator
    binds: Sequence[str] = ()

    @property
    def unit(self) -> str:
        """The unit that stands for the kubelet's care of it."""
        return f"pod-{self.pod.name}.service"

    def start(self) -> None:
        """Write its volumes, and start it.

        Raises:
            HostsFailed: the host does not take it, or it asks for what is not played.
        """
        others = unplayed(self.pod.document["spec"])
        if others:
            what = f"{self.pod.name} asks its kubelet for what a rehearsal does not play: {', '.join(others)}."
            fix = "Have infra/rehearsal/cluster play it, or leave it out of the pod."
            raise HostsFailed(f"simulated host {self.host}", what, fix)
        for volume, files in self.pod.files.items():
            folder = self._folder(volume)
            self._shell(f"mkdir -p {shlex.quote(folder)}")
            for name, text in files.items():
                self.lab.write_file(self.host, f"{folder}/{name}", text.encode(), 0o444)
        variables = "".join(f"{key}={value}\n" for key, value in self.pod.environment.items())
        self._shell(f"mkdir -p {self._folder('.')}")
        self.lab.write_file(self.host, self._folder("environment"), variables.encode(), 0o400)
        unit = ["systemd-run", f"--unit={self.unit}", "--quiet", "--property=KillMode=mixed"]
        self._shell(shlex.join([*unit, *self._words()]))

    def has_ended(self) -> bool:
        """Whether its first process is no more."""
        asked = self.lab.run(self.host, ["systemctl", "is-active", "--quiet", self.unit])
        return asked.returncode != 0

    def probe(self, asked: Document) -> str:
        """What a probe finds wrong in its time, "" when it is content."""
        limit_s = float(asked.get("timeoutSeconds", PROBE_S))
        if "tcpSocket" in asked:
            try:
                self.lab.dial(self.host, int(asked["tcpSocket"]["port"]), limit_s).close()
            except OSError as error:
                return f"port {asked['tcpSocket']['port']}: {error}"
            return ""
        code, said = self.ask(asked["exec"]["command"], limit_s)
        return "" if code == 0 else said or f"exit code {code}"

    def ask(self, words: Sequence[str], limit_s: float = ASK_S) -> tuple[int, str]:
        """A command in the container, as probes and `kubectl exec` start it: exit code, and what it said."""
        name = shlex.quote(self.pod.name)
        found = f"pid=$(docker inspect --format '{{{{.State.Pid}}}}' {name})"
        own = [f"{key}={value}" for key, value in self.pod.environment.items()]
        enter = shlex.join(["env", "-i", f"PATH={PATH}", *own, *words])
        user = [f"--set{kind}id={number}" for kind, number in zip("ug", self._user, strict=False)]
        how = " ".join(['--target "$pid" --mount --wd=/', *user])
        script = f'{found} && test "$pid" != 0 && exec nsenter {how} {enter}'
        try:
            done = self.lab.run(self.host, ["/bin/sh", "-c", script], limit_s=limit_s)
        except LabError as error:  # a kubelet asks again, too
            return 1, str(error)
        return done.returncode, done.stdout.decode(errors="replace").strip()

    def lines(self, num_last: int | None = None) -> list[str]:
        """What it has said, all of it or the last lines.

        Raises:
            LabError: its host does not tell.
        """
        words = ["journalctl", "--no-pager", "-o", "cat", "-u", self.unit]
        words += [] if num_last is None else ["-n", str(num_last)]
        return self.lab.run(self.host, words).stdout.decode(errors="replace").splitlines()

    def last_words(self) -> list[str]:
        """What it said last, or why nobody knows."""
        try:
            return self.lines(LAST_LINES)
        except LabError as error:
            return [str(error)]

    def _words(self) -> list[str]:
        """The command that its runtime is given."""
        container = self.pod.container
        command, arguments = (
            [resolved(word, self.pod.environment) for word in container.get(key) or ()]
            for key in ("command", "args")
        )
        words = ["docker", "run", f"--name={self.pod.name}", "--pull=never", "--log-driver=none"]
        words += ["--network=host", "--ulimit", OPEN_FILES]
        words += [f"--env-file={self._folder('environment')}"]
        words += self._security(container.get("securityContext") or {})
        words += [*self._devices(container), *self._mounts(container)]
        words += ["--entrypoint", command[0]] if command else []
        return [*words, container["image"], *command[1:], *arguments]

    def _security(self, context: Document) -> list[str]:
        words = ["--privileged"] if context.get("privileged") else []
        if self.pod.document["spec"].get("hostPID"):
            words.append("--pid=host")
        if context.get("readOnlyRootFilesystem"):
            words.append("--read-only")
        if context.get("allowPrivilegeEscalation") is False:
            words += ["--security-opt", "no-new-privileges"]
        if self._user:
            words += ["--user", ":".join(self._user)]
        for option, key in (("--cap-drop", "drop"), ("--cap-add", "add")):
            for name in (context.get("capabilities") or {}).get(key) or ():
                words += [option, name]
        return words

    @property
    def _user(self) -> tuple[str, ...]:
        """Numbers of the user and the group that the pod names; () for none."""
        of_pod = self.pod.document["spec"].get("securityContext") or {}
        if "runAsUser" not in of_pod:
            return ()
        return str(of_pod["runAsUser"]), str(of_pod.get("runAsGroup", 0))

    def _devices(self, container: Document) -> list[str]:
        """What device plugins and drivers of claims hand out: the devices that limits and claims name."""
        resources = container.get("resources") or {}
        pod, limits = self.accelerator.pod, resources.get("limits") or {}
        count = int(limits.get(pod.resource, 0)) if pod is not None else 0
        if not count:
            return []
        # all but device files is the pod's own to ask for
        own = {
            "ipc_host": False,
            "shm_size": None,
            "capabilities": (),
            "groups": (),
            "security_options": (),
            "fabric_devices": tuple(
                device
                for device in self.accelerator.container.fabric_devices
                if (
                    resources.get("claims")
                    if device.startswith(IMEX_CHANNELS)
                    else CARDS & set(limits)
                )
            ),
        }
        access = self.accelerator.container.model_copy(update=own)
        devices = DeviceAccess(access=access, num_devices=count, spans_hosts=True)
        return device_options("docker", devices)

    def _mounts(self, container: Document) -> Iterator[str]:
        spec = self.pod.document["spec"]
        volumes = {each["name"]: each for each in spec.get("volumes") or ()}
        # what init containers fill from the network: simulated hosts have it where the container sees it
        prepared = {
            place["name"]
            for each in spec.get("initContainers") or ()
            for place in each.get("volumeMounts") or ()
        }
        mounts = [Mount(source=path, target=path) for path in self.binds]
        for place in container.get("volumeMounts") or ():
            volume, target = volumes[place["name"]], place["mountPath"]
            if place["name"] in prepared:
                source = target
            elif "hostPath" in volume:
                source = volume["hostPath"]["path"]
            elif "emptyDir" in volume:
                limit = (volume["emptyDir"] or {}).get("sizeLimit")
                size = f",tmpfs-size={limit.removesuffix('i').lower()}" if limit else ""
                yield from ("--mount", f"type=tmpfs,target={target}{size}")
                continue
            else:
                source = self._folder(place["name"])
            mounts.append(
                Mount(source=source, target=target, read_only=bool(place.get("readOnly")))
            )
        yield from mount_options(mounts)

    def _folder(self, name: str) -> str:
        return f"{VOLUMES}/{self.pod.uid}/{name}"

    def _shell(self, script: str) -> None:
        done = self.lab.run(self.host, ["/bin/sh", "-c", script])
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            what = f"{self.pod.name} cannot be started: {said}."
            raise HostsFailed(
                f"simulated host {self.host}",
                what,
                "Mend what the pod asks of its node: `fab render` writes it.",
            )
