"""What the values of `docker run` options must look like, with docker 28's own refusals.

Read in docker/cli v28.2.2: `opts/gpus.go`, `opts/mount.go`, `opts/env.go`, `opts/network.go`, and in
docker/go-units `ulimit.go` and `size.go`; each text was compared with what the 28.2.2 client prints.
"""

from __future__ import annotations

from .flags import FALSE_WORDS, TRUE_WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ULIMIT_NAMES = [
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
]
SIZE_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
MOUNT_KEYS_OF_KIND = {
    "bind": ("bind-propagation", "bind-nonrecursive", "bind-recursive"),
    "volume": (
        "volume-subpath",
        "volume-nocopy",
        "volume-label",
        "volume-driver",
        "volume-opt",
    ),
    "tmpfs": ("tmpfs-size", "tmpfs-mode"),
    "image": ("image-subpath",),
}
MOUNT_ALIASES = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
BIND_RECURSIVE_WORDS = ("enabled", "disabled", "writable", "readonly")


class GpuRequest:
    """What `--gpus` or a CDI name asks for: a count (-1 is all), device ids, or CDI names."""

    __slots__ = ("cdi_names", "count", "device_ids")

    def __init__(
        self,
        count: int = 0,
        device_ids: list[str] | None = None,
        cdi_names: list[str] | None = None,
    ) -> None:
        """Take the request."""
        self.count = count
        self.device_ids = device_ids or []
        self.cdi_names = cdi_names or []


def split_fields(value: str) -> list[str]:
    """Return the fields of one line of CSV, as Go's `encoding/csv` reads it.

    Raises:
        ValueError: quotes that Go refuses.
    """
    if value == "":
        raise ValueError("EOF")
    fields: list[str] = []
    position = 0
    while True:
        if value.startswith('"', position):
            field, position = _quoted_field(value, position)
        else:
            end = value.find(",", position)
            end = len(value) if end < 0 else end
            field = value[position:end]
            if '"' in field:
                column = position + field.index('"') + 1
                raise ValueError(
                    f'parse error on line 1, column {column}: bare " in non-quoted field'
                )
            position = end
        fields.append(field)
        if position >= len(value):
            return fields
        position += 1


def parse_gpus(value: str) -> GpuRequest:
    """Return what `--gpus` asks for. `device=0,1` is two fields: device 0, and a count of 1.

    Raises:
        ValueError: docker's reason.
    """
    request = GpuRequest()
    seen: set[str] = set()
    for field in split_fields(value):
        key, equals, text = field.partition("=")
        if key in seen:
            raise ValueError(f"gpu request key '{key}' can be specified only once")
        seen.add(key)
        if not equals:
            seen.add("count")
            request.count = _gpu_count(key)
        elif key == "count":
            request.count = _gpu_count(text)
        elif key == "device":
            request.device_ids = text.split(",")
        elif key not in ("driver", "capabilities", "options"):
            raise ValueError(f"unexpected key '{key}' in '{field}'")
    if "count" not in seen and not request.device_ids:
        request.count = 1
    return request


def parse_mount(value: str) -> dict[str, str]:
    """Return the keys of `--mount`, with `type`, `target` and `readonly` always there.

    Raises:
        ValueError: docker's reason.
    """
    mount = {"type": "volume", "source": "", "target": "", "readonly": "false"}
    for field in split_fields(value):
        key, equals, text = field.partition("=")
        key = key.lower()
        name = MOUNT_ALIASES.get(key, key)
        if not equals:
            if name not in ("readonly", "volume-nocopy", "bind-nonrecursive"):
                raise ValueError(f"invalid field '{field}' must be a key=value pair")
            text = "true"
        known = {known_key for keys in MOUNT_KEYS_OF_KIND.values() for known_key in keys}
        if name not in mount and name not in known and name != "consistency":
            raise ValueError(f"unexpected key '{key}' in '{field}'")
        _check_mount_value(key, name, text)
        mount[name] = text.lower() if name == "type" else text
    if not mount["type"]:
        raise ValueError("type is required")
    if not mount["target"]:
        raise ValueError("target is required")
    for kind in ("volume", "image", "bind", "tmpfs"):
        if kind != mount["type"] and any(key in mount for key in MOUNT_KEYS_OF_KIND[kind]):
            raise ValueError(f"cannot mix '{kind}-*' options with mount type '{mount['type']}'")
    return mount


def parse_ulimit(value: str) -> tuple[str, int, int]:
    """Return name, soft and hard limit of `--ulimit`; -1 is unlimited.

    Raises:
        ValueError: docker's reason.
    """
    name, equals, limits = value.partition("=")
    if not equals:
        raise ValueError(f"invalid ulimit argument: {value}")
    if name not in ULIMIT_NAMES:
        raise ValueError(f"invalid ulimit type: {name}")
    parts = limits.split(":")
    if len(parts) > len(("soft", "hard")):
        raise ValueError(
            f"too many limit value arguments - {limits}, can only have up to two, `soft[:hard]`"
        )
    hard = parse_integer(parts[-1])
    soft = parse_integer(parts[0])
    if hard != -1 and (soft == -1 or soft > hard):
        comparison = f"soft: -1 (unlimited), hard: {hard}" if soft == -1 else f"{soft} > {hard}"
        raise ValueError(
            f"ulimit soft limit must be less than or equal to hard limit: {comparison}"
        )
    return name, soft, hard


