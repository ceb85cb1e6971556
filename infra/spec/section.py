"""What every map of a stack file has in common, and references to secrets."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictStr

# The character before NAME keeps a value such as sk-123 from being taken for a reference.
EnvironmentName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Section(BaseModel):
    """A map in the stack file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SecretFromEnvironment(Section):
    """A secret read from the operator's environment."""

    env: EnvironmentName = Field(description="The variable's name, never its value.")


class SecretFromFile(Section):
    """A secret read from a file of the operator's machine."""

    file: Annotated[StrictStr, Field(min_length=1)] = Field(
        description="The file's path, beside the file that says it; of --set beside the working directory."
    )


SecretReference = SecretFromEnvironment | SecretFromFile


class Secrets(Section):
    """References to the stack's secrets, never values. The set is closed: some program takes each of them."""

    hf_token: SecretReference | None = Field(
        default=None, description="Token of the Hugging Face hub, for staging and engines."
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
