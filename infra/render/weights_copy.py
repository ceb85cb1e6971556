"""The container that brings weights from a bucket to a node's own disks before the engines of its pod start."""

from __future__ import annotations

import re
import shlex

from infra.plan.process import Plan
from infra.render.cluster_facts import BucketCopy
from infra.render.pod_processes import Document

SOURCE = "WEIGHTS_SOURCE"
ASK_EVERY_S = 30
_SCRIPT = """\
set -eu
export AWS_CONFIG_FILE=/tmp/aws
aws configure set default.s3.preferred_transfer_client crt
for each in {folders}; do
  until aws s3 ls "${source}$each/config.json" > /dev/null; do
    echo "waiting for ${source}$each"
    sleep {every}
  done
  aws s3 sync --only-show-errors "${source}$each" {path}/"$each"
done
"""


def copied_folders(plan: Plan) -> tuple[str, ...]:
    """Every `<checkpoint>/<revision>` that an argument vector names, sorted."""
    pattern = re.compile(re.escape(plan.weights_path) + r"/([^/\s\"]+/[^/\s\",]+)")
    return tuple(
        sorted(
            {
                match[1]
                for process in plan.processes
                for word in process.argv
                for match in pattern.finditer(word)
            }
        )
    )


def copy_container(plan: Plan, copy: BucketCopy) -> Document:
    """An init container: it waits until the bucket has the weights, and copies what the node does not have yet.

    What lies on the node's disks stays there, so that a pod that begins again loads from them at once.
    """
    folders = " ".join(shlex.quote(each) for each in copied_folders(plan))
    script = _SCRIPT.format(
        folders=folders, source=SOURCE, every=ASK_EVERY_S, path=shlex.quote(plan.weights_path)
    )
    return {
        "name": "weights",
        "image": copy.image,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": SOURCE, "value": copy.source}],
        "volumeMounts": [{"name": "weights", "mountPath": plan.weights_path}],
    }
