"""What a cloud host does once, at its first boot: make room for the weights. Everything later is `fab`'s."""

from __future__ import annotations

import base64
import shlex

_PREPARE = """\
#!/bin/sh
# First boot of a moe-infra host: instance store, or Lustre, under the weights' path.
set -eu
weights={path}
mkdir -p "$weights"
if mountpoint -q "$weights"; then exit 0; fi
"""

# Deep Learning AMIs join the instance store themselves; the others leave the disks raw.
_NVME = """\
if mountpoint -q /opt/dlami/nvme; then
  mkdir -p /opt/dlami/nvme/weights
  echo "/opt/dlami/nvme/weights $weights none bind,nofail 0 0" >> /etc/fstab
  mount "$weights"
  exit 0
fi
disks=$(lsblk -dpno NAME,MODEL | awk '/Instance Storage/ {print $1}')
if [ -z "$disks" ]; then echo "no instance store; weights go to the root volume" >&2; exit 0; fi
# shellcheck disable=SC2086 # one word per disk
set -- $disks
mdadm --create /dev/md/weights --level=0 --force --raid-devices="$#" "$@"
mkfs.xfs -q /dev/md/weights
mount -o noatime /dev/md/weights "$weights"
"""

_MOUNT = """\
echo {line} >> /etc/fstab
mount "$weights"
"""
# Of a file system, that its bucket's objects lie below.
LUSTRE_FOLDER = "weights"
_LUSTRE_OPTIONS = "defaults,noatime,flock,_netdev,nofail"
# AWS, EFS User Guide, "Recommended NFS mount options", checked 2026-11-20.
_NFS_OPTIONS = (
    "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev,nofail"
)


def instance_store_script(path: str) -> str:
    """The script that puts the host's own disks under the weights' path.

    Args:
        path: absolute path of the weights on the host.
    """
    return _PREPARE.replace("{path}", shlex.quote(path)) + _NVME


def mount_script(path: str, source: str) -> str:
    """The script that mounts a file system under the weights' path.

    Args:
        path: absolute path of the weights on the host, without blanks.
        source: an NFS export `HOST:/PATH`, or Lustre `HOST@tcp:/NAME`.
    """
    is_lustre = "@tcp:/" in source
    kind, options = ("lustre", _LUSTRE_OPTIONS) if is_lustre else ("nfs4", _NFS_OPTIONS)
    line = f"{source} {path} {kind} {options} 0 0"
    mount = _MOUNT.replace("{line}", shlex.quote(line))
    return _PREPARE.replace("{path}", shlex.quote(path)) + mount


def lustre_source(dns_name: str, mount_name: str) -> str:
    """The weights' folder of an FSx file system, as `mount` names it."""
    return f"{dns_name}@tcp:/{mount_name}/{LUSTRE_FOLDER}"


def user_data(script: str) -> str:
    """A script as launch templates take it: base64."""
    return base64.b64encode(script.encode()).decode()
