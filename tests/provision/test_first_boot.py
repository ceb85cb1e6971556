from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from infra.provision.first_boot import instance_store_script, lustre_script, user_data

SCRIPTS = {
    "instance store": instance_store_script("/models"),
    "lustre": lustre_script("/srv/my models", "fs-1.fsx.us-east-2.amazonaws.com", "abcd1234"),
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_shellcheck_has_nothing_to_say(script: str, tmp_path: Path) -> None:
    file = tmp_path / "first-boot.sh"
    file.write_text(script)
    done = subprocess.run(
        [f"{sys.prefix}/bin/shellcheck", str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_path_is_quoted_once() -> None:
    assert "weights='/srv/my models'\n" in SCRIPTS["lustre"]
    assert (
        "fs-1.fsx.us-east-2.amazonaws.com@tcp:/abcd1234/weights $weights lustre"
        in SCRIPTS["lustre"]
    )


def test_user_data_is_base64_of_the_script() -> None:
    assert base64.b64decode(user_data("#!/bin/sh\n")) == b"#!/bin/sh\n"
