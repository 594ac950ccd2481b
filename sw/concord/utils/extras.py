"""Optional packages: which are missing, and the command that installs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from concord import __version__

#: Folder of the project, if this is a checkout.
_ROOT = Path(__file__).parents[3]


def install_command(extra: str) -> str:
    """Command that installs an extra of the project: in the checkout that this is, else from the wheel it came from.

    No package index has the project, so a command with its name alone would fail.
    """
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e '{_ROOT}[{extra}]'"
    return f"pip install 'concord_npu-{__version__}-py3-none-any.whl[{extra}]' (with the path of that file)"


def missing(modules: Iterable[str]) -> list[str]:
    """Names of the modules that are not installed."""
    return [name for name in modules if importlib.util.find_spec(name) is None]
