"""A lab of four hosts for the tests that only use one, and how to tell what a lab leaves behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.rehearsal.lab.client import Lab
from infra.rehearsal.lab.hosts import Bind, LabFile, LabHost, LabUser
from infra.rehearsal.lab.starting import start_lab

BOOT_LIMIT_S = 20.0
TERABYTE = 10**12

Ssh = Callable[..., subprocess.CompletedProcess[str]]


def make_hosts(lent: Path) -> tuple[LabHost, ...]:
    first = LabHost(
        name="prefill-0",
        address="192.0.2.1",
        num_cpus=3,
        files={
            "/opt/engine/run": LabFile(content=b"#!/bin/sh\necho ran\n", mode=0o755),
            "/run/device-state": LabFile(content=b"{}"),
            "/sys/class/infiniband/mlx5_0/ports/1/state": LabFile(content=b"4: ACTIVE\n"),
        },
        sparse_files={"/models/kimi/weights.safetensors": TERABYTE},
        device_nodes=("/dev/davinci0",),
        binds=(Bind(source=str(lent), target=str(lent)),),
        hidden=("/usr/bin/which",),
        page_size=65536,
    )
    others = (
        LabHost(name="prefill-1", address="192.0.2.2", kernel="sysctl", has_cpufreq=False),
        LabHost(name="decode-0", address="10.77.3.4", kernel="locked-down"),
        LabHost(
            name="decode-1",
            address="198.18.0.9",
            users=(LabUser(name="op", sudo_rule="ALL=(ALL) ALL"),),
            knobs={
                "vm.swappiness": "1",
                "net.core.rmem_max": "212992",
                "/proc/sys/net/ipv4/tcp_rmem": "4096 131072 6291456",
                "/sys/bus/pci/drivers/amdgpu/0000:05:00.0/current_compute_partition": "CPX",
            },
            registers={"/sys/bus/pci/devices/0000:00:1f.7/config": bytes(range(256))},
            sshd_settings=("MaxStartups 2:100:2",),
        ),
    )
    return (first, *others)


@pytest.fixture(scope="session")
def lent_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lent")
    (folder / "catalogue").write_text("from the machine\n")
    return folder


@pytest.fixture(scope="session")
def lab(
    lab_is_possible: None, lent_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("rehearsal") / "lab"
    with start_lab(directory, make_hosts(lent_folder)) as running:
        running.wait_ready(BOOT_LIMIT_S)
        yield running


@pytest.fixture
def ssh(lab: Lab) -> Ssh:
    def call(host: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ssh", "-F", str(lab.ssh_config), host, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOOT_LIMIT_S,
            check=False,
        )

    return call
