"""What the action `moe_agent` takes and returns; it runs in ../action_plugins/moe_agent.py."""

DOCUMENTATION = """
module: moe_agent
short_description: Bring a host to groups of its state, by the agent of moe-infra
description:
  - Sends the host's own document, as C(fab render) writes it, to the agent that C(fab) uses too.
  - The agent travels on standard input; a host needs Python 3.6 or later and nothing else.
  - Check mode reads and compares, and changes nothing; diff mode shows each difference.
  - A host that no process of the plan is on is skipped.
options:
  rendered:
    description: The folder that C(fab render --to) wrote on the controller.
    type: path
    required: true
  groups:
    description: Groups of the host state, in the order in which the document has them.
    type: list
    elements: str
    choices: [tuning, files, images, weights]
    required: true
  mode:
    description:
      - V(apply) brings the groups about, V(check) only compares, V(rollback) brings back what was found.
    type: str
    choices: [apply, check, rollback]
    default: apply
  timeout_s:
    description: Seconds until the agent ends itself and what it started.
    type: float
    default: 60
notes:
  - Secrets that files of the host need come from the variable C(moe_secrets) (a map, from a vault perhaps), else
    from where the stack says. They travel on standard input, and no argument or result holds them.
author: moe-infra
"""

EXAMPLES = """
- name: Bring the host to its tuning profile
  moe_agent:
    rendered: /tmp/rendered
    groups: [tuning]
"""

RETURN = """
summary:
  description: A line for each item that is not simply as declared, then how many items ended in each state.
  returned: always
  type: list
  elements: str
rows:
  description: The agent's rows of these items.
  returned: always
  type: list
  elements: dict
"""
