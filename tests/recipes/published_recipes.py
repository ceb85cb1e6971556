"""Published multi-node deployments as data (`tests/recipes/published/`), written out in the format that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from infra.plan.foreign.assumed import Told
from infra.spec.plain_yaml import read_yaml

FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRecipe:
    """One deployment.

    Args:
        path: of its file in the repository; behind a `#` a part of it.
        commit: 40 hexadecimal digits.
        told: what the repository says and the file does not.
        told_why: from where, "" where nothing is told.
        branch: the tag or branch of the release for which it was published, where that says which; "" elsewhere.
        refused: the rules that refuse it rightly, where its author mended it later.
        mended: what was mended, "" where nothing was.
        text: its facts as a file of its format.
        file_name: what that file is called: names of files tell accelerators.
    """

    repository: str
    commit: str
    path: str
    told: Told
    told_why: str
    branch: str
    refused: tuple[str, ...]
    mended: str
    text: str
    file_name: str

    @property
    def source(self) -> str:
        """Repository, path and commit in one word."""
        return f"{self.repository}:{self.path}@{self.commit[:7]}"


@cache
def published_recipes() -> tuple[PublishedRecipe, ...]:
    """Every one, by repository and path."""
    return tuple(
        recipe
        for file in sorted(FOLDER.glob("*.yaml"))
        if file.name != "warnings.yaml"
        for recipe in _recipes(read_yaml(file))
    )


def recipes_not_read() -> Mapping[str, str]:
    """Path → text of the published recipes of engines that are not read here."""
    return {
        row["path"]: _text(row)
        for file in sorted(FOLDER.glob("*.yaml"))
        if file.name != "warnings.yaml"
        for row in read_yaml(file).get("not_read", ())
    }


class AcceptedWarning(BaseModel):
    """A warning on published deployments that was looked at.

    Args:
        rule: that warns.
        repository: of the deployments.
        paths: patterns of their paths; all of the repository where there is none.
        says: pattern that the whole finding fits: of another variable, key or port the same rule is news.
        why: it is meant, and the deployment runs all the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: str
    repository: str
    paths: tuple[str, ...] = ("*",)
    says: str
    why: Annotated[str, Field(min_length=30)]

    def covers(self, recipe: PublishedRecipe, warning: str) -> bool:
        """Whether it is about a warning (`rule: what`) on a deployment."""
        rule, _, what = warning.partition(": ")
        return (
            (rule, recipe.repository) == (self.rule, self.repository)
            and any(fnmatchcase(recipe.path, pattern) for pattern in self.paths)
            and re.fullmatch(self.says, what) is not None
        )


@cache
def accepted_warnings() -> tuple[AcceptedWarning, ...]:
    """Every warning that was looked at."""
    rows = read_yaml(FOLDER / "warnings.yaml")
    return tuple(AcceptedWarning.model_validate(row) for row in rows)


def _recipes(document: Mapping[str, Any]) -> Iterator[PublishedRecipe]:
    for row in document["recipes"]:
        stem, suffix = _file_name(row["path"])
        yield PublishedRecipe(
            repository=document["repository"],
            commit=row.get("commit", document["commit"]),
            path=row["path"],
            told=Told(engine=row.get("engine", document.get("engine"))),
            told_why=document.get("named_by", ""),
            branch=row.get("branch", ""),
            refused=tuple(row.get("refused", ())),
            mended=row.get("mended", ""),
            text=_text(row),
            file_name=f"{stem}{'.sh' if 'commands' in row else suffix}",
        )


def _file_name(path: str) -> tuple[str, str]:
    file = Path(path.partition("#")[0].replace("{", "").replace("}", "").replace(",", "-"))
    return file.stem, file.suffix


def _text(row: Mapping[str, Any]) -> str:
    """Commands as a script, one after the other; facts as YAML, which JSON is."""
    if "commands" in row:
        return "\n".join(row["commands"]) + "\n"
    facts = row["facts"]
    documents = facts if isinstance(facts, list) else [facts]
    return "\n---\n".join(json.dumps(document, indent=1) for document in documents) + "\n"
