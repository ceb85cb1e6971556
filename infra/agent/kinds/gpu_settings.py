"""Settings of NVIDIA GPUs that the driver forgets at a reboot: power limit, application clocks, MIG mode.

Locked clocks (`-lgc`, `-lmc`) are not here: nvidia-smi has no query for the range that is locked, so a write
could be neither verified nor taken back to what was found. Source: nvidia-smi --help-query-gpu and its manual,
driver 580; NVIDIA MIG user guide (read 2026-11-21).
"""

from typing import Dict, List, NamedTuple, Optional, Tuple

from ..host import Finished, Host, Refused
from ..item import Item, Parts, Reading, absent_reading

QUERY_S = 30.0  # a driver that takes longer is wedged
MOST = "max"


class Setting(NamedTuple):
    """One setting of a GPU.

    Args:
        shows: query fields that tell what it is set to.
        most: query fields that tell the most it can be set to; () where `max` means nothing.
        option: of nvidia-smi, which sets it.
        running: the query field that tells what holds until a GPU reset, None where a write holds at once.
        words: what nvidia-smi takes for a value that it prints as a word.
    """

    shows: Tuple[str, ...]
    most: Tuple[str, ...]
    option: str
    running: Optional[str] = None
    words: Tuple[Tuple[str, str], ...] = ()


SETTINGS = {
    "power.limit": Setting(("power.limit",), ("power.max_limit",), "-pl"),
    "clocks.applications": Setting(
        ("clocks.applications.memory", "clocks.applications.graphics"),
        ("clocks.max.memory", "clocks.max.graphics"),
        "-ac",
    ),
    "mig.mode": Setting(
        ("mig.mode.pending",),
        (),
        "-mig",
        running="mig.mode.current",
        words=(("Disabled", "0"), ("Enabled", "1")),
    ),
}


def read_gpu_setting(host: Host, item: Item) -> Reading:
    """A setting of every GPU that has it."""
    setting = _setting_of(item)
    fields = _fields_of(setting)
    answer = _ask(host, EVERY_FIELD)
    columns = [EVERY_FIELD.index(field) for field in fields]
    if answer.exit_code not in (0, None):  # an older driver does not know all of them
        answer, columns = _ask(host, fields), list(range(len(fields)))
    if answer.exit_code is None and "No such file" in answer.last_words:
        return absent_reading(item, "nvidia-smi is not on this host")
    if answer.exit_code != 0:
        raise Refused("nvidia-smi: {}".format(answer.last_words))
    rows = parse_settings(answer.stdout, columns)
    if not rows:
        return absent_reading(item, "no GPU of this host has {}".format(item.target))
    num = len(setting.shows)
    parts: Parts = {gpu: ",".join(values[:num]) for gpu, values in rows.items()}
    if item.want is None:
        return Reading(_shown(parts), parts, None, {})
    is_most = item.want == MOST and bool(setting.most)
    wanted: Parts = {
        gpu: ",".join(values[num : 2 * num]) if is_most else _plain(item.want)
        for gpu, values in rows.items()
    }
    reading = Reading(_shown(parts), parts, _shown(wanted), wanted)
    if setting.running is None:
        return reading
    return _with_running(host, item, reading, {gpu: values[-1] for gpu, values in rows.items()})


def write_gpu_setting(host: Host, item: Item, part: str, value: object) -> None:
    """Set one GPU."""
    setting = _setting_of(item)
    word = dict(setting.words).get(str(value), str(value))
    host.forget_looks()
    done = host.run(["nvidia-smi", "-i", part, setting.option, word], QUERY_S)
    if done.exit_code != 0:
        words = "nvidia-smi -i {} {} {}: {}"
        raise Refused(words.format(part, setting.option, word, done.last_words))


def parse_settings(text: str, columns: List[int]) -> Dict[str, List[str]]:
    """Values of some columns by GPU index, out of CSV; GPUs that lack one (`[N/A]`, `[Not Supported]`) are left out.

    Args:
        text: a line per GPU, its index first.
        columns: which values; they count from 0, the index aside.

    Raises:
        Refused: a line that is none.
    """
    rows = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        index, *values = (word.strip() for word in line.split(","))
        if not index.isdecimal() or len(values) <= max(columns):
            raise Refused("nvidia-smi printed {!r} where index and values belong".format(line))
        own = [_plain(values[column]) for column in columns]
        if not any(value.startswith("[") or value == "N/A" for value in own):
            rows[index] = own
    return rows


def _fields_of(setting: Setting) -> List[str]:
    return [*setting.shows, *setting.most, *([setting.running] if setting.running else [])]


EVERY_FIELD = [field for setting in SETTINGS.values() for field in _fields_of(setting)]


def _ask(host: Host, fields: List[str]) -> Finished:
    """One question for all settings; a driver that hangs is waited for once."""
    query = "--query-gpu=" + ",".join(["index", *fields])
    return host.look(["nvidia-smi", query, "--format=csv,noheader,nounits"], QUERY_S)


def _setting_of(item: Item) -> Setting:
    if item.target not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise Refused("{!r} is no setting of a GPU; there are {}".format(item.target, known))
    return SETTINGS[item.target]


def _with_running(host: Host, item: Item, reading: Reading, running: Dict[str, str]) -> Reading:
    """A reading of what takes a GPU reset: what is written, and what still runs."""
    shown = _shown({gpu: running[gpu] for gpu in running})
    late = [gpu for gpu in running if running[gpu] != reading.wanted_parts[gpu]]
    if not late:
        return reading._replace(value=shown)
    named = "GPU {} runs with {} {}".format(", ".join(late), item.target, shown)
    if not reading.differing():
        why = "{}; {} is set and waits: `nvidia-smi --gpu-reset` or reboot"
        return reading._replace(value=shown, locked=why.format(named, reading.wanted))
    if item.target == "mig.mode" and _has_instances(host):
        why = "{} and has instances, which nobody could bring back: `nvidia-smi mig -dci`, then `-dgi`"
        return reading._replace(value=shown, locked=why.format(named))
    return reading._replace(value=shown, todo=named)


def _has_instances(host: Host) -> bool:
    """Whether a GPU is divided: `nvidia-smi -L` lists the parts below it."""
    lines = host.run(["nvidia-smi", "-L"], QUERY_S).stdout.splitlines()
    return any(line.strip().startswith("MIG ") for line in lines)


def _plain(value: str) -> str:
    """A number as short as it is (`700.00` is `700`); words as they are."""
    text = value.strip()
    if text.replace(".", "", 1).isdecimal() and "." in text:
        return text.rstrip("0").rstrip(".")
    return text


def _shown(parts: Parts) -> str:
    values = sorted(set(map(str, parts.values())))
    if len(values) == 1:
        return values[0]
    return ", ".join("{} on GPU {}".format(parts[gpu], gpu) for gpu in parts)
