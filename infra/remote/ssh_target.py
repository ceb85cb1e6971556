"""How one host is reached: the inventory, its ssh arguments and the ssh_config that they name, joined."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko

from infra.errors import StackError
from infra.inventory.hosts import InventoryHost
from infra.remote.corrections import ToldBy
from infra.remote.known_hosts import SSH_PORT, known_name
from infra.remote.places import is_port, read_place
from infra.remote.session_manager import leads_to
from infra.remote.ssh_config import SshConfigFile

USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
FLAGS = {
    "-F": "configfile",
    "-J": "proxyjump",
    "-i": "identityfile",
    "-l": "user",
    "-p": "port",
}
HONOURED = (
    "hostname",
    "port",
    "user",
    "identityfile",
    "identitiesonly",
    "userknownhostsfile",
    "globalknownhostsfile",
    "stricthostkeychecking",
    "hostkeyalias",
    "proxycommand",
    "proxyjump",
    "proxyusefdpass",
    "connecttimeout",
)
# They steer what this project does by itself, or a multiplexer that it has no use for.
HARMLESS = (
    "addressfamily",
    "batchmode",
    "checkhostip",
    "compression",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "forwardagent",
    "forwardx11",
    "gssapiauthentication",
    "kbdinteractiveauthentication",
    "kexalgorithms",
    "loglevel",
    "passwordauthentication",
    "preferredauthentications",
    "pubkeyauthentication",
    "requesttty",
    "serveralivecountmax",
    "serveraliveinterval",
    "tcpkeepalive",
    "updatehostkeys",
)

SshConfigReader = Callable[[Path], SshConfigFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """One host as SSH reaches it.

    Args:
        name: the inventory's name, for messages.
        told_by: who says how it is reached, for messages, too.
        host: where the connection goes.
        port: SSH port.
        user: login.
        identity_files: private keys, in order; () for the agent's and the default ones.
        known_hosts_files: the first is the one that accept-new writes to.
        host_key: the only key that is accepted, None when known_hosts decides.
        host_key_name: the name that known_hosts files are asked for.
        accept_new: whether a key is remembered on first contact.
        proxy_command: program whose standard input and output are the connection, None for none.
        proxy_passes_socket: the program hands over a connected socket instead (ProxyUseFdpass).
        proxy_jump: bastions, `[user@]host[:port]`, in the order in which they are crossed.
        ssh_config: the configuration that bastions are looked up in too, None for none.
        connect_timeout_s: limit of the TCP connection.
        greeting_timeout_s: limit of sshd's first words.
    """

    name: str
    told_by: ToldBy
    host: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    known_hosts_files: tuple[Path, ...]
    host_key: str | None
    host_key_name: str
    accept_new: bool
    proxy_command: str | None
    proxy_passes_socket: bool
    proxy_jump: tuple[str, ...]
    ssh_config: Path | None
    connect_timeout_s: float
    greeting_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SshDefaults:
    """What holds where neither the inventory nor ssh arguments say otherwise.

    Args:
        told_by: who says how the hosts are reached.
        accept_new: `--accept-new`: remember the key of a host on first contact.
        ssh_config: the operator's own ssh_config, when asked for (`-S` of Fabric), else None.
        connect_timeout_s: limit of the TCP connection.
        greeting_timeout_s: limit of sshd's first words; a frozen host accepts and then says nothing.
    """

    told_by: ToldBy = "inventory"
    accept_new: bool = False
    ssh_config: Path | None = None
    connect_timeout_s: float = 10.0
    greeting_timeout_s: float = 10.0


def resolve_target(
    host: InventoryHost, defaults: SshDefaults, read_config: SshConfigReader
) -> SshTarget:
    """How a host of the inventory is reached.

    What the inventory says itself comes first, then `-o` and the other arguments, then the
    ssh_config that `-F` names, looked up by address as `ssh` would.

    Raises:
        StackError: an ssh argument that is not understood, or that switches verification off.
    """
    where = f"inventory host {host.name}"
    given = parse_arguments(where, host.ssh_arguments)
    file = given.get("configfile", [None])[0]
    config = Path(file).expanduser() if file else defaults.ssh_config
    found = _lookup(where, config, host.address, read_config)
    settings = {**found, **given}
    user = host.user or _one(settings, "user") or getpass.getuser()
    own_key = (host.private_key_file,) if host.private_key_file else ()
    address = _one(settings, "hostname") or host.address
    port = host.port
    if port == SSH_PORT:  # an inventory that is silent says 22 too
        port = int(_number(where, settings, "port", SSH_PORT))
    if not is_port(port):
        raise StackError(where, f"{port} is no port.", "Write a number from 1 to 65535.")
    jump = _one(settings, "proxyjump")
    hops = tuple(jump.split(",")) if jump and jump.lower() != "none" else ()
    for hop in hops:
        _hop(where, hop)
    command = _one(settings, "proxycommand")
    checking = _one(settings, "stricthostkeychecking")
    return SshTarget(
        name=host.name,
        told_by=defaults.told_by,
        host=address,
        port=port,
        user=user,
        identity_files=tuple(
            Path(path).expanduser() for path in (*own_key, *settings.get("identityfile", ()))
        ),
        known_hosts_files=_known_hosts_files(settings),
        host_key=host.host_key,
        host_key_name=_one(settings, "hostkeyalias") or known_name(address, port),
        accept_new=_accepts_new(where, checking, defaults)
        or (checking is None and leads_to(command, host.instance_id)),
        proxy_command=_expanded(command, address, port, user),
        proxy_passes_socket=(_one(settings, "proxyusefdpass") or "no").lower() == "yes",
        proxy_jump=hops,
        ssh_config=config,
        connect_timeout_s=_number(where, settings, "connecttimeout", defaults.connect_timeout_s),
        greeting_timeout_s=defaults.greeting_timeout_s,
    )


def bastion_of(target: SshTarget) -> InventoryHost | None:
    """The last bastion of a target as a host of its own, None when it is reached directly.

    Raises:
        StackError: what is named is no host.
    """
    if not target.proxy_jump:
        return None
    user, host, port = _hop(f"inventory host {target.name}", target.proxy_jump[-1])
    earlier = ",".join(target.proxy_jump[:-1])
    arguments: tuple[str, ...] = ("-F", str(target.ssh_config)) if target.ssh_config else ()
    return InventoryHost(
        name=f"bastion {known_name(host, port)}",
        groups=(),
        address=host,
        service_address=host,
        port=port,
        user=user,
        private_key_file=str(target.identity_files[0]) if target.identity_files else None,
        ssh_arguments=(*arguments, "-o", f"ProxyJump={earlier or 'none'}"),
        host_key=None,
        interface="",
        rdma_devices=(),
        instance_id=None,
    )


def _hop(where: str, text: str) -> tuple[str | None, str, int]:
    """User, host and port of a bastion: `user@host:port` or `ssh://user@host:port`.

    Raises:
        StackError: it is none.
    """
    user, _, place = text.strip().removeprefix("ssh://").rpartition("@")
    found = read_place(place)
    host, port = found or ("", None)
    port = SSH_PORT if port is None else port
    if found is None or not is_port(port):
        what = f"the bastion {text!r} is no host."
        raise StackError(where, what, "Write -J user@host:port; user and port may be left out.")
    return user or None, host, port


def parse_arguments(where: str, words: tuple[str, ...]) -> dict[str, list[str]]:
    """Settings by lower-case name from ssh's own words; a repeated one keeps its first value.

    Raises:
        StackError: a word that is not understood.
    """
    settings: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, value = word[:2], word[2:]
        if flag not in FLAGS and flag != "-o":
            raise StackError(where, f"the ssh argument {word!r} is not understood.", _known_words())
        if not value:
            if not rest:
                raise StackError(where, f"the ssh argument {word} lacks its value.", "Add it.")
            value = rest.pop(0)
        key = FLAGS.get(flag, "")
        if flag == "-o":
            key, _, value = value.replace("=", " ", 1).strip().partition(" ")
            key, value = key.lower(), value.strip().strip('"')
            if key in HARMLESS:
                continue
            if key not in HONOURED:
                raise StackError(where, f"the ssh option {key!r} is not honoured.", _known_words())
        if key == "identityfile":
            settings.setdefault(key, []).append(value)
        else:
            settings.setdefault(key, [value])
    return settings


def _known_words() -> str:
    return f"Use {', '.join(FLAGS)} or -o with one of {', '.join(HONOURED)}."


def _lookup(
    where: str, config: Path | None, address: str, read_config: SshConfigReader
) -> dict[str, list[str]]:
    if config is None:
        return {}
    try:
        found = read_config(config).lookup(address)
    except FileNotFoundError as error:
        raise StackError(where, f"there is no ssh_config {config}.", "Correct -F.") from error
    except (paramiko.ConfigParseError, OSError, ValueError) as error:
        what = f"the ssh_config {config} cannot be read: {error}."
        raise StackError(where, what, f"Try ssh -G -F {config} {address}.") from error
    return {
        key: [str(part) for part in value] if isinstance(value, list) else [str(value)]
        for key, value in found.items()
        if key in HONOURED
    }


def _one(settings: Mapping[str, list[str]], key: str) -> str | None:
    values = settings.get(key)
    return values[0] if values else None


def _number(where: str, settings: Mapping[str, list[str]], key: str, default: float) -> float:
    text = _one(settings, key)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise StackError(where, f"{key} {text!r} is not a whole number above 0.", "Correct it.")
    return int(text)


def _known_hosts_files(settings: Mapping[str, list[str]]) -> tuple[Path, ...]:
    mine = _one(settings, "userknownhostsfile")
    shared = _one(settings, "globalknownhostsfile")
    names = (
        *(mine.split() if mine else USER_KNOWN_HOSTS),
        *(shared.split() if shared else GLOBAL_KNOWN_HOSTS),
    )
    return tuple(Path(name).expanduser() for name in names if name.lower() != "none")


def _accepts_new(where: str, checking: str | None, defaults: SshDefaults) -> bool:
    """Whether first contact is trusted; verification itself cannot be switched off."""
    word = (checking or "ask").lower()
    if word in ("no", "off"):
        raise StackError(
            where,
            f"StrictHostKeyChecking={checking} would let any machine pass for this host.",
            "Use StrictHostKeyChecking=accept-new, or write the key to moe.host_key.",
        )
    return word == "accept-new" or defaults.accept_new


def _expanded(command: str | None, host: str, port: int, user: str) -> str | None:
    """A ProxyCommand with its tokens filled in (those of an ssh_config are filled in already)."""
    if command is None or command.lower() == "none":
        return None
    for token, value in (("%h", host), ("%p", str(port)), ("%r", user)):
        command = command.replace(token, value)
    return command.replace("%%", "%")
