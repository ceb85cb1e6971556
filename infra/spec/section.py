"""What every map of a stack file has in common, and references to secrets."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictStr
from pydantic_core import PydanticCustomError

# The character before NAME keeps a value such as sk-123 from being taken for a reference.
EnvironmentName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# How issuers begin their tokens, where a variable's name could begin so, too (their documentation; GitHub, "Supported
# secret scanning patterns"; checked 2026-11-26).
_ISSUED = re.compile(
    r"(?:hf|api_org|gh[oprsu]|github_pat|glpat|nvapi|sk|pk|rk|npm|pypi|xox[a-z]|dop_v1|gsk|r8|ms|whsec|lin_api|ya29)"
    r"[_-](?P<rest>[A-Za-z0-9_-]+)"
)
_FIXED = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}|eyJ[A-Za-z0-9_-]{16,}[A-Za-z0-9_.-]*"
)
_SHORTEST, _SURE = 8, 20


def looks_like_secret(text: str) -> bool:
    """Whether a text that should name a variable or a file has the shape of a secret itself."""
    if _FIXED.fullmatch(text):
        return True
    issued = _ISSUED.fullmatch(text)
    if issued is not None:
        rest = issued["rest"]
        words = re.fullmatch(r"[a-z]+(?:[_-][a-z0-9]+)*|[A-Z0-9]+(?:_[A-Z0-9]+)+", rest)
        return len(rest) >= _SHORTEST and (
            words is None or max(map(len, re.split("[_-]", rest))) >= _SURE
        )
    has_all = all(re.search(each, text) for each in ("[a-z]", "[A-Z]", "[0-9]"))
    is_hexadecimal = re.fullmatch(r"[0-9a-f]{32,}|[0-9A-F]{32,}", text) is not None
    return is_hexadecimal or (has_all and re.fullmatch(r"[A-Za-z0-9]{20,}", text) is not None)


def _no_secret(text: str) -> str:
    if looks_like_secret(text):
        raise PydanticCustomError("secret_itself", "a secret stands where its place belongs")
    return text


class Section(BaseModel):
    """A map in the stack file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SecretFromEnvironment(Section):
    """A secret read from the operator's environment."""

    env: Annotated[EnvironmentName, AfterValidator(_no_secret)] = Field(
        description="The variable's name, never its value."
    )


class SecretFromFile(Section):
    """A secret read from a file of the operator's machine."""

    file: Annotated[StrictStr, Field(min_length=1), AfterValidator(_no_secret)] = Field(
        description="The file's path, beside the file that says it; of --set beside the working directory."
    )


SecretReference = SecretFromEnvironment | SecretFromFile


class Secrets(Section):
    """References to the stack's secrets, never values. The set is closed: some program takes each of them."""

    hf_token: SecretReference | None = Field(
        default=None, description="Token of the Hugging Face hub, for staging and engines."
    )
    modelscope_token: SecretReference | None = Field(
        default=None, description="Token of the ModelScope hub, for staging."
    )
    api_key: SecretReference | None = Field(
        default=None,
        description="Key that vLLM asks for on some paths, and that routers send to it; clients need `edge`.",
    )
    edge_keys: SecretReference | None = Field(
        default=None, description="Keys that the edge asks clients for, one `NAME KEY` a line."
    )

    def items(self) -> tuple[tuple[str, SecretReference], ...]:
        """The secrets that are declared, by name."""
        found = ((name, getattr(self, name)) for name in sorted(type(self).model_fields))
        return tuple((name, reference) for name, reference in found if reference is not None)
