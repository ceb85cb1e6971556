"""Values of an Ansible inventory that are more than their text: encrypted ones, and templates."""

from __future__ import annotations

TEMPLATE_SIGNS = ("{{", "{%")


class Encrypted:
    """A value that only Ansible can read (`!vault`)."""

    def __init__(self, text: str) -> None:
        """Forget the text: nothing here can decrypt it."""
        del text

    def __repr__(self) -> str:
        """Never the text, not even encrypted."""
        return "***"


class Unsafe(str):
    """A text that Ansible takes as it is, template or not (`!unsafe`)."""

    __slots__ = ()


TAGS = {"!vault": Encrypted, "!vault-encrypted": Encrypted, "!unsafe": Unsafe}


def is_template(value: object) -> bool:
    """Whether Ansible fills something in."""
    if not isinstance(value, str) or isinstance(value, Unsafe):
        return False
    return any(sign in value for sign in TEMPLATE_SIGNS)
