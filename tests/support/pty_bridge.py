"""A pseudo-terminal with a device behind it: what a serial port is for the host."""

from __future__ import annotations

import os
import select
import threading
import tty
from contextlib import contextmanager


@contextmanager
def bridged(transport):
    """Yield the name of a port that leads to ``transport``."""
    master, slave = os.openpty()
    tty.setraw(slave)
    stop = threading.Event()

    def pump():
        while not stop.is_set():
            if select.select([master], [], [], 0.002)[0]:
                transport.write(os.read(master, 4096))
            while data := transport.read(4096, 0.002):
                os.write(master, data)

    thread = threading.Thread(target=pump)
    thread.start()
    try:
        yield os.ttyname(slave)
    finally:
        stop.set()
        thread.join()
        os.close(master)
        os.close(slave)
