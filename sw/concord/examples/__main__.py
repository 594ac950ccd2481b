"""Write the example programs as text to ``docs/examples``."""

from pathlib import Path

from concord.examples import write_all

for path in write_all(Path("docs/examples")):
    print(path)
