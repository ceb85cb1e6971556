from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.provision.aws.first_boot import (
    AGAIN,
    instance_store_script,
    lustre_source,
    mount_script,
    user_data,
    weights_of,
)
from infra.provision.boot_script import CONTAINERD, DISKS, DOCKER, LABEL
from infra.render import boot_mark

SCRIPTS = {
    "instance store": instance_store_script("/models"),
    "lustre": mount_script("/srv/models", lustre_source("fs-1.fsx.amazonaws.com", "abcd1234")),
    "nfs": mount_script("/srv/models", "nfs.example.com:/export"),
    "efs": mount_script("/srv/models", "fs-0123456789abcdef0.efs.us-east-2.amazonaws.com:/"),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_shellcheck_has_nothing_to_say(script: str, tmp_path: Path) -> None:
    file = tmp_path / "first-boot.sh"
    file.write_text(script)
    done = subprocess.run(
        [f"{sys.prefix}/bin/shellcheck", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("lustre", "fs-1.fsx.amazonaws.com@tcp:/abcd1234/weights /srv/models lustre defaults,"),
        ("nfs", "nfs.example.com:/export /srv/models nfs4 nfsvers=4.1,"),
    ],
)
def test_a_mount_is_one_line_of_fstab_that_no_boot_waits_for(name: str, line: str) -> None:
    (written,) = [each for each in SCRIPTS[name].splitlines() if ">> /etc/fstab" in each]
    assert line in written
    assert ",nofail 0 0" in written


def test_a_mount_that_failed_is_done_by_the_script_when_it_runs_again(tmp_path: Path) -> None:
    mark, fstab, tools = tmp_path / "mark", tmp_path / "fstab", tmp_path / "tools"
    fstab.write_text("")
    tools.mkdir()
    for name in ("sh", "mkdir", "grep"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name, code in (("nft", 0), ("mountpoint", 1), ("mount", 1)):
        (tools / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tools / name).chmod(0o755)
    script = mount_script(str(tmp_path / "models"), "nfs.example.com:/export")
    for was, now in ((boot_mark.FILE, mark), ("/etc/fstab", fstab)):
        script = script.replace(was, str(now))
    words = [f"{tools}/sh", "-c", script]
    assert subprocess.run(words, check=False, env={"PATH": str(tools)}).returncode == 1
    assert mark.read_text().startswith(boot_mark.FAILED)
    (tools / "mount").write_text("#!/bin/sh\n")
    assert subprocess.run(words, check=False, env={"PATH": str(tools)}).returncode == 0
    assert mark.read_text() == f"{boot_mark.DONE}\n"
    assert fstab.read_text().count("nfs.example.com") == 1


def test_user_data_is_base64_of_the_script() -> None:
    assert base64.b64decode(user_data("#!/bin/sh\n")) == b"#!/bin/sh\n"


RAW = r"/dev/nvme0n1 Amazon EC2 NVMe Instance Storage\n/dev/nvme1n1 Amazon Elastic Block Store"


class Host:
    """A host whose tools tell what they are called with; disks, arrays and mounts are what a test says."""

    def __init__(self, folder: Path, weights: Path) -> None:
        self._tools, self._calls = folder / "tools", folder / "calls"
        self._tools.mkdir()
        self._script = folder / "part-001"
        self.mark = folder / "mark"
        self.disks, self.docker = folder / "disks", folder / "etc" / "daemon.json"
        self.containerd = folder / "etc" / "config.toml"
        script = instance_store_script(str(weights))
        for was, now in (
            (boot_mark.FILE, self.mark),
            (DISKS, self.disks),
            (DOCKER, self.docker),
            (CONTAINERD, self.containerd),
        ):
            script = script.replace(was, str(now))
        self._script.write_text(script)
        (self._tools / "python3").symlink_to(sys.executable)
        for name in ("sh", "mkdir", "awk"):
            (self._tools / name).symlink_to(str(shutil.which(name)))
        for name in ("install", "mount", "mkfs.xfs", "udevadm", "sleep"):
            self.has(name)
        self.has("systemctl", words="nothing")
        self.has("lsblk", says=RAW)
        self.has("mdadm", words="--create")
        self.has("mountpoint", words="nothing")
        self.has("blkid", words="nothing")

    def has(self, name: str, *, words: str = "", says: str = "") -> None:
        """A tool that ends well when its arguments hold some words."""
        text = f'#!/bin/sh\necho "{name} $*" >> "{self._calls}"\n'
        if says:
            text += f'printf "{says}\\n"\n'
        text += f'case "$*" in *"{words}"*) exit 0;; esac\nexit 1\n'
        (self._tools / name).unlink(
            missing_ok=True
        )  # a link to the machine's own tool is never written through
        (self._tools / name).write_text(text)
        (self._tools / name).chmod(0o755)

    def boot(self, mark: str = boot_mark.DONE) -> list[str]:
        """What changes disks and mounts at a boot that leaves a mark, as it was called."""
        self._calls.unlink(missing_ok=True)
        done = subprocess.run(
            [f"{self._tools}/sh", self._script], check=False, env={"PATH": self._tools}
        )
        assert (done.returncode == 0) == (mark == boot_mark.DONE)
        assert self.mark.read_text() == f"{mark}\n"
        asked = (
            "mountpoint",
            "lsblk",
            "blkid",
            "mdadm --assemble",
            "udevadm",
            "systemctl cat",
            "systemctl is-active",
            "sleep",
        )
        return [line for line in self._calls.read_text().splitlines() if not line.startswith(asked)]

    def count(self, words: str) -> int:
        """How often something was called at the last boot."""
        return sum(line.startswith(words) for line in self._calls.read_text().splitlines())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, tmp_path / "models")


def test_raw_disks_are_joined_and_the_script_stays_for_every_boot(
    host: Host, tmp_path: Path
) -> None:
    made = [
        f"install -D -m 755 {tmp_path}/part-001 {AGAIN}",
        "mdadm --create /dev/md/weights --level=0 --force --raid-devices=1 /dev/nvme0n1",
        f"mkfs.xfs -q -L {LABEL} /dev/md/weights",
        f"mount -o noatime /dev/md/weights {host.disks}",
        f"mount --bind {host.disks}/weights {tmp_path}/models",
    ]
    assert host.boot() == made
    assert host.boot() == made  # after a stop the disks are raw again


def test_a_reboot_mounts_what_is_there_and_makes_no_file_system(host: Host, tmp_path: Path) -> None:
    host.boot()
    host.has("mdadm", words="--assemble --scan")
    host.has("blkid", words=f"-L {LABEL}")
    assert host.boot()[1:] == [
        f"mount -o noatime LABEL={LABEL} {host.disks}",
        f"mount --bind {host.disks}/weights {tmp_path}/models",
    ]


def test_disks_that_the_image_joins_are_used_at_every_boot(host: Host, tmp_path: Path) -> None:
    host.has("mountpoint", words="-q /opt/dlami/nvme")
    host.has("mkdir")
    mounted = f"mount --bind /opt/dlami/nvme/weights {tmp_path}/models"
    assert host.boot()[-1] == mounted
    assert host.boot()[-1] == mounted


def test_disks_that_somebody_has_written_to_are_left_alone(host: Host) -> None:
    host.has("lsblk", says=RAW.replace("Storage", "Storage LVM2_member"))
    why = "there is no raw instance store, and weights would lie on the root volume"
    assert len(host.boot(boot_mark.FAILED + why)) == 1  # the script is kept, and no array made


def test_a_step_that_fails_is_told(host: Host) -> None:
    host.has("mkfs.xfs", words="nothing")
    host.boot(boot_mark.FAILED + "it ended early, see /var/log/cloud-init-output.log")


def test_a_service_of_the_image_that_still_joins_the_disks_is_waited_for(host: Host) -> None:
    host.has("systemctl", words="cat dlami-nvme.service")
    host.boot(boot_mark.FAILED + "dlami-nvme.service has mounted nothing in 120 s")
    assert host.count("sleep 2") == 60
    assert host.count("mdadm") == 0


def test_where_that_service_has_failed_the_disks_are_joined_here(host: Host) -> None:
    host.has("systemctl", words="dlami-nvme.service", says="failed")
    assert host.boot()[-2] == f"mount -o noatime /dev/md/weights {host.disks}"
    assert host.count("sleep") == 0


def test_what_is_mounted_already_is_left_alone(host: Host, tmp_path: Path) -> None:
    host.has("mountpoint", words=f"-q {tmp_path}/models")
    assert host.boot() == []


RESTART = "systemctl restart containerd.service docker.service"


def test_docker_and_containerd_keep_their_data_on_the_disks(host: Host, tmp_path: Path) -> None:
    host.has("dockerd")
    host.has("systemctl", words="restart")
    host.docker.parent.mkdir()
    host.docker.write_text('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
    host.containerd.write_text('version = 2\n#root = "a"\nroot = "/b"\n[plugins]\n  root = "/c"\n')
    for _ in range(2):
        assert host.boot()[-2:] == [RESTART, f"mount --bind {host.disks}/weights {tmp_path}/models"]
        assert json.loads(host.docker.read_text()) == {
            "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},
            "data-root": f"{host.disks}/docker",
        }
        told = f'root = "{host.disks}/containerd"\nversion = 2\n#root = "a"\n[plugins]\n  root = "/c"\n'
        assert host.containerd.read_text() == told
    assert (host.disks / "docker").is_dir()
    assert (host.disks / "containerd").is_dir()


def test_a_host_without_their_files_gets_them(host: Host) -> None:
    host.has("dockerd")
    host.has("systemctl", words="restart")
    host.boot()
    assert json.loads(host.docker.read_text()) == {"data-root": f"{host.disks}/docker"}
    assert host.containerd.read_text() == f'root = "{host.disks}/containerd"\nversion = 2\n'


def test_a_host_without_docker_keeps_its_files(host: Host) -> None:
    host.boot()
    assert not host.docker.parent.exists()


def test_docker_that_cannot_be_moved_leaves_no_weights_and_the_script_may_run_again(
    host: Host, tmp_path: Path
) -> None:
    host.has("dockerd")
    host.docker.parent.mkdir()
    host.docker.write_text("{no JSON")
    why = f"docker's data could not be put on {host.disks}, see /var/log/cloud-init-output.log"
    assert not any("--bind" in call for call in host.boot(boot_mark.FAILED + why))
    assert host.docker.read_text() == "{no JSON"
    host.docker.write_text("{}")
    assert RESTART in host.boot(boot_mark.FAILED + why)  # which fails here
    host.has("systemctl", words="restart")
    host.has("mountpoint", words=f"-q {host.disks}")
    bound = f"mount --bind {host.disks}/weights {tmp_path}/models"
    assert host.boot()[1:] == [RESTART, bound]


def test_a_file_system_of_aws_is_mounted_over_tls_and_another_export_as_it_is() -> None:
    assert "mount.efs > /dev/null; then dnf install -y amazon-efs-utils" in SCRIPTS["efs"]
    assert ":/ /srv/models efs tls,noresvport,_netdev,nofail 0 0" in SCRIPTS["efs"]
    assert "tls" not in SCRIPTS["nfs"]


def test_every_host_has_what_keeps_engines_from_its_credentials() -> None:
    wanted = "if ! command -v nft > /dev/null; then dnf install -y nftables ||"
    assert all(wanted in script for script in SCRIPTS.values())


def test_a_lustre_client_is_installed_where_the_image_has_none() -> None:
    assert "mount.lustre > /dev/null; then dnf install -y lustre-client" in SCRIPTS["lustre"]
    assert "lustre" not in SCRIPTS["nfs"].replace("Lustre or NFS", "")


def test_what_first_boot_is_told_of_the_weights_is_read_back() -> None:
    told = {name: weights_of(user_data(script)) for name, script in SCRIPTS.items()}
    assert told == {
        "instance store": {"weights.path": "/models", "weights_mount": ""},
        "lustre": {
            "weights.path": "/srv/models",
            "weights_mount": "fs-1.fsx.amazonaws.com@tcp:/abcd1234/weights",
        },
        "nfs": {"weights.path": "/srv/models", "weights_mount": "nfs.example.com:/export"},
        "efs": {
            "weights.path": "/srv/models",
            "weights_mount": "fs-0123456789abcdef0.efs.us-east-2.amazonaws.com:/",
        },
    }
    assert (
        weights_of(None) == weights_of("bm90aGluZw==") == {"weights.path": "", "weights_mount": ""}
    )
    odd = user_data(instance_store_script("/my weights"))
    assert weights_of(odd)["weights.path"] == "/my weights"
