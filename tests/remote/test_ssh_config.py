"""Looking hosts up in an ssh_config: what paramiko finds in all of it is found in the sections that concern them."""

from __future__ import annotations

import fnmatch

import paramiko
import pytest

from infra.remote.ssh_config import SshConfigFile

CONFIG = """\
User early
# host commented
Host one one-alias 192.0.2.1
  HostName 192.0.2.1
  IdentityFile ~/one

Host=two
  HostName 192.0.2.2
  User late

HOST web-* !web-3 "db 1"
  Port 2222

Host fe80::1 [192.0.2.9]:22
  Port 3333

Match host 192.0.2.2
  ProxyJump gate

Host *
  IdentityFile ~/all
  Port 22
"""
NAMES = (
    "one",
    "one-alias",
    "192.0.2.1",
    "two",
    "ONE",
    "web-1",
    "web-3",
    "db 1",
    "fe80::1",
    "other",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_host_gets_what_paramiko_finds_in_the_whole_file(name: str) -> None:
    whole = paramiko.SSHConfig.from_text(CONFIG).lookup(name)
    assert dict(SshConfigFile(CONFIG).lookup(name)) == dict(whole)


def test_a_host_that_is_renamed_on_the_way_finds_its_new_names_section() -> None:
    text = (
        "CanonicalizeHostname yes\nCanonicalDomains invalid\nCanonicalizeFallbackLocal yes\n"
        "Host short\n  Port 2222\nHost short.invalid\n  User renamed\n"
    )
    whole = paramiko.SSHConfig.from_text(text).lookup("short")
    assert dict(SshConfigFile(text).lookup("short")) == dict(whole)


def test_a_mistake_shows_in_a_section_of_another_host() -> None:
    with pytest.raises(paramiko.ConfigParseError, match="nonsense"):
        SshConfigFile("Host one\n  Port 22\nHost two\n  nonsense\n")


def test_sections_of_other_hosts_are_not_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SshConfigFile("".join(f"Host host-{i}\n  Port {2000 + i}\n" for i in range(500)))
    patterns: list[str] = []

    def counting(name: str, pattern: str) -> bool:
        patterns.append(pattern)
        return fnmatch.fnmatchcase(name, pattern)

    monkeypatch.setattr(fnmatch, "fnmatch", counting)
    assert config.lookup("host-7")["port"] == "2007"
    assert set(patterns) == {"*", "host-7"}
