"""Chores: `nox -s lint types tests minimums`, and `nox -s lock` after a change of dependencies.

Deployments are `fab`'s business. All sessions but `minimums` use the environment that nox runs in,
made by scripts/setup from requirements.lock: nothing is installed twice, nothing unpinned is used.
"""

from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "none"

COOL_DOWN = "7 days"  # no younger release enters the lock: most bad ones are found out by then
COMPILE = ("uv", "pip", "compile", "pyproject.toml", "--quiet", "--no-header")
ORDINARY = "not slow and not kubernetes"
PURE = f"{ORDINARY} and not lab and not pulumi"


@nox.session
def lint(session: nox.Session) -> None:
    """Style, spelling, shell scripts, Ansible and the import rules."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("pyproject-fmt", "--check", "pyproject.toml")
    session.run("codespell")
    session.run("shellcheck", *shell_scripts(session))
    session.run("ansible-lint", "--offline", "ansible")
    session.run("lint-imports", "--no-cache")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy in its strict mode, over the project, its tests and its benchmarks, which nothing else runs."""
    session.run("mypy", "infra", "tests", "benchmarks", "noxfile.py")


@nox.session
def tests(session: nox.Session) -> None:
    """The ordinary tests; `scripts/test` also makes the environment they need."""
    session.run("pytest", "-n", "3", "-m", ORDINARY, "--dist", "worksteal", *session.posargs)


@nox.session(venv_backend="uv")
def minimums(session: nox.Session) -> None:
    """The pure tests with the oldest dependencies that pyproject.toml allows."""
    wanted = session.create_tmp() + "/minimums.txt"
    session.run(*COMPILE, "--group=test", "--resolution=lowest-direct", "-o", wanted, external=True)
    session.install("-r", wanted)
    session.install("--no-deps", "--editable", ".")
    session.run("pytest", "-m", PURE, *session.posargs)


@nox.session
def lock(session: nox.Session) -> None:
    """Write requirements.lock anew: versions and hashes, and no address of an index."""
    session.run(
        *COMPILE,
        "--group=dev",
        "--universal",
        "--python-version=3.11",
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-emit-find-links",
        f"--exclude-newer={COOL_DOWN}",
        "--output-file=requirements.lock",
        *session.posargs,  # for example --upgrade
    )


def shell_scripts(session: nox.Session) -> list[str]:
    """Every committed file whose first line names a shell, in the order of git."""
    grep = ("git", "grep", "-lIE", r"^#!.*\b(ba)?sh\b", "--", "scripts", ".ci", "infra")
    found = session.run(*grep, silent=True, external=True)
    return sorted(
        name for name in str(found).split() if Path(name).read_text("utf-8").startswith("#!")
    )
