"""Making one verified SSH connection: key check, login, retries where sshd is only busy."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import fabric
import paramiko

from infra.errors import InfraError
from infra.remote.corrections import CORRECTIONS
from infra.remote.failures import HostKeyChanged, HostKeyUnknown, LoginRefused, Unreachable
from infra.remote.known_hosts import (
    AnyOf,
    KnownHosts,
    KnownKey,
    fingerprint,
    known_name,
    parse_key_line,
    usable_keys,
    way_to_forget,
)
from infra.remote.login import PromptTransport
from infra.remote.pulse import HeardWire, Wire
from infra.remote.resources import Resources
from infra.remote.ssh_target import (
    USER_KNOWN_HOSTS,
    SshDefaults,
    SshTarget,
    bastion_of,
    resolve_target,
)
from infra.remote.sudo import SudoPassword
from infra.remote.wires import dial, proxy_failure

# Its errors reach the operator as ours; without a handler Python prints them a second time.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

# sshd drops handshakes at random beyond ten at once (MaxStartups 10:30:100): that host is busy, not down.
MAX_ATTEMPTS = 8
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
KEY_EXCHANGE_S = 15.0
LOGIN_S = 30.0
CHANNEL_S = 12.0
# How long a bastion that could not be reached is not tried again.
REFUSAL_S = 5.0
COMPARE = "compare it on the host (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshOptions:
    """How a run connects.

    Args:
        defaults: what holds where the inventory says nothing.
        resources: what its connections share.
        sudo: the password for a sudo that asks; None where it must not ask.
    """

    defaults: SshDefaults = field(default_factory=SshDefaults)
    resources: Resources = field(default_factory=Resources)
    sudo: SudoPassword | None = None


class _Connection(fabric.Connection):  # type: ignore[misc]  # fabric publishes no types
    """Fabric's connection, whose configuration all connections of a run share.

    Fabric writes this one setting back into its configuration, which is then merged anew for every host.
    """

    inline_ssh_env = None


def connect(target: SshTarget, options: SshOptions) -> fabric.Connection:
    """An open connection to a target.

    Raises:
        HostsFailed: by its subclass, why there is none.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        wire = _wire(target, options)
        begun = time.monotonic()
        try:
            return _open(target, options, wire)
        except (paramiko.SSHException, EOFError, OSError) as error:
            proxy_error = proxy_failure(target, wire) if _is_busy(error) else None
            wire.close()
            if proxy_error is not None:
                raise proxy_error from error
            if _is_busy(error) and time.monotonic() - begun >= target.greeting_timeout_s:
                raise _silent(target) from error
            if not _is_busy(error) or attempt == MAX_ATTEMPTS:
                raise _translated(target, error) from error
        except BaseException:
            wire.close()
            raise
        ceiling = min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
        time.sleep(random.uniform(ceiling / 4, ceiling))  # noqa: S311 - spreads retries, guards nothing
    raise AssertionError("unreachable: the last attempt returns or raises")


def _wire(target: SshTarget, options: SshOptions) -> Wire:
    bastion = bastion_of(target)
    if bastion is None:
        return dial(target)
    defaults = replace(options.defaults, told_by="bastion")
    resolved = resolve_target(bastion, defaults, options.resources.ssh_config)
    gate = options.resources.once(_Bastion, resolved, lambda: _Bastion(resolved, options))
    return gate.channel(target)


