"""A Python that has loaded what programs of stacks load, which is most of what an operation of the engine takes.

The engine, its language host and the script by which that runs a program are the real ones. What the host takes for the
Python of its virtual environment is a small client: it asks one process of the tests' for a copy of itself (`fork`),
hands over its streams, environment and folder, passes signals on, and ends as the copy does. pip, which the host asks
for a list before each operation, is asked once.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infra.spec.stack_files import PROJECT

SCRIPT = "pulumi-language-python-exec"
LIST = ("-m", "pip", "list", "-v", "--format", "json")
_LENGTH = 4  # bytes that say how long a request is
_CLIENT = """\
#!{python} -ISE
import json, os, signal, socket, sys
words = sys.argv[1:]
if words == {list}:
    print(open("{packages}").read())
    sys.exit()
if not words or os.path.basename(words[0]) != "{script}":
    os.execv("{python}", ["{python}", *words])
asked = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
passed = signal.SIGINT, signal.SIGTERM
with socket.socket(socket.AF_UNIX) as server:
    signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    for number in passed:
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    server.connect("{socket}")
    socket.send_fds(server, [len(asked).to_bytes({length}, "big")], [0, 1, 2])
    server.sendall(asked)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed)
    code = server.recv(1)
sys.exit(code[0] if code else 1)
"""


@dataclass(frozen=True, slots=True)
class WarmPython:
    """The process that is copied; `folder` is its own."""

    folder: Path
    process: subprocess.Popen[str]

    def put_environment(self, place: Path) -> None:
        """Make a virtual environment whose Python is the client; what stood there is replaced."""
        place.unlink(missing_ok=True)
        program = place / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(
            _CLIENT.format(
                python=sys.executable,
                list=list(LIST),
                packages=self.folder / "packages.json",
                script=SCRIPT,
                socket=self.folder / "socket",
                length=_LENGTH,
            )
        )
        program.chmod(0o755)

    def end(self) -> None:
        """End it; copies that still run end with their clients."""
        self.process.communicate()


def start_warm_python(folder: Path) -> WarmPython:
    """Start the process, which loads while others go on.

    Args:
        folder: empty, with a short path: a socket lies in it.
    """
    packages = subprocess.run([sys.executable, *LIST], check=True, capture_output=True, text=True)
    (folder / "packages.json").write_text(packages.stdout)
    words = [sys.executable, "-m", __name__, str(folder / "socket")]
    process = subprocess.Popen(
        words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return WarmPython(folder, process)


def main(path: str) -> None:
    """Listen, and in each copy run what was asked for."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("listening", flush=True)  # noqa: T201 - for whoever started this
        _load()
        gc.collect()
        gc.freeze()  # so that looking for garbage does not copy every page in each copy
        signal.signal(
            signal.SIGCHLD, signal.SIG_IGN
        )  # whoever watches over a copy tells how it ended
        words = _next_start(listening)
    sys.argv = words
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")


def _load() -> None:
    """What programs import, and the parts of the packages that are loaded when they are first used."""
    import pulumi_aws as aws  # noqa: PLC0415 - of the process alone that is copied
    import pulumi_kubernetes as kubernetes  # noqa: PLC0415

    from infra.provision import existing_kubernetes, program  # noqa: F401, PLC0415
    from infra.provision.aws import ec2_stack, eks_stack  # noqa: F401, PLC0415

    for part in (
        *(aws.cloudcontrol, aws.ec2, aws.eks, aws.iam, aws.kms, aws.s3, aws.ssm, aws.vpc),
        *(kubernetes.apps, kubernetes.core, kubernetes.helm, kubernetes.policy, kubernetes.rbac),
    ):
        hasattr(part, "loads_with_its_first_attribute")


def _next_start(listening: socket.socket) -> list[str]:
    """In each copy, the words of the command line that it is to run; the original ends with whoever started it."""
    while True:
        ready, _, _ = select.select([listening.fileno(), sys.stdin.fileno()], [], [])
        if sys.stdin.fileno() in ready:
            sys.exit()
        client, _ = listening.accept()
        if os.fork():
            client.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, streams, _, _ = socket.recv_fds(client, _LENGTH, 3)
        with client.makefile("rb") as reader:
            words, folder, environment = json.loads(reader.read(int.from_bytes(head, "big")))
        copy = os.fork()
        if copy:
            _watch(copy, client)
        client.close()
        listening.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        time.tzset()
        return list(words)


def _watch(copy: int, client: socket.socket) -> None:
    """Wait for a copy and tell the client how it ended; pass signals on, and end it when the client is gone."""
    ended = os.pidfd_open(copy)
    while ended not in (ready := select.select([ended, client.fileno()], [], [])[0]):
        numbers = client.recv(1) if ready else b""
        os.kill(copy, numbers[0] if numbers else signal.SIGKILL)
        if not numbers:
            break
    _, status = os.waitpid(copy, 0)
    code = os.waitstatus_to_exitcode(status)
    with suppress(OSError):
        client.send(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
