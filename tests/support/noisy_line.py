"""A line between the host and a model of the device, and what may happen on it."""

from concord.spec.link import FLAG


class Line:
    """Carries bytes to a model; ``request`` and ``reply`` may change them on their way."""

    byte_time = 0.0
    wait_cycles = 1000
    controlled = False
    cycles = None

    def __init__(self, model, request=None, reply=None, piece=4096):
        self.model = model
        self.request, self.reply = request, reply
        self.piece = piece
        self.pending = b""
        self.sent = []
        self.closed = False
        self.time = 0.0

    def clock(self):
        return self.time

    def write(self, data):
        self.sent.append(data)
        data = self.request(data) if self.request else data
        for frame in self.model.feed(data):
            line = frame.encode()
            self.pending += self.reply(line) if self.reply else line

    def read(self, count, timeout):
        count = min(count, self.piece)
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def close(self):
        self.closed = True


def once(change):
    """Apply ``change`` to the next piece of traffic only, when armed."""

    def apply(data):
        if not apply.armed:
            return data
        apply.armed = False
        return change(data)

    apply.armed = False
    return apply


def flip(data):
    return data[:5] + bytes([data[5] ^ 1]) + data[6:]


def lose(data):
    return b""


def damage_of(rng, rate=0.002):
    """Bytes are flipped, lost and put in at random."""

    def damage(data):
        out = bytearray()
        for byte in data:
            if rng.random() < rate:
                byte = rng.choice([byte ^ 1 << rng.randrange(8), FLAG])
            if rng.random() > rate:
                out.append(byte)
            if rng.random() < rate:
                out += rng.randbytes(2)
        return b"" if rng.random() < rate else bytes(out)

    return damage
