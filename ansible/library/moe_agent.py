"""What the action `moe_agent` takes and returns; it runs in ../action_plugins/moe_agent.py."""

DOCUMENTATION = """
module: moe_agent
short_description: Ask the agent of moe-infra on a host, as C(fab) does
description:
  - Sends a host's own documents, as C(fab render) writes them, to the agent that C(fab) uses too.
  - The agent travels on standard input; a host needs Python 3.6 or later and nothing else.
  - Check mode reads and compares, and changes nothing; diff mode shows each difference.
  - A host that no process of the plan is on is skipped.
options:
  rendered:
    description: The folder that C(fab render --to) wrote on the controller.
    type: path
    required: true
  operation:
    description:
      - V(tune) brings the host to its tuning profile, as C(fab tune-hosts) does.
      - V(look) refuses what C(fab up) refuses, and tells which engines run and which do not, and whether files are to
        change of hosts that are watched.
      - V(hold) has the host's watcher act no more, and still be heard by those of other hosts.
      - V(take-back) ends the host's watcher; it takes over what runs when it is handed it again.
      - V(install) brings the host to its files and images, as C(fab up) does.
      - V(start) starts the units that do not run, all at once.
      - V(ready) waits some seconds for what C(fab status) calls ready, and fails when a process has ended.
      - V(prove) has every rank of the host generate a token, or a request go through its router or edge.
      - V(watch) has the host's watcher keep its groups alive from now on.
      - V(release) gives the lease back.
    type: str
    choices: [tune, look, hold, take-back, install, start, ready, prove, watch, release]
    required: true
  mode:
    description: Of V(tune); V(rollback) brings back what was found.
    type: str
    choices: [apply, rollback]
    default: apply
  allow:
    description: Of V(tune); what may be done that would else be left, as of C(fab tune-hosts --allow).
    type: list
    elements: str
    choices: [drain, running, reboot]
    default: []
  kind:
    description: Of V(start), V(ready) and V(prove); the units that are meant.
    type: str
    choices: [engine, router, edge]
    default: engine
  lease:
    description: The command that holds the stack's lease; without one, no lease is held.
    type: str
  since:
    description: The C(at) of the task that started what is awaited.
    type: float
  ready_s:
    description: Seconds after that within which everything must be ready.
    type: float
    default: 1800
notes:
  - Secrets that files of the host need come from the variable C(moe_secrets) (a map, from a vault perhaps), else
    from where the stack says. They travel on standard input, and no argument or result holds them.
  - V(watch) takes the key of the hosts' watchers from the variable C(moe_watch_key), 64 hex digits that a play makes
    once per run, for all of its hosts. A host whose watcher has been handed its groups already keeps its key.
author: moe-infra
"""

EXAMPLES = """
- name: Bring the host to its tuning profile
  moe_agent:
    rendered: /tmp/rendered
    operation: tune
"""

RETURN = """
summary:
  description: A line for each item that is not simply as declared, then how many items ended in each state.
  returned: for V(tune) and V(install)
  type: list
  elements: str
running:
  description: Engine processes that run.
  returned: for V(look)
  type: list
  elements: str
ended:
  description: Engine processes that do not.
  returned: for V(look)
  type: list
  elements: str
started:
  description: Units that were started.
  returned: for V(start)
  type: list
  elements: str
at:
  description: When they were, by the controller's monotonic clock.
  returned: for V(start)
  type: float
ready:
  description: Whether every process is.
  returned: for V(ready) and V(prove)
  type: bool
silent:
  description: Processes that are not.
  returned: for V(ready) and V(prove)
  type: list
  elements: str
proven:
  description: How many ranks of the host have generated a token.
  returned: for V(prove) of engines
  type: int
answer:
  description: What a request through the router was answered.
  returned: for V(prove) of a router or an edge
  type: str
"""
