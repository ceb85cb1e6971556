"""A picture written where the operator wants it: SVG as it is, PNG through rsvg-convert."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from infra.errors import PrerequisiteError, StackError
from infra.visible import visible
from infra.whole_file import IN_A_FOLDER, writing_whole

PNG_ZOOM = "1.5"


def write_picture(path: Path, svg: str) -> None:
    """Write an SVG document to a file whose name ends in .svg or .png.

    Raises:
        StackError: the name ends otherwise, or the file cannot be written.
        PrerequisiteError: a PNG is wanted and there is no rsvg-convert, or there is no room for the file.
    """
    where = f"--picture {path}"
    match path.suffix.lower():
        case ".svg":
            content = visible(svg).encode()
        case ".png":
            content = _as_png(where, svg)
        case _:
            what = "A picture is an .svg or a .png file."
            raise StackError(where, what, "Name the file accordingly.")
    with writing_whole(path, option="--picture", fix=IN_A_FOLDER) as file:
        file.write(content)


def _as_png(where: str, svg: str) -> bytes:
    program = shutil.which("rsvg-convert")
    if program is None:
        what = "A PNG needs the program rsvg-convert, and it is not installed."
        fix = "Install librsvg2-bin, or name an .svg file."
        raise PrerequisiteError(where, what, fix)
    done = subprocess.run(
        [program, "--zoom", PNG_ZOOM], input=svg.encode(), capture_output=True, check=False
    )
    if done.returncode != 0:
        what = f"rsvg-convert failed: {done.stderr.decode(errors='replace').strip()}"
        raise PrerequisiteError(where, what, "Name an .svg file.")
    return done.stdout