class _Bastion:
    """One connection to a bastion, shared by everything behind it; made again when it was lost."""

    def __init__(self, target: SshTarget, options: SshOptions) -> None:
        self._target = target
        self._options = options
        self._connection: fabric.Connection | None = None
        self._refusal: tuple[float, InfraError] | None = None
        self._guard = threading.Lock()
        options.resources.on_close(self._close)

    def channel(self, target: SshTarget) -> Wire:
        transport = self._transport()
        place = (target.host, target.port)
        try:
            channel = transport.open_channel(
                "direct-tcpip", place, ("", 0), timeout=target.connect_timeout_s
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            what = f"{self._target.name} reaches no {target.host} port {target.port}: {error}."
            fix = "Check the address and what the bastion may reach."
            raise Unreachable(target.name, what, fix) from error
        return HeardWire(channel)

    def _transport(self) -> paramiko.Transport:
        """The live connection; hosts that come while it is down share one refusal, not one wait each."""
        with self._guard:
            if self._refusal is not None and time.monotonic() - self._refusal[0] < REFUSAL_S:
                raise self._refusal[1]
            if self._connection is None or not self._connection.is_connected:
                try:
                    self._connection = connect(self._target, self._options)
                except InfraError as error:
                    self._refusal = (time.monotonic(), error)
                    raise
            transport: paramiko.Transport = self._connection.transport
            return transport

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _open(target: SshTarget, options: SshOptions, wire: Wire) -> fabric.Connection:
    """One attempt over a wire."""
    config = options.resources.once(fabric.Config, "no ssh_config", _bare_config)
    login = _login(target, options.resources)
    connection = _Connection(
        target.host,
        user=target.user,
        port=target.port,
        config=config,
        connect_kwargs={
            "sock": wire,
            "banner_timeout": target.greeting_timeout_s,
            "auth_timeout": LOGIN_S,
            "channel_timeout": CHANNEL_S,
            "timeout": KEY_EXCHANGE_S,
            "transport_factory": PromptTransport,
            **login,
        },
    )
    client: paramiko.SSHClient = connection.client
    _trust(client, target, options.resources)
    try:
        connection.open()
    except BaseException:
        client.close()
        raise
    return connection


def _bare_config() -> fabric.Config:
    """Fabric's settings without any file: what is wanted of an ssh_config stands in the target."""
    return fabric.Config(lazy=True, overrides={"load_ssh_configs": False})


def _login(target: SshTarget, resources: Resources) -> dict[str, Any]:
    """Keys to offer: those that were named and nothing else, or the agent's and the default ones."""
    if not target.identity_files:
        return {"look_for_keys": True, "allow_agent": True}
    # `Path.exists` raises where a folder on the way is closed to us
    present = [path for path in target.identity_files if os.path.exists(path)]  # noqa: PTH110
    if not present:
        named = ", ".join(map(str, target.identity_files))
        what = f"no private key is there: {named}."
        fix = f"Correct {CORRECTIONS[target.told_by].private_key}."
        raise LoginRefused(target.name, what, fix)
    only = {"look_for_keys": False, "allow_agent": False}
    if len(present) > 1:
        return {"key_filename": [str(path) for path in present], **only}
    try:
        return {"pkey": resources.private_key(present[0]), **only}
    except paramiko.PasswordRequiredException:
        return {"look_for_keys": False, "allow_agent": True}  # the agent holds it opened
    except (OSError, paramiko.SSHException, ValueError, paramiko.pkey.UnknownKeyType) as error:
        what = f"the private key {present[0]} cannot be used: {error}."
        raise LoginRefused(target.name, what, "Name another key.") from error


def _trust(client: paramiko.SSHClient, target: SshTarget, resources: Resources) -> None:
    """Give the client the target's own keys and a policy in place of Fabric's, which takes any key."""
    remembered_in: KnownHosts | None = None
    if target.host_key is not None:
        line = parse_key_line(target.host_key)
        known: tuple[KnownKey, ...] = (line,) if line is not None else ()
    else:
        files = [resources.known_hosts(path) for path in target.known_hosts_files]
        known = tuple(key for file in files for key in file.find(target.host_key_name))
        remembered_in = files[0] if target.accept_new and files else None
    name = known_name(target.host, target.port)
    by_type: dict[str, list[paramiko.PKey]] = {}
    for key in usable_keys(known):
        by_type.setdefault(key.get_name(), []).append(key)
    for key_type, keys in by_type.items():
        client.get_host_keys().add(name, key_type, AnyOf(keys))
    revoked = {key.blob for key in known if key.is_revoked}
    client.set_missing_host_key_policy(_Policy(target, revoked, remembered_in))


class _Policy(paramiko.MissingHostKeyPolicy):
    """What happens to a key that nothing here knows: refused, or remembered when that was asked for.

    Args:
        target: the host.
        revoked: public keys that it must not show.
        remembered_in: the first of the target's known_hosts files, None where no key is accepted on first contact.
    """

    def __init__(
        self, target: SshTarget, revoked: set[bytes], remembered_in: KnownHosts | None
    ) -> None:
        self._target = target
        self._revoked = revoked
        self._remembered_in = remembered_in

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - the parent's signature
        hostname: str,
        key: paramiko.PKey,
    ) -> None:
        target = self._target
        shown = f"{key.get_name()} {fingerprint(key.asbytes())}"
        if key.asbytes() in self._revoked:
            what = f"the host shows {shown}, which is marked as revoked."
            raise HostKeyChanged(target.name, what, "Give the host a new key.")
        if self._remembered_in is not None:
            file = target.known_hosts_files[0]
            # where another connection of this run came first, it decides
            expected = self._remembered_in.remember(file, target.host_key_name, key)
            if key not in expected:
                raise paramiko.BadHostKeyException(hostname, key, expected[0])
            return
        what = f"the host key of {target.host} is not known; the host shows {shown}."
        line = f"{key.get_name()} {key.get_base64()}"
        write = f"write moe.host_key: {line} to the inventory"
        if target.told_by != "inventory":
            its = next(iter(map(str, target.known_hosts_files)), USER_KNOWN_HOSTS[0])
            write = f"add the line {target.host_key_name} {line} to {its}"
        fix = f"{COMPARE[0].upper()}{COMPARE[1:]}, then {write}, or give --accept-new."
        raise HostKeyUnknown(target.name, what, fix)


