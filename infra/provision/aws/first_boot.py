"""What a cloud host does by itself: it makes room for weights and images, at every boot where its own disks hold them.

How far it came stands in a file of the host (`infra.render.boot_mark`), which `fab preflight` reads.
"""

from __future__ import annotations

import base64
import re
import shlex

from infra.render import boot_mark

_PREPARE = """\
#!/bin/sh
# Boot of a moe-infra host: instance store, Lustre or NFS under the weights' path.
set -eu
mark={mark}
why="it ended early, see /var/log/cloud-init-output.log"
tell() { if [ "$1" = 0 ]; then echo "{done}"; else echo "{failed}$why"; fi > "$mark"; }
trap 'tell "$?"' EXIT
echo "{running}" > "$mark"
# by its rules engines are kept from the machine's credentials; a package on Amazon Linux 2023, there on Ubuntu
if ! command -v nft > /dev/null; then dnf install -y nftables || echo "moe-infra: there is no nft" >&2; fi
weights={path}
mkdir -p "$weights"
if mountpoint -q "$weights"; then exit 0; fi
"""

# User data runs at the first boot alone, what lies in this folder at every one (cloud-init, "Scripts per boot"). The
# disks are there after a reboot, without their mount, and are raw again after a stop.
AGAIN = "/var/lib/cloud/scripts/per-boot/moe-infra-weights"
# Of the file system, at most twelve characters (mkfs.xfs): an array that the kernel joins again has another name.
LABEL = "moe-weights"
# Where this script mounts disks that the image leaves raw.
DISKS = "/mnt/moe-infra"
DOCKER, CONTAINERD = "/etc/docker/daemon.json", "/etc/containerd/config.toml"
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
  disks={DISKS}
  mkdir -p "$disks"
  if mdadm --assemble --scan; then udevadm settle; fi
  if mountpoint -q "$disks"; then
    :  # an earlier run of this script came as far
  elif blkid -L {LABEL} > /dev/null; then
    mount -o noatime LABEL={LABEL} "$disks"
  else
    # only those without a signature: what the image has made of the others is its own
    raw=$(lsblk -dpno NAME,MODEL,FSTYPE | awk '/Instance Storage *$/ {{print $1}}')
    if [ -z "$raw" ]; then
      why="there is no raw instance store, and weights would lie on the root volume"
      exit 1
    fi
    # shellcheck disable=SC2086 # one word per disk
    set -- $raw
    mdadm --create /dev/md/weights --level=0 --force --raid-devices="$#" "$@"
    mkfs.xfs -q -L {LABEL} /dev/md/weights
    mount -o noatime /dev/md/weights "$disks"
  fi
fi
"""

# Images lie in docker's folder, or in containerd's where docker 29 was installed anew (docs.docker.com, "containerd
# image store with Docker Engine"). At a boot docker may start before the disks are there, so it starts again. Weights
# come last: engines that started before have none to read, and a run that failed here is done again.
_CONTAINERS = f"""\
if command -v dockerd > /dev/null; then
  ended_early=$why
  why="docker's data could not be put on $disks, see /var/log/cloud-init-output.log"
  mkdir -p "$disks/docker" "$disks/containerd"
  python3 - "$disks" << 'END'
import json, pathlib, re, sys

def put(path, text):
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".new").write_text(text)
    file.with_suffix(".new").replace(file)

def read(path):
    file = pathlib.Path(path)
    return file.read_text() if file.exists() else ""

kept = json.loads(read("{DOCKER}").strip() or "{{}}")
put("{DOCKER}", json.dumps({{**kept, "data-root": sys.argv[1] + "/docker"}}, indent=1) + "\\n")
# a key before the first table is containerd's own
parts = r"(.*?)(^[ \\t]*\\[|\\Z)(.*)"
text = read("{CONTAINERD}") or "version = 2\\n"
own, table, rest = re.match(parts, text, re.M | re.S).groups()
own = re.sub(r"^[ \\t]*root[ \\t]*=.*\\n?", "", own, flags=re.M)
put("{CONTAINERD}", 'root = "' + sys.argv[1] + '/containerd"\\n' + own + table + rest)
END
  systemctl restart containerd.service docker.service
  why=$ended_early
fi
mkdir -p "$disks/weights"
mount --bind "$disks/weights" "$weights"
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
    return _prepare(path) + _NVME + _CONTAINERS


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
    return _prepare(path) + client + mount


def _prepare(path: str) -> str:
    words = {"path": shlex.quote(path), "mark": boot_mark.FILE, "done": boot_mark.DONE}
    words |= {"running": boot_mark.RUNNING, "failed": boot_mark.FAILED}
    text = _PREPARE
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


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
