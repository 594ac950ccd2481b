"""Create the virtual environment, with one live line of progress; standard library only.

Usage: ``python3 -I .ci/setup.py FOLDER EXTRA``: makes (or repairs) the environment in FOLDER, installs the project
with its optional dependencies EXTRA, and writes FOLDER/ready when all is done. The installer's output is in
FOLDER/setup.log.
"""

import os
import subprocess
import sys
import threading
import time

OLDEST = (3, 11)
TAIL = 15


class Progress:
    """One line that says what goes on and for how long: rewritten on a terminal, repeated now and then elsewhere."""

    def __init__(self):
        self.text = "starting"
        self.packages = 0
        self._start = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        self._thread.start()

    def _line(self):
        return f"[{time.monotonic() - self._start:4.0f} s] {self.text}"

    def _tick(self):
        live = sys.stdout.isatty()
        while not self._stop.wait(0.5 if live else 10):
            print("\r\x1b[K" + self._line()[:100] if live else self._line(), end="" if live else "\n", flush=True)

    def note(self, line):
        """Take one line of the installer's output."""
        words = line.split()
        if not words:
            return
        if words[0] == "Collecting":
            self.packages += 1
            self.text = f"package {self.packages}: {words[1]}"
        elif words[0] == "Downloading":
            size = " ".join(words[2:])
            self.text = f"package {self.packages}: downloading {os.path.basename(words[1])} {size}"
        elif words[:2] == ["Installing", "collected"]:
            self.text = f"installing {len(words) - 3} packages"

    def finish(self, text):
        """Stop, and leave ``text`` as the last line."""
        self._stop.set()
        self._thread.join()
        self.text = text
        print(("\r\x1b[K" if sys.stdout.isatty() else "") + self._line(), flush=True)


def run(command, log, progress):
    """Run ``command``, copy its output to ``log``; end the program with the last lines if it fails."""
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            log.write(line)
            log.flush()
            lines.append(line)
            progress.note(line)
    if process.returncode:
        progress.finish("failed: " + " ".join(command))
        sys.exit("".join(lines[-TAIL:]) + f"The whole output is in {log.name}.")


def works(python):
    """Whether ``python`` exists, runs, and has an installer."""
    if not os.path.exists(python):
        return False
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


def main(folder, extra):
    """Make the environment."""
    if sys.version_info < OLDEST:
        have, need = sys.version.split()[0], ".".join(map(str, OLDEST))
        sys.exit(f"Python must be at least {need}, not {have}; choose another with: make PYTHON=python{need}")
    os.makedirs(folder, exist_ok=True)
    python = os.path.join(folder, "bin", "python")
    print(f"Setting up {folder} (a few hundred megabytes, once)", flush=True)
    progress = Progress()
    with open(os.path.join(folder, "setup.log"), "w", encoding="utf-8") as log:
        if not works(python):
            progress.text = "creating the virtual environment"
            run([sys.executable, "-m", "venv", folder], log, progress)
        install = [python, "-m", "pip", "install", "--progress-bar", "off", "--no-input", "--disable-pip-version-check"]
        progress.text = "reading the package index"
        run([*install, "-e", f".[{extra}]"], log, progress)
    with open(os.path.join(folder, "ready"), "w", encoding="utf-8"):
        pass
    progress.finish(f"{folder} is ready")


if __name__ == "__main__":
    main(*sys.argv[1:])
