"""scripts/install-kubernetes-testbed with a Go that builds nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.errors import PrerequisiteError
from infra.rehearsal.cluster.programs import INSTALLER, PARTS, PINS, installed_programs

SCRIPT = Path(__file__).parents[2] / INSTALLER
TOOLS = (
    "awk bash basename cat chmod cksum cut df dirname env flock grep head install ls mkdir mktemp mv "
    "nice rm sed sort tail touch uname"
)
# Builds by writing empty programs; a module's folder is $GOMODCACHE/<its path>.
GO = """
echo "$*" >> "$LOG"
if [[ "$1" == env ]]; then echo go1.99.0; exit; fi
if [[ "$1" == -C ]]; then shift 2; fi
case "$1" in
  list) module="$GOMODCACHE/${!#}"
        mkdir -p "$module/config/crd/bases" "$module/config/webhook" "$module/cmd/pulumi-resource-kubernetes"
        touch "$module/config/crd/bases/sets.yaml" "$module/config/webhook/manifests.yaml"
        touch "$module/cmd/pulumi-resource-kubernetes/"{schema,terraform-mapping}.json
        echo "$module" ;;
  build)
        while [[ "$1" != -o ]]; do shift; done
        out="$2"; shift 2
        if [[ "$*" == *"$BROKEN"* ]]; then echo "verifying module: checksum mismatch"; exit 1; fi
        if [[ "$out" == */ ]]; then for each; do touch "$out${each##*/}"; chmod +x "$out${each##*/}"; done
        else touch "$out"; chmod +x "$out"; fi ;;
esac"""


class Machine:
    """A PATH with the ordinary tools and that Go."""

    def __init__(self, root: Path) -> None:
        """An empty cache."""
        self.bin, self.cache, self.log = root / "bin", root / "cache", root / "log"
        self.bin.mkdir()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)

    def program(self, name: str, body: str) -> None:
        """Put a shell script on PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def install(self, *options: str, broken: str = "nothing") -> subprocess.CompletedProcess[str]:
        """Run the script; `broken` is a word of what cannot be built."""
        environment = {
            "PATH": str(self.bin),
            "MOE_INFRA_CACHE": str(self.cache),
            "BROKEN": broken,
            "LOG": str(self.log),
        }
        return subprocess.run(
            [str(self.bin / "bash"), str(SCRIPT), *options],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def built(self) -> list[str]:
        """The commands that Go was given to build, and forgets them."""
        text = self.log.read_text() if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return [line for line in text.splitlines() if " build " in line]

    @property
    def environment(self) -> dict[str, str]:
        """Where the cache is."""
        return {"MOE_INFRA_CACHE": str(self.cache)}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.program("go", GO)
    return made


def test_it_says_what_it_builds_and_how_long_and_the_rehearsal_finds_it(machine: Machine) -> None:
    done = machine.install()
    folder = machine.cache / "kubernetes-testbed-1.35.0"
    assert (done.returncode, done.stdout) == (0, f"{folder}\n"), done.stderr
    assert "kubectl: about 6 minutes on 2 cores, once" in done.stderr
    found = installed_programs(machine.environment)
    assert found.bin == folder / "bin"
    assert {"etcd", "kube-apiserver", "kubectl", "pulumi-resource-kubernetes"} < {
        path.name for path in found.bin.iterdir()
    }
    assert (found.manifests / "webhooks.yaml").is_file()
    assert {path.name for path in machine.cache.iterdir()} == {
        "kubernetes-testbed-1.35.0",
        "kubernetes-testbed.lock",
    }


def test_what_is_built_is_taken_without_a_word(machine: Machine) -> None:
    machine.install()
    machine.built()
    done = machine.install()
    assert (done.returncode, done.stderr, machine.built()) == (0, "", [])


def test_a_build_that_failed_says_why_and_the_next_one_goes_on_there(machine: Machine) -> None:
    done = machine.install(broken="lws")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "verifying module: checksum mismatch" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("and start again: what is done is kept.")
    with pytest.raises(PrerequisiteError, match=r"not all there \(sets\)"):
        installed_programs(machine.environment)
    machine.built()
    assert machine.install().returncode == 0
    assert not [line for line in machine.built() if "k8s.io/kubernetes" in line]


def test_other_pins_are_another_build(machine: Machine, tmp_path: Path) -> None:
    machine.install()
    pins = tmp_path / "pins"
    shutil.copytree(PINS, pins)
    with (pins / "sets" / "go.sum").open("a") as stream:
        stream.write("\n")
    with pytest.raises(PrerequisiteError, match="sets was built from other modules"):
        installed_programs(machine.environment, pins)
    (machine.cache / "kubernetes-testbed-1.35.0" / "sets.stamp").write_text("1 2\n")
    machine.built()
    machine.install()
    (line,) = machine.built()
    assert "lws" in line


def test_a_program_that_is_gone_is_built_again(machine: Machine) -> None:
    machine.install()
    (machine.cache / "kubernetes-testbed-1.35.0" / "bin" / "etcd").unlink()
    machine.built()
    machine.install()
    assert any("etcd" in line for line in machine.built())


def test_it_is_removed_on_request(machine: Machine) -> None:
    machine.install()
    assert machine.install("--remove").returncode == 0
    assert not (machine.cache / "kubernetes-testbed-1.35.0").exists()
    assert machine.install("--no-such").returncode == 2


def test_without_go_it_says_what_to_install(machine: Machine) -> None:
    (machine.bin / "go").unlink()
    done = machine.install()
    assert done.returncode == 3
    assert "there is no Go to build with. Fix: install go >= 1.25.0" in done.stderr


@pytest.mark.parametrize("part", PARTS)
def test_every_module_is_pinned_with_checksums(part: str) -> None:
    text = (PINS / part / "go.mod").read_text()
    # what is replaced has its version in the directive
    replaced = {line.split()[0]: line.split()[-1] for line in text.splitlines() if "=>" in line}
    required = [
        line.replace("require", "").split()[:2]
        for line in text.splitlines()
        if "=>" not in line and " v" in line and not line.startswith("//")
    ]
    pinned = [(name, replaced.get(name, version)) for name, version in required]
    sums = (PINS / part / "go.sum").read_text()
    assert pinned
    assert [pin for pin in pinned if "{} {}/go.mod h1:".format(*pin) not in sums] == []
