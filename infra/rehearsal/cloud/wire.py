"""Property values as the engine sends them, and as plain Python values."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf import json_format, struct_pb2  # type: ignore[import-untyped]  # its types are a package of their own

# A value that a preview does not know yet (pulumi, sdk/go/common/resource/plugin/rpc.go).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - the mark of a secret, not one


def to_python(properties: struct_pb2.Struct) -> dict[str, object]:
    """Plain values: whole numbers as int, secrets opened."""
    values = plain(json_format.MessageToDict(properties))
    return values if isinstance(values, dict) else {}


def to_struct(values: Mapping[str, object]) -> struct_pb2.Struct:
    """A message from plain values; None values are left out."""
    message = struct_pb2.Struct()
    message.update({name: value for name, value in values.items() if value is not None})
    return message


def has_unknown(value: object) -> bool:
    """Whether a value holds something that a preview does not know yet."""
    if isinstance(value, Mapping):
        return any(has_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(has_unknown(each) for each in value)
    return value == UNKNOWN


def plain(value: object) -> object:
    """A value of the wire as a plain one."""
    if isinstance(value, dict):
        if value.get(_SIGNATURE) == _SECRET:
            return plain(value.get("value"))
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