def _is_busy(error: Exception) -> bool:
    """Whether sshd hung up before its greeting or in the key exchange, as MaxStartups makes it."""
    if isinstance(error, (paramiko.BadHostKeyException, paramiko.AuthenticationException)):
        return False
    text = str(error).lower()
    return isinstance(error, (EOFError, ConnectionResetError, BrokenPipeError)) or (
        "banner" in text or "connection reset" in text or "connection dropped" in text
    )


def _silent(target: SshTarget) -> Unreachable:
    """A host that accepts connections in its kernel while nothing runs behind."""
    place = f"{target.host} port {target.port}"
    what = (
        f"{place} accepts connections but gave no SSH greeting in {target.greeting_timeout_s:g} s."
    )
    return Unreachable(target.name, what, "The host is frozen or overloaded: look at its console.")


def _translated(target: SshTarget, error: Exception) -> Exception:
    """Our error for paramiko's."""
    place = f"{target.host} port {target.port}"
    if isinstance(error, paramiko.BadHostKeyException):
        shown, known = fingerprint(error.key.asbytes()), fingerprint(error.expected_key.asbytes())
        what = (
            f"the host key has changed: {target.host} shows {error.key.get_name()} {shown}, "
            f"known is {error.expected_key.get_name()} {known}."
        )
        if target.host_key is not None:
            fix = (
                "If the host was installed anew, correct moe.host_key; else somebody is in between."
            )
        else:
            forget = way_to_forget(target.host_key_name, target.known_hosts_files)
            fix = f"If the host was installed anew, {COMPARE}, then {forget}."
        return HostKeyChanged(target.name, what, fix)
    if (
        isinstance(error, paramiko.AuthenticationException)
        or "authentication" in str(error).lower()
    ):
        offered = ", ".join(map(str, target.identity_files)) or "the agent's and the default keys"
        what = f"{place} refuses the login {target.user} with {offered}."
        check = CORRECTIONS[target.told_by]
        fix = f"Check {check.user} and {check.private_key}, and authorized_keys on the host."
        return LoginRefused(target.name, what, fix)
    if _is_busy(error):
        what = f"{place} gave no SSH greeting in {MAX_ATTEMPTS} attempts: {error or 'it hung up'}."
        fix = "Look at sshd there (MaxStartups, load); nothing was done."
        return Unreachable(target.name, what, fix)
    what = f"no SSH connection to {place}: {error or type(error).__name__}."
    return Unreachable(target.name, what, f"Try ssh -v -p {target.port} {target.host}.")
