"""Trained networks and recorded data, which are no part of the project."""

import os
from pathlib import Path

import pytest

#: ``models/*.onnx`` in float32, those in ``models/raw`` as converters left them, and ``data/*.npz``.
DATA = Path(os.environ.get("CONCORD_DATA", "no such folder"))
needs_data = pytest.mark.skipif(
    not (DATA / "models").is_dir(),
    reason=f"needs trained networks and recorded data, which are not part of the project: "
    f"the environment variable CONCORD_DATA must name their folder, not {str(DATA)!r}",
)