def parse_size(value: str) -> int:
    """Return bytes from `64m`, `1g`, `1GiB`, `512`.

    Raises:
        ValueError: docker's reason.
    """
    end = max((value.rfind(character) for character in "0123456789. "), default=-1)
    if end < 0:
        raise ValueError(f"invalid size: '{value}'")
    number = value[: end + 1].rstrip(" ")
    suffix = value[end + 1 :].lower()
    try:
        size = float(number)
    except ValueError:
        raise ValueError(f'strconv.ParseFloat: parsing "{number}": invalid syntax') from None
    if size < 0:
        raise ValueError(f"invalid size: '{value}'")
    if suffix in ("", "b"):
        return int(size)
    if suffix[0] not in SIZE_UNITS or suffix[1:] not in ("", "b", "ib"):
        raise ValueError(f"invalid suffix: '{suffix}'")
    return int(size * SIZE_UNITS[suffix[0]])


def parse_network(value: str) -> str:
    """Return the network's name from `--network NAME` or `--network name=NAME,alias=…`.

    Raises:
        ValueError: docker's reason.
    """
    if "=" not in value:
        return value
    name = ""
    for field in split_fields(value):
        key, equals, text = (part.strip() for part in field.lower().partition("="))
        if not equals or not key:
            raise ValueError(f"invalid field {field}")
        if key == "name":
            name = text
        elif key not in (
            "alias",
            "ip",
            "ip6",
            "mac-address",
            "link-local-ip",
            "driver-opt",
            "gw-priority",
        ):
            raise ValueError(f"invalid field key {key}")
    if not name:
        raise ValueError("network name/id is not specified")
    return name


def parse_integer(value: str) -> int:
    """Return a decimal integer, refused in Go's words otherwise."""
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not digits.isascii() or not digits.isdigit():
        raise ValueError(f'strconv.ParseInt: parsing "{value}": invalid syntax')
    return int(value)


def _check_unsigned(value: str) -> None:
    if not value.isascii() or not value.isdigit():
        raise ValueError(f'strconv.ParseUint: parsing "{value}": invalid syntax')


def _check_switch(value: str) -> None:
    if value not in TRUE_WORDS + FALSE_WORDS:
        raise ValueError(f'strconv.ParseBool: parsing "{value}": invalid syntax')


def _check_duration(value: str) -> None:
    number = value.rstrip("nuµmsh")
    if not number.replace(".", "").lstrip("-").isdigit() or (number == value and number != "0"):
        raise ValueError(f'time: invalid duration "{value}"')


def _check_decimal(value: str) -> None:
    try:
        float(value)
    except ValueError:
        raise ValueError(f"failed to parse {value} as a rational number") from None


def _check_variable(value: str) -> None:
    if value.startswith("=") or value == "":
        raise ValueError(f"invalid environment variable: {value}")


def _check_label(value: str) -> None:
    if value.partition("=")[0].strip() == "":
        raise ValueError(f"invalid label '{value}': empty name")


def _check_attach(value: str) -> None:
    if value.lower() not in ("stdin", "stdout", "stderr"):
        raise ValueError("valid streams are STDIN, STDOUT and STDERR")


def _check_swap(value: str) -> None:
    if value != "-1":
        parse_size(value)


def _check_gpus(value: str) -> None:
    parse_gpus(value)


def _check_mount(value: str) -> None:
    parse_mount(value)


def _check_ulimit(value: str) -> None:
    parse_ulimit(value)


def _check_size(value: str) -> None:
    parse_size(value)


def _check_network(value: str) -> None:
    parse_network(value)


def _check_integer(value: str) -> None:
    parse_integer(value)


VALUE_CHECKS: dict[str, Callable[[str], None]] = {
    "attach": _check_attach,
    "bool": _check_switch,
    "bytes": _check_size,
    "swap": _check_swap,
    "decimal": _check_decimal,
    "duration": _check_duration,
    "env": _check_variable,
    "gpu-request": _check_gpus,
    "int": _check_integer,
    "label": _check_label,
    "mount": _check_mount,
    "network": _check_network,
    "uint": _check_unsigned,
    "ulimit": _check_ulimit,
}


def _quoted_field(value: str, position: int) -> tuple[str, int]:
    """Return a quoted CSV field that starts at a position, and where it ends."""
    text = ""
    scan = position + 1
    while True:
        quote = value.find('"', scan)
        if quote < 0:
            raise ValueError(
                f'parse error on line 1, column {len(value) + 1}: extraneous or missing " in quoted-field'
            )
        text += value[scan:quote]
        following = value[quote + 1 : quote + 2]
        if following == '"':
            text += '"'
            scan = quote + 2
        elif following in ("", ","):
            return text, quote + 1
        else:
            raise ValueError(
                f'parse error on line 1, column {quote + 1}: extraneous or missing " in quoted-field'
            )


def _gpu_count(text: str) -> int:
    """Return a count of `--gpus`; `all` is -1."""
    if text == "all":
        return -1
    try:
        return parse_integer(text)
    except ValueError:
        raise ValueError(
            f'invalid count ({text}): value must be either "all" or an integer: invalid syntax'
        ) from None


def _check_mount_value(key: str, name: str, text: str) -> None:
    """Refuse a value that one key of `--mount` cannot have."""
    if name in ("readonly", "bind-nonrecursive", "volume-nocopy"):
        if text not in TRUE_WORDS + FALSE_WORDS:
            raise ValueError(f"invalid value for {key}: {text}")
    elif name == "bind-recursive" and text not in BIND_RECURSIVE_WORDS:
        raise ValueError(
            f"invalid value for {key}: {text} "
            '(must be "enabled", "disabled", "writable", or "readonly")'
        )
    elif name == "tmpfs-size":
        try:
            parse_size(text)
        except ValueError:
            raise ValueError(f"invalid value for {key}: {text}") from None
    elif name == "tmpfs-mode" and (not text.isdigit() or set(text) & set("89")):
        raise ValueError(f"invalid value for {key}: {text}")
