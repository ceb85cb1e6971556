"""requirements.lock: pinned, hashed, and good behind any mirror."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def name_of(requirement: str) -> str:
    """The normalised name at the start of a requirement."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def locked() -> dict[str, str]:
    """Each pinned requirement and its block of hashes."""
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK)
    return {block.split("\n", 1)[0].rstrip(" \\"): block for block in blocks}


def test_everything_is_pinned_and_hashed() -> None:
    for requirement, block in locked().items():
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .*)?", requirement), requirement
        assert "--hash=sha256:" in block, requirement


def test_no_address_stands_in_it() -> None:
    assert "://" not in LOCK
    assert "--index-url" not in LOCK
    assert "--find-links" not in LOCK


def test_every_direct_dependency_is_in_it() -> None:
    groups = PROJECT["dependency-groups"].values()
    wanted = [item for group in groups for item in group if isinstance(item, str)]
    names = {name_of(requirement) for requirement in locked()}
    assert {name_of(item) for item in wanted + PROJECT["project"]["dependencies"]} <= names


def test_the_sdk_is_the_release_of_the_command_line() -> None:
    script = (ROOT / "scripts" / "install-pulumi").read_text(encoding="utf-8")
    version = re.search(r"^readonly version=(\S+)", script, re.MULTILINE)
    assert version
    assert f"pulumi=={version.group(1)}" in locked()
    modules = (ROOT / "scripts" / "pulumi" / "cli" / "go.mod").read_text(encoding="utf-8")
    assert f"github.com/pulumi/pulumi/pkg/v3 v{version.group(1)}\n" in modules
