"""Options that several tasks of the table take."""

from __future__ import annotations

from infra.tasks.options import Option

# Of `spec.stack.RoleName`, which takes a third of a short command's start to import.
ROLES = ("unified", "prefill", "decode")
STACK = (
    Option("stack", "text", "a shipped stack, by name"),
    Option("file", "text", "a stack file, by path"),
    Option("set", "words", "FIELD=VALUE, written over the stack's field; may be repeated"),
)
INVENTORY = Option("inventory", "text", "the hosts; default ansible/inventory/<stack>.yml")
PLAN = Option("plan", "text", "a plan document to take in place of a stack")
JSON = Option("json", "switch", "print one JSON document")
ACCEPT_NEW = Option(
    "accept-new", "switch", "trust and remember the key of a host never seen before"
)
FORCE = Option("force", "words", "go on although this check says no, e.g. lease; may be repeated")
FORCE_LEASE = Option("force", "words", "take the lease from whoever holds it", choices=("lease",))
CACHES = Option("caches", "switch", "hand what engines compiled to hosts that lack it, too")
PURGE = Option("purge", "switch", "remove what its engines compiled there, too")
YES = Option("yes", "switch", "on a terminal, do not ask before what serves is stopped")
ASK_SUDO = Option(
    "ask-sudo-password", "switch", "ask for the password of hosts whose sudo wants one"
)
SUDO_FROM = Option("sudo-password-from", "text", "env:NAME or file:PATH, where no terminal can ask")
LIMIT = Option(
    "limit", "words", "only this host, by the plan's name or the inventory's; may be repeated"
)
LOOK = ("facts", "listening", "state", "units")  # of whoever has compiled a stack
HOSTS = (*STACK, INVENTORY, ACCEPT_NEW, ASK_SUDO, SUDO_FROM, JSON)
