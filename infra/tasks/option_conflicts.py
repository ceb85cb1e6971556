"""The options of one command line, judged together before its task runs."""

from __future__ import annotations

from collections.abc import Mapping

from infra.errors import StackError
from infra.tasks.options import Option, Options
from infra.tasks.table import Entry

_OF_A_REHEARSAL = ("plan", "set", "keep", "to-step", "break")
# Task → option → options that would be passed over beside it.
NOT_BESIDE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "check": {"plan": ("set", "inventory")},
    "render": {"plan": ("set", "inventory")},
    "rehearse": {
        "plan": ("set",),
        "list": ("stop", *_OF_A_REHEARSAL),
        "stop": _OF_A_REHEARSAL,
    },
}
# Task → options that say something of a stack, where the task takes none, too.
OF_A_STACK: Mapping[str, tuple[str, ...]] = {"engines": ("set", "inventory")}


def judge_options(entry: Entry, options: Options) -> None:
    """Refuse options that would be passed over in silence, and values outside of a closed set.

    Raises:
        StackError: one of them.
    """
    for option in entry.options:
        for value in _given(option, options) if option.choices else ():
            if value not in option.choices:
                fix = f"Use {', '.join(option.choices)}."
                raise StackError(f"--{option.name}", f"{value!r} is none of its values.", fix)
    for name, others in NOT_BESIDE.get(entry.name, {}).items():
        for other in others:
            if options.given.get(name) and options.given.get(other):
                what = f"--{other} is not read beside --{name}."
                raise StackError("command line", what, "Leave one of them out.")
    if options.given.get("stack") or options.given.get("file"):
        return
    for name in OF_A_STACK.get(entry.name, ()):
        if options.given.get(name):
            what = f"--{name} is about a stack, and none is named."
            raise StackError("command line", what, "Add --stack NAME or --file PATH.")


def _given(option: Option, options: Options) -> tuple[str, ...]:
    """The values that were typed for an option."""
    if option.kind == "words":
        return options.words(option.name)
    value = options.text(option.name)
    return () if value is None else (value,)
