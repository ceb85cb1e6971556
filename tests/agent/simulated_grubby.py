"""A stand-in for grubby(8) over boot loader entries, as its script of RHEL 8 and 9 works.

Run as `python simulated_grubby.py FOLDER [OPTION…]`. Entries are the files `FOLDER/*.conf` in the form of the Boot
Loader Specification. `--args` puts a new value in the place of an old one and appends what is new, and
`--remove-args` takes words away, from the entries that `--update-kernel` names. Written from grubby(8) and from
what its script is seen to do (rhboot/grubby grubby-bls@526e39e), not from its text. The file FOLDER/fault:
`careless` finds names without their left edge, as that release does; `refuses` fails; `sticks` does nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path


def main() -> int:
    folder = Path(sys.argv[1])
    parser = argparse.ArgumentParser(prog="grubby", allow_abbrev=False)
    for option in ("--info", "--update-kernel", "--args", "--remove-args"):
        parser.add_argument(option)
    options = parser.parse_args(sys.argv[2:])
    fault = (folder / "fault").read_text().strip() if (folder / "fault").exists() else ""
    entries = sorted(folder.glob("*.conf"), reverse=True)
    if options.info is not None:
        for index, path in enumerate(entries):
            values = read(path)
            sys.stdout.write(
                f'index={index}\nkernel="{values["linux"]}"\nargs="{values["options"]}"\n'
            )
            sys.stdout.write(
                f'initrd="{values["initrd"]}"\ntitle="{values["title"]}"\nid="{path.stem}"\n'
            )
        return 0
    if fault == "refuses":
        sys.stderr.write("grubby: cannot write the boot entries\n")
        return 1
    chosen = entries if options.update_kernel == "ALL" else []
    for path in chosen if fault != "sticks" else []:
        edge = "" if fault == "careless" else r"(?<!\S)"
        line = update(read(path)["options"], options, edge)
        kept = [one for one in path.read_text().splitlines() if not one.startswith("options ")]
        place = path.read_text().splitlines().index(f"options {read(path)['options']}")
        text = "\n".join([*kept[:place], f"options {line}", *kept[place:]]) + "\n"
        path.write_text(text)
    return 0


def read(path: Path) -> dict[str, str]:
    rows = (line.partition(" ") for line in path.read_text().splitlines())
    return {key: value for key, _, value in rows}


def update(line: str, options: argparse.Namespace, edge: str) -> str:
    for word in (options.remove_args or "").split():
        line = re.sub(edge + re.escape(word) + r"\S*", "", line, count=1)
    for word in (options.args or "").split():
        name, equals, _ = word.partition("=")
        pattern = edge + re.escape(name) + (r"=\S*" if equals else r"(?!\S)")
        if re.search(pattern, line):
            line = re.sub(pattern, word, line, count=1)
        else:
            line += f" {word}"
    return " ".join(line.split())


if __name__ == "__main__":
    sys.exit(main())
