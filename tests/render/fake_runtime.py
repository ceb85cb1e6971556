"""Stand-ins on PATH for launch scripts: a container runtime that runs what it is asked for, and programs that say
what they got."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Both write and read Python's own literals: loading `json` takes longer than all else that they do.
_RUNTIME = f"""#!{sys.executable} -IS
import os, sys
words, options, variables, mounts = sys.argv[1:], [], {{}}, {{}}
log = open(os.environ["RUNTIME_LOG"], "a")
log.write(ascii(words) + "\\n"), log.close()
if words[0] == "info":
    print(os.environ["CGROUP_DRIVER"])
if words[0] != "run":
    sys.exit(0)
words, entrypoint = words[1:], eval(os.environ["IMAGE_ENTRYPOINT"])
while words[0].startswith("-"):
    name, equals, value = words.pop(0).partition("=")
    if not equals and name not in ("--rm",):
        value = words.pop(0)
    if name == "--entrypoint":
        entrypoint = [value]
    if name == "--mount":
        fields = dict(field.partition("=")[::2] for field in value.split(","))
        mounts[fields["target"]] = fields["source"]
    if name == "--env":
        key, has_value, given = value.partition("=")
        variables[key] = given if has_value else os.environ[key]
    if name == "--env-file":
        for line in open(os.environ["ROOT"] + value, newline="\\n"):
            if line.strip() and not line.startswith("#"):
                key, _, given = line.rstrip("\\n").partition("=")
                variables[key] = given
image, command = words[0], entrypoint + words[1:]
for target, source in mounts.items():
    # nothing is mounted here: what a shell of the container reads, it reads where it lies
    if command[1:2] == ["-c"]:
        command[2] = command[2].replace(target, source)
inside = dict(eval(os.environ["IMAGE_ENVIRONMENT"]), **variables)
inside["PATH"] = os.environ["PATH"]
inside["SAID"] = os.environ["SAID"]
os.execvpe(command[0], command, inside)
"""

_PROGRAM = f"""#!{sys.executable} -IS
import os, sys
seen = {{"argv": [os.path.basename(sys.argv[0])] + sys.argv[1:], "env": dict(os.environ)}}
with open(os.environ["SAID"], "w") as stream:
    stream.write(ascii(seen))
"""


@dataclass(frozen=True, slots=True)
class Said:
    """What the program inside was started with."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class FakeRuntime:
    """A folder with stand-ins, put first on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.cgroup_driver = "cgroupfs"
        self.bin.mkdir(parents=True)
        for name in ("docker", "podman"):
            self._write(name, _RUNTIME)

    def add_program(self, name: str, where: Path | None = None) -> None:
        """A program that writes down what it got."""
        self._write(name, _PROGRAM, where)

    def run(
        self,
        script: str,
        *,
        environment_file: tuple[str, str] = ("", ""),
        entrypoint: tuple[str, ...] = (),
        image_env: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Said:
        """Run a launch script with sh; `environment_file` is its path on the host and its text."""
        launch, said = self.folder / "launch", self.folder / "said.json"
        launch.write_text(script, encoding="utf-8")
        said.unlink(missing_ok=True)
        path, text = environment_file
        if path:
            place = Path(str(self.folder) + path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        surroundings = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "ROOT": str(self.folder),
            "SAID": str(said),
            "CGROUP_DRIVER": self.cgroup_driver,
            "RUNTIME_LOG": str(self.folder / "runtime.log"),
            "IMAGE_ENTRYPOINT": ascii(list(entrypoint)),
            "IMAGE_ENVIRONMENT": ascii(dict(image_env or {})),
            **(env or {}),
        }
        subprocess.run(["/bin/sh", str(launch)], env=surroundings, check=True, timeout=20)
        seen = ast.literal_eval(said.read_text(encoding="utf-8"))
        return Said(tuple(seen["argv"]), seen["env"])

    def fail(self, script: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit code and words of a launch script that does not get far."""
        launch = self.folder / "launch"
        launch.write_text(script, encoding="utf-8")
        surroundings = {"PATH": f"{self.bin}:{os.environ['PATH']}", **(env or {})}
        done = subprocess.run(
            ["/bin/sh", str(launch)],
            env=surroundings,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        return done.returncode, done.stderr

    def calls(self) -> list[list[str]]:
        """Every call of the runtime so far."""
        lines = (self.folder / "runtime.log").read_text(encoding="utf-8").splitlines()
        return [ast.literal_eval(line) for line in lines]

    def _write(self, name: str, text: str, where: Path | None = None) -> None:
        path = (where or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
