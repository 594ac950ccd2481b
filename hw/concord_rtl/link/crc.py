"""The checksum of :mod:`concord.spec.link`."""

from amaranth.lib import crc
from amaranth.lib.crc import catalog

from concord.spec.link import CRC_BYTES

#: CRC-32 of IEEE 802.3, one byte per cycle. ``CRC32.create()`` is the hardware, ``CRC32.compute`` the model.
CRC32: crc.Parameters = catalog.CRC32_ISO_HDLC(data_width=8)

if catalog.CRC32_ISO_HDLC.crc_width != 8 * CRC_BYTES:
    raise ValueError(f"CRC_BYTES must be {catalog.CRC32_ISO_HDLC.crc_width // 8}, not {CRC_BYTES!r}")
