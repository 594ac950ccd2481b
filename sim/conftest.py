"""Puts the unit tests and the benches where pytest and the simulator find them; options are those of the tests."""

import sys
from pathlib import Path

SIM = Path(__file__).parent
for folder in (SIM, SIM.parent / "tests"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

pytest_plugins = ["support.depth", "support.chosen_tests"]
