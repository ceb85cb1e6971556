"""etcd, an API server, its controllers and its scheduler: the real ones, on loopback, in folders of one room."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import HostsFailed
from infra.rehearsal.cluster.api import Api
from infra.rehearsal.cluster.certificate import Certificate
from infra.rehearsal.cluster.programs import Programs
from infra.rehearsal.go_programs import GO_ENVIRONMENT

HandOver = Callable[[int], None]
CONTEXT = "room"
# A program that ends is told at once; one that is slow shares the cores with many others.
START_S = 300.0
STOP_S = 1.0  # an API server waits for its watchers, and nobody reads again what any of them keeps
LOOK_S = 0.05
_LAST_LINES = 5
# However this process ends, what it has started ends too.
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")


@dataclass(slots=True, kw_only=True)
class ControlPlane:
    """What runs, in the order in which it was started.

    Args:
        folder: of data, logs (`<program>.log`) and the kubeconfig.
        hand_over: takes each process that is started and sees to its end; None where this process does.
    """

    programs: Programs
    folder: Path
    certificate: Certificate
    api: Api
    hand_over: HandOver | None = None
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        """How the API is reached, as its owner."""
        return self.folder / "kubeconfig"

    def start(self, name: str, *options: str) -> None:
        """Start one of the built programs; its log lies in the folder."""
        wrapper = _DIES_WITH_US if self.hand_over is None else ()
        words = [*wrapper, str(self.programs.bin / name), *options]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=self.hand_over is not None,
                # nothing of this machine's own clusters and proxies
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self.folder),
                    "KUBECONFIG": str(self.kubeconfig),
                    **GO_ENVIRONMENT,
                },
            )

        if self.hand_over is not None:
            try:
                self.hand_over(self.running[name].pid)
            except BaseException:
                self.running[name].kill()
                raise

    def wait(self, name: str, is_there: Callable[[], bool]) -> None:
        """Wait until a program that was started is there.

        Raises:
            HostsFailed: it has ended, or is not there in time.
        """
        until = time.monotonic() + START_S
        while not is_there():
            code = self.running[name].poll()
            if code is not None or time.monotonic() > until:
                log = self.folder / f"{name}.log"
                last = log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
                how = "is silent" if code is None else f"has ended with {code}"
                raise HostsFailed(f"{name} {how}", "\n".join(last), f"All of it: {log}")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """End everything that was started, the last one first."""
        for process in reversed(self.running.values()):
            process.terminate()
        until = time.monotonic() + STOP_S
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            process.kill()
            process.wait()
        self.running.clear()


def start_control_plane(
    programs: Programs, folder: Path, certificate: Certificate, hand_over: HandOver | None = None
) -> ControlPlane:
    """Start a control plane without nodes.

    Args:
        programs: that were built.
        folder: new; everything that is written lies in it.
        certificate: of the API server.
        hand_over: takes each process that is started and sees to its end; None where `stop` does.

    Raises:
        HostsFailed: a program has not come up; nothing runs.
    """
    folder.mkdir(mode=0o700)
    etcd_port, peer_port, port = free_ports(3)
    token = secrets.token_urlsafe()
    api = Api(port, token=token, certificate=certificate.file)
    plane = ControlPlane(
        programs=programs, folder=folder, certificate=certificate, api=api, hand_over=hand_over
    )
    _write_access(plane, port, token)
    try:
        plane.start("etcd", *_etcd_options(folder, etcd_port, peer_port))
        plane.start("kube-apiserver", *_api_options(plane, port, etcd_port))
        plane.wait("kube-apiserver", lambda: _is_ready(api))
        plane.start("kube-controller-manager", *_controller_options(plane))
        plane.start("kube-scheduler", *_client_options(plane))
        # pods are refused where their namespace has no service account yet
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        plane.wait("kube-controller-manager", lambda: api.get(account) is not None)
    except BaseException:
        plane.stop()
        api.close()
        raise
    return plane


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now; programs take them a moment later."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _write_access(plane: ControlPlane, port: int, token: str) -> None:
    """Who may do everything, and the kubeconfig by which clients are that."""
    tokens = plane.folder / "tokens.csv"
    tokens.write_text(f"{token},room-owner,room-owner,system:masters\n", encoding="utf-8")
    tokens.chmod(0o600)
    server = f"https://127.0.0.1:{port}"
    cluster = {"server": server, "certificate-authority": str(plane.certificate.file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
    }
    plane.kubeconfig.write_text(json.dumps(document), encoding="utf-8")
    plane.kubeconfig.chmod(0o600)


def _etcd_options(folder: Path, port: int, peer_port: int) -> Sequence[str]:
    own, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return (
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={own}",
        f"--advertise-client-urls={own}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",  # nobody reads it again
    )


def _api_options(plane: ControlPlane, port: int, etcd_port: int) -> Sequence[str]:
    certificate = plane.certificate
    return (
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate.file}",
        f"--tls-private-key-file={certificate.key}",
        f"--token-auth-file={plane.folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={certificate.file}",
        f"--service-account-signing-key-file={certificate.key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        # endpoints of a service may not lie on loopback
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        "--profiling=false",
    )


def _controller_options(plane: ControlPlane) -> Sequence[str]:
    return (
        *_client_options(plane),
        f"--service-account-private-key-file={plane.certificate.key}",
        f"--root-ca-file={plane.certificate.file}",
        # simulated nodes say once that they are ready, and never again
        "--node-monitor-grace-period=24h",
    )


def _client_options(plane: ControlPlane) -> Sequence[str]:
    return (f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false", "--secure-port=0")


def _is_ready(api: Api) -> bool:
    try:
        return bool(api.ask("GET", "/readyz")["message"] == "ok")
    except Exception:  # noqa: BLE001 - until it is ready it may say anything
        return False
