"""The container that brings weights from a bucket to a node's own disks before the engines of its pod start."""

from __future__ import annotations

import re
import shlex

from infra.plan.process import Plan
from infra.render.cluster_facts import BucketCopy
from infra.render.pod_processes import Document

SOURCE = "WEIGHTS_SOURCE"
ASK_EVERY_S = 30
# `aws s3 ls` ends with 1 and says nothing where no object has the prefix, with more than 1 on an error (AWS CLI User
# Guide, "Command line return codes"). An object is listed when all of it is there, never in parts.
_SCRIPT = """\
set -eu
export AWS_CONFIG_FILE=/tmp/aws
aws configure set default.s3.preferred_transfer_client crt
said=$(mktemp)
end='
'
fail() {{
  echo "error: $1: $(cat "$said")" >&2
  echo "fix: the role of these pods lists and reads the bucket (pulumi up makes it so); a bucket of yours, and the" \
    "key that encrypts it, must let that role in. Try: aws s3 ls $1" >&2
  exit 1
}}
look() {{
  list=$(aws s3 ls "$1/" 2> "$said") || {{ [ $? = 1 ] && [ ! -s "$said" ]; }} || fail "$1/"
  wanted=model.safetensors
  case "$list$end" in *" $index$end"*)
    aws s3 cp --only-show-errors "$1/$index" - > "$said.index" 2> "$said" || fail "$1/$index"
    wanted=$(grep -o '"[^"]*[.]safetensors"' "$said.index" | tr -d '"' | sort -u)
    [ -n "$wanted" ] || {{ echo "it names no shard" > "$said"; fail "$1/$index"; }}
  esac
  left=
  for file in config.json $wanted; do
    case "$list$end" in *" $file$end"*) ;; *) left="$left $file" ;; esac
  done
}}
index=model.safetensors.index.json
for each in {folders}; do
  from="${source}$each"
  look "$from"
  while [ -n "$left" ]; do
    set -- $left
    echo "waiting for $from: $# missing, $1 first"
    sleep {every}
    look "$from"
  done
  aws s3 sync --only-show-errors "$from" {path}/"$each" 2> "$said" || fail "$from/"
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

    They are there with `config.json` and every shard that the index of the checkpoint names, or the one file of a
    checkpoint without an index. Anything but "not there" ends the container; its last lines stand in the pod's status.
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
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
