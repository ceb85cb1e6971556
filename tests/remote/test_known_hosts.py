"""known_hosts lines as OpenSSH writes them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from infra.remote.known_hosts import (
    KnownHosts,
    fingerprint,
    known_name,
    parse_key_line,
    parse_known_hosts,
    read_known_hosts,
    way_to_forget,
)
from tests.needed import need_root

# ssh-keygen's own output for a throw-away key, and the line that `ssh-keygen -H` made of it.
BLOB = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
KEY = f"ssh-ed25519 {BLOB}"
# ssh-keygen -H's form for 192.0.2.7: HMAC-SHA1 of the name under the salt.
HASHED = "|1|qFzL842XjAPpK1HPtBommfsVcQk=|HAZGjPCwJsoI9rN8UACWUCHFzeg="


def found(text: str, name: str) -> int:
    return len(KnownHosts(parse_known_hosts(text)).find(name))


@pytest.mark.parametrize(
    ("names", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("host-0,192.0.2.7", "host-0"),
        ("HOST-0", "host-0"),
        ("[192.0.2.7]:2222", "[192.0.2.7]:2222"),
        ("192.0.2.*", "192.0.2.7"),
        ("[192.0.2.*]:2222", "[192.0.2.7]:2222"),
        (HASHED, "192.0.2.7"),
    ],
)
def test_a_line_covers_its_hosts(names: str, name: str) -> None:
    assert found(f"{names} {KEY}\n", name) == 1


@pytest.mark.parametrize(
    ("names", "name"),
    [
        ("192.0.2.7", "192.0.2.70"),
        ("192.0.2.7", "[192.0.2.7]:2222"),
        ("192.0.2.*,!192.0.2.7", "192.0.2.7"),
        (HASHED, "192.0.2.8"),
    ],
)
def test_a_line_covers_no_other_host(names: str, name: str) -> None:
    assert found(f"{names} {KEY}\n", name) == 0


def test_comments_authorities_and_garbage_are_skipped() -> None:
    text = (
        f"# host {KEY}\n\n@cert-authority * {KEY}\nhost ssh-ed25519 %%%\nhost\n\0\n|1|x|y {KEY}\n"
    )
    assert found(text, "host") == 0


def test_a_revoked_key_is_told_apart() -> None:
    keys = KnownHosts(parse_known_hosts(f"@revoked * {KEY}\nhost-0 {KEY}\n")).find("host-0")
    assert sorted(key.is_revoked for key in keys) == [False, True]


def test_a_file_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read_known_hosts(tmp_path / "none").find("host-0") == ()


def test_a_key_line_may_carry_a_comment() -> None:
    key = parse_key_line(f"{KEY} root@host-0")
    assert key is not None
    assert key.key_type == "ssh-ed25519"
    assert fingerprint(key.blob) == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 %%%"])
def test_a_line_that_is_no_key_is_none(line: str) -> None:
    assert parse_key_line(line) is None


def test_whoever_comes_second_is_told_the_key_of_the_first_contact(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    known = read_known_hosts(file)
    keys = [paramiko.ECDSAKey.generate() for _ in range(8)]
    with ThreadPoolExecutor(len(keys)) as pool:
        told = list(pool.map(lambda key: known.remember(file, "host-0", key), keys))
    first = told[0][0]
    assert told == [(first,)] * len(keys)
    assert file.read_text() == f"host-0 {first.get_name()} {first.get_base64()}\n"
    assert [key.blob for key in known.find("HOST-0")] == [first.asbytes()]


def test_a_host_with_nothing_but_a_revoked_key_may_show_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"@revoked host-0 {KEY}")
    known = read_known_hosts(file)
    new = paramiko.ECDSAKey.generate()
    assert known.remember(file, "host-0", new) == (new,)
    assert len(file.read_text().splitlines()) == 2


def test_the_usual_port_is_not_written() -> None:
    assert (known_name("h", 22), known_name("h", 2222)) == ("h", "[h]:2222")


@pytest.mark.parametrize("names", ["host-0", "HOST-0", "host-0,192.0.2.7", "other,host-0"])
def test_what_is_told_has_every_file_forget_the_host(tmp_path: Path, names: str) -> None:
    files = [tmp_path / "known hosts", tmp_path / "none", tmp_path / "more", tmp_path / "other"]
    files[0].write_text(f"{names} {KEY}\nhost-1 {KEY}\n")
    files[2].write_text(f"@revoked host-0 {KEY}\nhost-0 {KEY}\n")
    files[3].write_text(f"host-1 {KEY}\n")
    found = re.fullmatch("`(.*)`", way_to_forget("host-0", files))
    assert found is not None
    assert found[1].count("ssh-keygen") == 2
    subprocess.run(["sh", "-c", found[1]], check=True)
    left = [path.read_text() if path.exists() else "" for path in files]
    assert left == [f"host-1 {KEY}\n", "", f"@revoked host-0 {KEY}\n", f"host-1 {KEY}\n"]
    assert way_to_forget("host-0", files) == "try again"


@pytest.mark.parametrize("pattern", ["*.example.com", "h?.example.com", "*.example.com,!h9.*"])
def test_a_line_about_other_hosts_too_is_left_to_the_operator(tmp_path: Path, pattern: str) -> None:
    """`ssh-keygen -R` takes the whole line, and with it the key of every other host."""
    files = [tmp_path / "own", tmp_path / "all"]
    files[0].write_text(f"h1.example.com {KEY}\n")
    files[1].write_text(f"# ours\nh2 {KEY}\n{pattern} {KEY}\nh1.example.com {KEY}\n")
    told = way_to_forget("h1.example.com", files)
    assert told == (
        f"`ssh-keygen -R 'h1.example.com' -f {files[0]}`, then correct line 3 and line 4 of {files[1]} by hand: "
        f"{pattern} is about other hosts, too"
    )
    words = ["ssh-keygen", "-R", "h1.example.com", "-f", str(files[1])]
    subprocess.run(words, check=True, capture_output=True)
    assert read_known_hosts(files[1]).find("h2.example.com") == ()


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """A folder of root's, while this process is somebody else."""
    need_root("Only root is somebody else for a while.")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "ssh_known_hosts").write_text(f"host-0 {KEY}\n")
        (Path(folder) / "ssh_known_hosts").chmod(0o666)
        os.setresuid(65534, 65534, 0)
        try:
            yield Path(folder)
        finally:
            os.setresuid(0, 0, 0)


def test_a_folder_that_its_user_cannot_write_takes_root(unwritable: Path) -> None:
    file = unwritable / "ssh_known_hosts"
    told = way_to_forget("host-0", [file]).strip("`")
    assert told == f"sudo ssh-keygen -R 'host-0' -f {file}"
    words = told.removeprefix("sudo ")
    assert subprocess.run(["sh", "-c", words], check=False, capture_output=True).returncode
    assert file.read_text() == f"host-0 {KEY}\n"
    os.setresuid(0, 0, 0)
    subprocess.run(["sh", "-c", words], check=True, capture_output=True)
    assert file.read_text() == ""
