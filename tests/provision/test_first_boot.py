from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from infra.provision.first_boot import (
    instance_store_script,
    lustre_source,
    mount_script,
    user_data,
)

SCRIPTS = {
    "instance store": instance_store_script("/models"),
    "lustre": mount_script("/srv/models", lustre_source("fs-1.fsx.amazonaws.com", "abcd1234")),
    "nfs": mount_script("/srv/models", "nfs.example.com:/export"),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_shellcheck_has_nothing_to_say(script: str, tmp_path: Path) -> None:
    file = tmp_path / "first-boot.sh"
    file.write_text(script)
    done = subprocess.run(
        [f"{sys.prefix}/bin/shellcheck", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("lustre", "fs-1.fsx.amazonaws.com@tcp:/abcd1234/weights /srv/models lustre defaults,"),
        ("nfs", "nfs.example.com:/export /srv/models nfs4 nfsvers=4.1,"),
    ],
)
def test_a_mount_is_one_line_of_fstab_that_no_boot_waits_for(name: str, line: str) -> None:
    (written,) = [each for each in SCRIPTS[name].splitlines() if "/etc/fstab" in each]
    assert line in written
    assert ",nofail 0 0" in written


def test_user_data_is_base64_of_the_script() -> None:
    assert base64.b64decode(user_data("#!/bin/sh\n")) == b"#!/bin/sh\n"
