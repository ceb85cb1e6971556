"""How far a cloud host's boot has come with the place of the weights: a file that its boot script writes, in words."""

from __future__ import annotations

# cloud-init's own folder, which every host has whose first boot is a script of ours.
FILE = "/var/lib/cloud/moe-infra-boot"
RUNNING, DONE = "running", "done"
# Where cloud-init keeps the script of the first boot, which may run again: what is mounted by then it leaves alone.
SCRIPT = "/var/lib/cloud/instance/scripts/part-001"
# Behind it stands why.
FAILED = "failed: "
