"""Memory contents of an image as hex files for the bitstream flow: ``python -m concord.image.hexfiles IMAGE FOLDER``.

The files are named after the regions of :mod:`concord.spec.memmap` and have one word per line. A file ``config.json``
beside them says what they were made for.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from concord.image import Image, hex_files


def write_hex_files(image: Image, folder: Path) -> None:
    """Write one file per region, and the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in hex_files(image, banks=False).items():
        (folder / f"{name}.hex").write_text(text)
    (folder / "config.json").write_text(json.dumps(image.config.to_dict()))


@click.command()
@click.argument("image", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def main(image: Path, folder: Path) -> None:
    """Write the memory contents of IMAGE to FOLDER."""
    try:
        write_hex_files(Image.load(image), folder)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
