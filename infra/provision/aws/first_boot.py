"""What a cloud host does by itself: it makes room for weights and images, at every boot where its own disks hold them.

How far it came stands in a file of the host (`infra.render.boot_mark`), which `fab preflight` reads.
"""

from __future__ import annotations

import base64
import re
import shlex

from infra.provision.boot_script import CONTAINERS, joined_disks, prepared

# User data runs at the first boot alone, what lies in this folder at every one (cloud-init, "Scripts per boot"). The
# disks are there after a reboot, without their mount, and are raw again after a stop.
AGAIN = "/var/lib/cloud/scripts/per-boot/moe-infra-weights"
# Deep Learning AMIs join the instance store themselves, at every boot, by a service that may still be at work when this
# script begins (aws-samples/awsome-distributed-training#427; its script waits up to 120 s). Others leave the disks raw.
_NVME = f"""\
if [ "$0" != {AGAIN} ]; then install -D -m 755 "$0" {AGAIN}; fi
waited=0
while systemctl cat dlami-nvme.service > /dev/null 2>&1 && ! mountpoint -q /opt/dlami/nvme; do
  if [ "$(systemctl is-active dlami-nvme.service)" = failed ]; then break; fi
  if [ "$waited" -ge 120 ]; then
    why="dlami-nvme.service has mounted nothing in 120 s"
    exit 1
  fi
  waited=$((waited + 2))
  sleep 2
done
disks=/opt/dlami/nvme
if ! mountpoint -q "$disks"; then
{joined_disks("lsblk -dpno NAME,MODEL,FSTYPE | awk '/Instance Storage *$/ {print $1}'")}fi
"""

# Amazon Linux 2023 has it as a package (AWS, FSx for Lustre User Guide, "Installing the Lustre client").
_LUSTRE_CLIENT = """\
if ! command -v mount.lustre > /dev/null; then dnf install -y lustre-client; fi
"""
# Its mount helper, which talks TLS (AWS, EFS User Guide, "Installing the Amazon EFS client", checked 2026-11-26).
_EFS_CLIENT = """\
if ! command -v mount.efs > /dev/null; then dnf install -y amazon-efs-utils; fi
"""
_MOUNT = """\
if ! grep -qxF {line} /etc/fstab; then
  echo {line} >> /etc/fstab
fi
mount "$weights"
"""
_PATH_LINE = re.compile(r"^weights=(.+)$", re.MULTILINE)
_MOUNT_LINE = re.compile(r"^ *echo (.+) >> /etc/fstab$", re.MULTILINE)
# Of a file system, that its bucket's objects lie below.
LUSTRE_FOLDER = "weights"
_LUSTRE_OPTIONS = "defaults,noatime,flock,_netdev,nofail"
# AWS, EFS User Guide, "Recommended NFS mount options", checked 2026-11-20.
_NFS_OPTIONS = (
    "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev,nofail"
)
# The helper sets the others itself (amazon-efs-utils 2.4, mount_efs).
_EFS_OPTIONS = "tls,noresvport,_netdev,nofail"
_EFS = re.compile(r"fs-[0-9a-f]+\.efs\.[a-z0-9-]+\.amazonaws\.com(\.cn)?:/\S*")


def instance_store_script(path: str) -> str:
    """The script that puts weights and docker's data on the host's own disks, at the first boot and at every later one.

    Args:
        path: absolute path of the weights on the host.
    """
    return prepared(path) + _NVME + CONTAINERS


def mount_script(path: str, source: str) -> str:
    """The script that mounts a file system under the weights' path.

    Args:
        path: absolute path of the weights on the host, without blanks.
        source: an NFS export `HOST:/PATH`, or Lustre `HOST@tcp:/NAME`.
    """
    if "@tcp:/" in source:
        client, kind, options = _LUSTRE_CLIENT, "lustre", _LUSTRE_OPTIONS
    elif _EFS.fullmatch(source):
        client, kind, options = _EFS_CLIENT, "efs", _EFS_OPTIONS
    else:
        client, kind, options = "", "nfs4", _NFS_OPTIONS
    line = f"{source} {path} {kind} {options} 0 0"
    mount = _MOUNT.replace("{line}", shlex.quote(line))
    return prepared(path) + client + mount


def weights_of(user_data: str | None) -> dict[str, str]:
    """Where user data that stands puts the weights, and what it mounts there; "" for what it does not say.

    Args:
        user_data: in base64: a script of this module, or a document with one among its parts.
    """
    text = base64.b64decode(user_data or "").decode(errors="replace")
    path, line = _PATH_LINE.search(text), _MOUNT_LINE.search(text)
    return {
        "weights.path": " ".join(shlex.split(path[1])) if path else "",
        "weights_mount": " ".join(shlex.split(line[1])).partition(" ")[0] if line else "",
    }


def lustre_source(dns_name: str, mount_name: str) -> str:
    """The weights' folder of an FSx file system, as `mount` names it."""
    return f"{dns_name}@tcp:/{mount_name}/{LUSTRE_FOLDER}"


def user_data(script: str) -> str:
    """A script as launch templates take it: base64."""
    return base64.b64encode(script.encode()).decode()
