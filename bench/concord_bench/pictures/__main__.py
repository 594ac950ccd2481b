"""``python -m concord_bench.pictures``: pictures of the documentation that are made from data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from concord.spec.docs import ROOT
from concord.utils.files import write_text
from concord_bench.pictures.frame import link_frame
from concord_bench.pictures.kit import Picture
from concord_bench.pictures.layers import layers
from concord_bench.pictures.memory import memory
from concord_bench.pictures.passes import passes
from concord_bench.pictures.pipe import pipe

#: By the name of the file, without its ending.
PICTURES: dict[str, Callable[[], Picture]] = {
    "frame": link_frame,
    "layers": layers,
    "memory": memory,
    "passes": passes,
    "pipe": pipe,
}
FOLDER = ROOT / "pictures"


def stale(folder: Path) -> dict[Path, str]:
    """Files that are not as they are drawn now, and what must be in them."""
    drawn = {folder / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}
    return {p: text for p, text in drawn.items() if not p.exists() or p.read_text(encoding="utf-8") != text}


@click.command(name="pictures")
@click.option("--check", is_flag=True, help="Change nothing; fail if a picture is out of date.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, help="Folder of the pictures.")
def main(check: bool, folder: Path) -> None:
    """Draw the pictures again, or check them."""
    old = stale(folder)
    for path, text in old.items():
        click.echo(f"{path}: {'out of date' if check else 'drawn again'}")
        if not check:
            write_text(path, text)
    sys.exit(1 if check and old else 0)


if __name__ == "__main__":
    main()
