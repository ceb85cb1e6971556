"""The shell of a first boot that is the same on every cloud: disks joined, weights and docker's data on them.

How far it came stands in a file of the host (`infra.render.boot_mark`), which `fab preflight` reads.
"""

from __future__ import annotations

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

# Of the file system, at most twelve characters (mkfs.xfs): an array that the kernel joins again has another name.
LABEL = "moe-weights"
# Where this script mounts disks that the image leaves raw.
DISKS = "/mnt/moe-infra"
DOCKER, CONTAINERD = "/etc/docker/daemon.json", "/etc/containerd/config.toml"
# Images lie in docker's folder, or in containerd's where docker 29 was installed anew (docs.docker.com, "containerd
# image store with Docker Engine"). At a boot docker may start before the disks are there, so it starts again. Weights
# come last: engines that started before have none to read, and a run that failed here is done again.
CONTAINERS = f"""\
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


def joined_disks(raw: str) -> str:
    """Lines that mount a host's own disks as one under `$disks`, within a condition (two blanks in front).

    Args:
        raw: the command that prints disks without a signature, one word each.
    """
    return f"""\
  disks={DISKS}
  mkdir -p "$disks"
  if mdadm --assemble --scan; then udevadm settle; fi
  if mountpoint -q "$disks"; then
    :  # an earlier run of this script came as far
  elif blkid -L {LABEL} > /dev/null; then
    mount -o noatime LABEL={LABEL} "$disks"
  else
    # only those without a signature: what the image has made of the others is its own
    raw=$({raw})
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
"""


def prepared(path: str) -> str:
    """The first lines of every boot script: how far it came, and the weights' folder.

    Args:
        path: absolute path of the weights on the host.
    """
    words = {"path": shlex.quote(path), "mark": boot_mark.FILE, "done": boot_mark.DONE}
    words |= {"running": boot_mark.RUNNING, "failed": boot_mark.FAILED}
    text = _PREPARE
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text
