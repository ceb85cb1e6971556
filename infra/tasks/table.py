"""Every task of `fab`: its group, its module, its help and its options, in the order of the help.

`fab --list` reads nothing else; a task's module is imported when the task runs.
"""

from __future__ import annotations

from typing import NamedTuple

from infra.tasks.options import Option
from infra.tasks.shared_options import (
    CACHES,
    FORCE,
    FORCE_LEASE,
    HOSTS,
    INVENTORY,
    JSON,
    LIMIT,
    LOOK,
    PLAN,
    PURGE,
    ROLES,
    STACK,
    YES,
)


class Entry(NamedTuple):
    """One task. `module` lies in `infra.tasks` and has `run(options, output) -> exit code`.

    Args:
        asks_first: operations that the task asks the hosts of its inventory for before any other: their agents are
            started with them while the module loads.
    """

    name: str
    module: str
    help: str
    options: tuple[Option, ...]
    asks_first: tuple[str, ...] = ()


GROUPS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Without any host",
        (
            Entry(
                "stacks",
                "stacks",
                "The shipped stacks: model, engine, hardware, roles, hosts, devices",
                (JSON,),
            ),
            Entry(
                "check",
                "check",
                "Judge a stack with every rule that needs no host",
                (
                    *STACK,
                    INVENTORY,
                    PLAN,
                    Option("explain", "text", "say what one rule asks for, and why"),
                    JSON,
                ),
            ),
            Entry(
                "plan",
                "plan",
                "Every process of a stack: host, devices, ports, command, environment",
                (
                    *STACK,
                    INVENTORY,
                    Option("explain", "switch", "say where each flag and variable comes from"),
                    Option("picture", "text", "draw the plan into this .svg or .png file"),
                    Option("firewall", "text", "who may dial what: a host and its rules, or all"),
                    JSON,
                ),
            ),
            Entry(
                "render",
                "render",
                "The files that `up` would install, written to a folder",
                (
                    *STACK,
                    INVENTORY,
                    PLAN,
                    Option("to", "text", "the folder; made when it is not there"),
                    JSON,
                ),
            ),
            Entry(
                "estimate",
                "estimate",
                "What fits per device, the longest context, minutes to ready, USD per hour",
                (
                    *STACK,
                    Option(
                        "compare",
                        "words",
                        'another stack, or "FIELD=VALUE …" over this one, in a column beside it; may be repeated',
                    ),
                    Option(
                        "length",
                        "number",
                        "tokens of the requests to count; default: the longest admitted",
                    ),
                    Option(
                        "reserved",
                        "number",
                        "machines of the reservation that you hold; default: the least that is sold",
                    ),
                    Option(
                        "until",
                        "text",
                        "when the reservation ends (2026-12-15T11:30:00Z, as `pulumi preview` prints it)",
                    ),
                    Option("picture", "text", "draw memory per device into this .svg or .png file"),
                    JSON,
                ),
            ),
        ),
    ),
    (
        "Hosts",
        (
            Entry(
                "facts",
                "facts",
                "What the hosts are; recorded beside the inventory",
                (*HOSTS, LIMIT),
            ),
            Entry(
                "preflight",
                "preflight",
                "Whether the stack can start on its hosts, worst first, each with its fix",
                (
                    *HOSTS,
                    LIMIT,
                    Option(
                        "timeout", "number", "seconds until the IMEX domain is whole; default 60"
                    ),
                    Option(
                        "join",
                        "number",
                        "seconds until all ranks of a group have met for its collective; default 90",
                    ),
                ),
                LOOK,
            ),
            Entry(
                "tune-hosts",
                "tune_hosts",
                "Bring hosts to the tuning profile, report drift, or take it back",
                (
                    *HOSTS,
                    LIMIT,
                    Option("check", "switch", "say what would change, and change nothing"),
                    Option("diff", "switch", "show each difference"),
                    Option("rollback", "switch", "bring back what was found before"),
                    Option(
                        "allow",
                        "words",
                        "drain: change what needs a drained host; running: although engines run there; "
                        "reboot: prepare what the next boot brings",
                        choices=("drain", "reboot", "running"),
                    ),
                    Option(
                        "hosts", "text", "user@host:port,… in place of a stack; `fab -H` says it"
                    ),
                    Option("profile", "text", "the profile of --hosts; default: what each host is"),
                    Option("identity", "words", "a private key file for --hosts; `fab -i` says it"),
                    Option("ssh-config", "text", "an ssh_config for --hosts; `fab -S` says it"),
                ),
            ),
            Entry(
                "stage-weights",
                "stage_weights",
                "Bring checkpoints, drafts and images to every host: resumed, verified, put into place whole",
                (
                    *HOSTS,
                    Option("source", "text", "where from, written over the stack's weights.source"),
                    Option("check", "switch", "hold every byte against its sum, change nothing"),
                    Option(
                        "image-archive",
                        "text",
                        "a file of `docker save` or `podman save` here: hosts without the image get it",
                    ),
                    CACHES,
                    Option("stop", "switch", "end what runs; what has arrived is kept"),
                ),
            ),
        ),
    ),
    (
        "The deployment",
        (
            Entry(
                "up",
                "up",
                "Start every process of a stack, and prove each rank with a token",
                (
                    *HOSTS,
                    Option("timeout", "number", "seconds until every rank must have proven itself"),
                    Option("tune", "switch", "bring the hosts to the tuning profile first"),
                    Option(
                        "replace",
                        "switch",
                        "stop groups of another release that runs, and put this one there",
                    ),
                    Option(
                        "release",
                        "text",
                        "go back to a release that the hosts keep, by the beginning of its hash",
                    ),
                    YES,
                    FORCE,
                ),
                LOOK,
            ),
            Entry(
                "down",
                "down",
                "Stop the deployment and remove what `up` put on the hosts",
                (*HOSTS, YES, FORCE_LEASE, PURGE),
            ),
            Entry(
                "restart",
                "restart",
                "Restart groups of ranks as one, and prove each rank with a token",
                (
                    *HOSTS,
                    FORCE_LEASE,
                    Option(
                        "role",
                        "text",
                        "only groups of this role: prefill, decode or unified",
                        choices=ROLES,
                    ),
                    Option("replica", "text", "only this replica; they count from 0"),
                    Option(
                        "rolling", "switch", "one group after another, so that others go on serving"
                    ),
                    Option("timeout", "number", "seconds until every rank must have proven itself"),
                ),
            ),
            Entry(
                "status",
                "status",
                "The state of every process, from its host",
                (*HOSTS, LIMIT, Option("watch", "switch", "go on until interrupted")),
            ),
            Entry(
                "logs",
                "logs",
                "The processes' logs, merged by time",
                (
                    *HOSTS,
                    LIMIT,
                    Option("rank", "text", "only this process, e.g. decode-0/3"),
                    Option(
                        "role",
                        "text",
                        "only the processes of this role, e.g. decode",
                        choices=(*ROLES, "router", "edge"),
                    ),
                    Option("grep", "text", "only lines that match this expression"),
                    Option("lines", "number", "lines per process; default 50, with --since all"),
                    Option("since", "text", "e.g. '10 min ago', as journalctl takes it"),
                    Option("follow", "switch", "go on until interrupted"),
                ),
            ),
            Entry(
                "diff",
                "diff",
                "What the next `up` would change, argument by argument",
                (
                    *HOSTS,
                    Option("release", "text", "what `up --release` with this hash would change"),
                ),
                LOOK,
            ),
            Entry(
                "replace-host",
                "replace_host",
                "Put machine NEW in the place of host OLD; every other rank stays where it is",
                (
                    Option("old", "text", "the host whose name stays", is_positional=True),
                    Option(
                        "new",
                        "text",
                        "a host of the inventory that the stack does not use, or an address",
                        is_positional=True,
                    ),
                    *HOSTS,
                    Option("tune", "switch", "bring the hosts to the tuning profile first"),
                    FORCE,
                ),
            ),
            Entry(
                "verify",
                "verify",
                "Prove that hosts are as declared and that every rank serves",
                (
                    *HOSTS,
                    Option("timeout", "number", "seconds that one request may take; default 60"),
                    Option(
                        "deep", "switch", "also read every byte of the weights against its checksum"
                    ),
                ),
                LOOK,
            ),
            Entry(
                "bundle",
                "bundle",
                "The evidence of a failure, from all ranks at once, secrets masked",
                (
                    *HOSTS,
                    LIMIT,
                    Option("to", "text", "the archive; default <stack>-<time>.tar.gz, here"),
                ),
            ),
        ),
    ),
    (
        "Other",
        (
            Entry(
                "import",
                "import_recipe",
                "Read someone else's recipe, show what it would run, and judge it",
                (
                    Option(
                        "file",
                        "text",
                        "a shell script, guide, Kubernetes manifest, srt-slurm or vllm-ascend file, or a folder",
                        is_positional=True,
                    ),
                    Option("accelerator", "text", "the chip, where the file does not name it"),
                    Option("engine", "text", "the release, e.g. vllm:0.22.1"),
                    Option(
                        "checkpoint",
                        "text",
                        "the weights, where the file's path does not name them",
                    ),
                    Option(
                        "set",
                        "words",
                        "NAME=VALUE, a variable that the script leaves open; may be repeated",
                    ),
                    Option("to-stack", "text", "write it as a stack file, as far as it can be one"),
                    Option("to-plan", "text", "write it as a plan document"),
                    Option("report", "text", "of a folder: write a table of all recipes there"),
                    JSON,
                ),
            ),
            Entry(
                "engines",
                "engines",
                "The pinned engine releases, and what an upgrade changes for a stack",
                (
                    *STACK,
                    INVENTORY,
                    Option("diff", "pair", "A B: what changes from release A to release B"),
                    JSON,
                ),
            ),
            Entry(
                "inventory",
                "inventory",
                "The Ansible inventory: of a cloud's hosts from Pulumi's outputs, of others to fill in",
                (
                    *STACK,
                    Option("to", "text", "the file; default ansible/inventory/<stack>.yml"),
                    Option("ssh-args", "text", "words for every SSH connection, e.g. '-J bastion'"),
                    Option("addresses", "text", "of existing hosts, a,b,… in the plan's order"),
                    JSON,
                ),
            ),
            Entry(
                "rehearse",
                "rehearse",
                "The whole job on this machine, with everything real that can be",
                (
                    *STACK,
                    PLAN,
                    Option("keep", "switch", "leave it running, and say how to reach it"),
                    Option(
                        "to-step",
                        "text",
                        "stop after check, plan, provision, hosts, weights, tune, start or verify",
                    ),
                    Option("break", "text", "PROCESS:KIND, spoil one file, to see it noticed"),
                    Option("list", "switch", "the rehearsals that are kept"),
                    Option("stop", "text", "end a kept rehearsal, by its id"),
                    JSON,
                ),
            ),
        ),
    ),
)
