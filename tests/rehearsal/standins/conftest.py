"""A simulated host of one test: an overlay of the machine, our files, a fake engine, own namespaces."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra.errors import PrerequisiteError
from infra.rehearsal.standins import native_files, standin_files
from tests.needed import lacks


class HostRun(NamedTuple):
    """What one command printed and returned."""

    stdout: str
    stderr: str
    returncode: int


HostShell = Callable[..., subprocess.CompletedProcess[str]]

DIGEST = "sha256:" + "1a" * 32
IMAGE = "vllm/vllm-openai:v0.22.1"
JEMALLOC = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"

HOSTS: dict[str, dict[str, Any]] = {
    "nvidia": {
        "accelerator": "gb200",
        "generation": "blackwell",
        "fabric_spans_hosts": True,
        "product_name": "NVIDIA GB200",
        "memory_mib": 189471,
        "num_devices": 4,
        "driver_version": "580.95.05",
        "architecture": "aarch64",
        "fabric": {
            "clique_id": 1,
            "cluster_uuid": "c0ffee00-0000-4000-8000-000000000001",
            "state": "Completed",
        },
        "imex_nodes": ["192.0.2.1", "192.0.2.2"],
    },
    "amd": {
        "accelerator": "mi355x",
        "generation": "cdna4",
        "fabric_spans_hosts": False,
        "product_name": "AMD Instinct MI355X",
        "memory_mib": 294896,
        "num_devices": 8,
        "driver_version": "6.12.12",
        "architecture": "x86_64",
    },
    "ascend": {
        "accelerator": "ascend-a3",
        "generation": "ascend-a3",
        "fabric_spans_hosts": True,
        "product_name": "Ascend910",
        "memory_mib": 65536,
        "num_devices": 16,
        "driver_version": "25.2.0",
        "architecture": "aarch64",
        "super_pod_id": 3,
        "server_index": 4,
    },
}

ENGINE = """\
import fcntl, json, os, signal, sys, time
def listing(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return type(error).__name__
held = []
for index in filter(None, os.environ.get("MOE_REHEARSAL_DEVICES", "").split(",")):
    descriptor = os.open(os.environ["MOE_REHEARSAL_STATE"] + "/devices/" + index, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held.append(descriptor)
names = [name for name in sys.argv[1:] if name.startswith("/")]
print(json.dumps({
    "libraries": sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}),
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "root": listing("/"),
    "dev": listing("/dev"), "listed": {name: listing(name) for name in names},
    "interfaces": listing("/sys/class/net"), "host": os.uname().nodename, "stdin": sys.stdin.read(),
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
}), flush=True)
print("engine says", file=sys.stderr, flush=True)
if "stay" in sys.argv:
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(30)
sys.exit(3 if "fail" in sys.argv else 0)
"""

BOOT = """\
set -e
mount --make-rprivate /
mount -t tmpfs lab "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay host -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cp -a "$2/." "$1/root/"
cp "$4" "$1/root/var/lib/moe-rehearsal/host.json"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
for folder in class module; do
  mkdir "$1/$folder" "$1/$folder-work"
  mount -t overlay "$folder" -o "lowerdir=/sys/$folder,upperdir=$1/$folder,workdir=$1/$folder-work" "sys/$folder"
done
mount -t tmpfs dev dev
for node in null zero full random urandom tty; do touch "dev/$node"; mount --bind "/dev/$node" "dev/$node"; done
mkdir dev/pts dev/shm
for folder in run tmp root mnt dev/shm; do mount -t tmpfs own "$folder"; done
exec chroot . /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root bash -c '
/usr/bin/python3 -I -S /opt/moe-rehearsal/standins/prepare_devices.py
eval "$1"' shell "$3"
"""


@pytest.fixture
def host_document() -> Callable[..., dict[str, Any]]:
    """Give what `host.json` of a vendor's host holds, with changes."""

    def describe(vendor: str, **changes: object) -> dict[str, Any]:
        document = {
            "schema_version": 1,
            "host": "prefill-0",
            "address": "192.0.2.1",
            "vendor": vendor,
            "engine_program": "/opt/moe-rehearsal/engine",
            "catalogues": "/opt/moe-rehearsal/catalogues",
            "control_groups": "/none",
            "persistence_mode": False,
            **HOSTS[vendor],
        }
        document["images"] = [_image(document["architecture"])]
        document.update(changes)
        return document

    return describe


@pytest.fixture(scope="session")
def installed_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give per vendor a tree of what the lab installs, its modules compiled once."""
    trees = {}
    for vendor in HOSTS:
        tree = tmp_path_factory.mktemp(vendor)
        for target, (source, mode) in {**standin_files(vendor), **native_files()}.items():
            place = tree / target[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            place.chmod(mode)
        library = tree / "opt/moe-rehearsal"
        (library / "engine").write_text(ENGINE)
        (library / "catalogues").mkdir()
        compileall.compile_dir(library / "standins", quiet=1)
        (tree / "var/lib/moe-rehearsal").mkdir(parents=True)
        trees[vendor] = tree
    return trees


@pytest.fixture
def host_shell(
    tmp_path: Path,
    installed_files: dict[str, Path],
    host_document: Callable[..., dict[str, Any]],
) -> HostShell:
    """Give a function that runs a shell script as root on a freshly booted simulated host."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        what = "simulated hosts need root and unshare(1)."
        lacks(PrerequisiteError("tests", what, "Run them as root, with util-linux."))

    def run(vendor: str, script: str, **changes: object) -> subprocess.CompletedProcess[str]:
        description = tmp_path / "host.json"
        description.write_text(json.dumps(host_document(vendor, **changes)))
        stage = tmp_path / "stage"
        stage.mkdir()
        command = ["unshare", "-mpf", "--kill-child", "bash", "-c", BOOT, "boot"]
        command += [str(stage), str(installed_files[vendor]), script, str(description)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    return run


@pytest.fixture
def host_runs(host_shell: HostShell) -> Callable[[str, list[str]], list[HostRun]]:
    """Give a function that runs several commands on one host, each seen by itself."""

    def run(vendor: str, commands: list[str]) -> list[HostRun]:
        steps = [
            f"( {command} ) </dev/null >/tmp/{number}.out 2>/tmp/{number}.err; echo $? >/tmp/{number}.code"
            for number, command in enumerate(commands)
        ]
        collect = (
            "import json; print(json.dumps([[open(f'/tmp/{number}.{kind}').read() for kind in "
            f"('out', 'err', 'code')] for number in range({len(commands)})]))"
        )
        result = host_shell(vendor, "\n".join([*steps, f'python3 -c "{collect}"']))
        assert result.stdout, result.stderr
        return [HostRun(out, err, int(code)) for out, err, code in json.loads(result.stdout)]

    return run


@pytest.fixture
def host_tool(
    tmp_path: Path,
    host_document: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Give a function that makes this process see a host, for tools that need no namespace."""

    def describe(vendor: str, **changes: object) -> None:
        (tmp_path / "host.json").write_text(json.dumps(host_document(vendor, **changes)))
        monkeypatch.setenv("MOE_REHEARSAL_STATE", str(tmp_path))
        monkeypatch.setenv("MOE_REHEARSAL_RUN", str(tmp_path / "run"))

    return describe


def _image(architecture: str) -> dict[str, Any]:
    return {
        "reference": IMAGE,
        "digest": DIGEST,
        "architecture": architecture,
        "entrypoint": ["vllm", "serve"],
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "VLLM_USAGE_SOURCE": "image"},
        "engine": "vllm",
        "engine_version": "0.22.1",
        "plugin_version": None,
        "files": [JEMALLOC],
    }
