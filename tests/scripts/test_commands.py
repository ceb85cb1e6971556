"""The README's commands on a scratch copy of scripts/, with stand-ins for what they start."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ("rehearse", "test", "setup", "init-stack", "test-fresh-machine")
# what pytest is told to choose
ORDINARY, SLOW = "not slow and not kubernetes", "slow and not kubernetes"


class Copy:
    """A project of nothing but its scripts; programs that they start say what they were told."""

    def __init__(self, root: Path) -> None:
        """Scripts copied, programs replaced."""
        self.root = root
        for name in COMMANDS:
            self.program(f"scripts/{name}", (ROOT / "scripts" / name).read_text())
        self.program("scripts/install-pulumi", f'#!/bin/bash\necho "{root}/pulumi-bin"\n')

    def program(self, path: str, text: str) -> None:
        """Write an executable file."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755)

    def without_setup(self) -> None:
        """As on a machine that is set up already."""
        self.program("scripts/setup", "#!/bin/bash\n")

    def run(self, script: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a script, with no terminal."""
        result = subprocess.run(
            [str(self.root / "scripts" / script), *arguments],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.root)} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return result.returncode, result.stdout, result.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "rehearse --stack gb200-2p1d"),
        (("a3-2p1d",), "rehearse --stack a3-2p1d"),
        (("a3-2p1d", "--json"), "rehearse --stack a3-2p1d --json"),
        (("--keep",), "rehearse --stack gb200-2p1d --keep"),
    ],
)
def test_rehearse_takes_a_stack_and_passes_the_rest_on(
    copy: Copy, given: tuple[str, ...], told: str
) -> None:
    copy.without_setup()
    copy.program(".venv/bin/fab", '#!/bin/bash\necho "$@"\n')
    assert copy.run("rehearse", *given) == (0, f"{told}\n", "")


def test_rehearse_leaves_with_the_code_of_fab_and_finds_pulumi_on_path(copy: Copy) -> None:
    copy.without_setup()
    copy.program(".venv/bin/fab", '#!/bin/bash\necho "$PATH"\nexit 5\n')
    code, out, _ = copy.run("rehearse")
    assert code == 5
    assert f"{copy.root}/pulumi-bin" in out.strip().split(":")


def test_rehearse_stops_where_the_set_up_failed(copy: Copy) -> None:
    copy.program("scripts/setup", "#!/bin/bash\necho 'setup: no' >&2; exit 3\n")
    assert copy.run("rehearse") == (3, "", "setup: no\n")


@pytest.mark.parametrize(
    ("given", "environment", "runs"),
    [
        ((), {}, [ORDINARY]),
        (("--all",), {}, [ORDINARY, SLOW]),
        ((), {"CI": "true"}, [ORDINARY, SLOW]),
    ],
)
def test_the_slow_tests_are_run_on_request(
    copy: Copy, given: tuple[str, ...], environment: dict[str, str], runs: list[str]
) -> None:
    copy.without_setup()
    copy.program(".venv/bin/pytest", '#!/bin/bash\necho "$4"\n')
    code, out, _ = copy.run("test", *given, **environment)
    assert (code, out.splitlines()) == (0, runs)


def test_a_failure_among_the_ordinary_tests_is_not_forgotten_when_the_slow_ones_pass(
    copy: Copy,
) -> None:
    copy.without_setup()
    copy.program(".venv/bin/pytest", f'#!/bin/bash\n[[ "$4" == "{SLOW}" ]]\n')
    assert copy.run("test", "--all")[0] == 1


def test_setup_refuses_an_unknown_option(copy: Copy) -> None:
    code, _, err = copy.run("setup", "--no-sytem")
    assert code == 2
    assert "--no-sytem; known are --no-system and --no-pulumi" in err


def test_setup_without_a_python_says_what_to_install(copy: Copy) -> None:
    for name in ("requirements.lock", "pyproject.toml"):
        (copy.root / name).touch()
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        copy.program(f"old/{name}", "#!/bin/bash\nexit 1\n")
    code, _, err = copy.run(
        "setup", "--no-system", "--no-pulumi", PATH=f"{copy.root}/old:/usr/bin:/bin"
    )
    assert code == 3
    assert "no Python >= 3.11 on PATH. Fix: install python3.11 or newer" in err


def test_setup_without_root_says_which_packages_it_skips(copy: Copy) -> None:
    for name in ("requirements.lock", "pyproject.toml"):
        (copy.root / name).touch()
    for name in ("apt-get", "dpkg-query", "sudo", "python3", "python3.11", "python3.12"):
        copy.program(f"stand-ins/{name}", "#!/bin/bash\nexit 1\n")
    copy.program("stand-ins/id", "#!/bin/bash\necho 1000\n")
    _, _, err = copy.run(
        "setup", "--no-pulumi", PATH=f"{copy.root}/stand-ins:/usr/sbin:/usr/bin:/bin"
    )
    assert "skipped: system packages, which need root: apt-get install openssh-server" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "which stack?"),
        (("h200",), 2, "take one of: a3-2p1d"),
        (("a3-2p1d", "--wrong"), 2, "unknown arguments --wrong"),
        (("a3-2p1d",), 3, "Type: export PULUMI_CONFIG_PASSPHRASE_FILE=FILE"),
    ],
)
def test_init_stack_says_what_to_type(
    copy: Copy, arguments: tuple[str, ...], code: int, message: str
) -> None:
    copy.without_setup()
    (copy.root / "stacks").mkdir()
    (copy.root / "stacks" / "a3-2p1d.yaml").touch()
    (copy.root / "stacks" / "Pulumi.a3-2p1d.yaml").touch()
    found = copy.run("init-stack", *arguments)
    assert found[0] == code
    assert message in found[2]


def test_init_stack_creates_a_stack_once(copy: Copy) -> None:
    copy.without_setup()
    (copy.root / "stacks").mkdir()
    (copy.root / "stacks" / "a3-2p1d.yaml").touch()
    copy.program(
        "pulumi-bin/pulumi",
        """#!/bin/bash
case "$*" in
  "stack ls --json") cat made 2> /dev/null || echo '[]' ;;
  "stack init a3-2p1d --secrets-provider passphrase --no-select") echo '[{"name": "a3-2p1d"}]' > made ;;
  *) exit 9 ;;
esac
""",
    )
    first = copy.run("init-stack", "a3-2p1d", PULUMI_CONFIG_PASSPHRASE="")
    second = copy.run("init-stack", "a3-2p1d", PULUMI_CONFIG_PASSPHRASE="")
    assert (first[0], second[0]) == (0, 0)
    assert "is there already" not in first[2]
    assert "is there already" in second[2]


def test_the_fresh_machine_names_its_options(copy: Copy) -> None:
    code, _, err = copy.run("test-fresh-machine", "--only", "lint")
    assert code == 2
    assert "--only rehearse|test" in err
