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

_LUSTRE = """\
echo "{dns_name}@tcp:/{mount_name}/weights $weights lustre defaults,noatime,flock,_netdev,nofail 0 0" >> /etc/fstab
mount "$weights"
"""


def instance_store_script(path: str) -> str:
    """The script that puts the host's own disks under the weights' path.

    Args:
        path: absolute path of the weights on the host.
    """
    return _PREPARE.replace("{path}", shlex.quote(path)) + _NVME


def lustre_script(path: str, dns_name: str, mount_name: str) -> str:
    """The script that mounts a Lustre file system under the weights' path."""
    mount = _LUSTRE.replace("{dns_name}", dns_name).replace("{mount_name}", mount_name)
    return _PREPARE.replace("{path}", shlex.quote(path)) + mount


def user_data(script: str) -> str:
    """A script as launch templates take it: base64."""
    return base64.b64encode(script.encode()).decode()
