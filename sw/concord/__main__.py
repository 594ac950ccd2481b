"""``python -m concord``: the same as the ``concord`` command."""

from concord.cli import main

if __name__ == "__main__":
    main(prog_name="concord")
