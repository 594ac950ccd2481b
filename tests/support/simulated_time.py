"""A clock that goes on when somebody sleeps by it, however fast the machine is."""

from threading import Condition


class SimulatedTime:
    """Seconds so far, when called.

    Parameters
    ----------
    now : float
        What it shows at first.
    step : float
        Seconds by which it goes on with every look at it.

    Members
    -------
    slept : list of float
        Every sleep so far.
    follows : bool
        Whether a sleep begins only when another thread waits for a later moment, so that neither overtakes the other.
    """

    def __init__(self, now: float = 0.0, step: float = 0.0):
        self.now, self.step = now, step
        self.slept: list[float] = []
        self.follows = False
        self._awaited = now
        self._changed = Condition()

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        with self._changed:
            if self.follows:
                assert self._changed.wait_for(lambda: self.now < self._awaited, timeout=60)
            self.now += seconds
            self.slept.append(seconds)
            self._changed.notify_all()

    def wait_until(self, moment: float) -> None:
        """Return when another thread has let time pass to a moment."""
        with self._changed:
            self._awaited = moment
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.now >= moment, timeout=60)
