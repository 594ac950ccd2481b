"""Pins beside those of the platform classes."""

from typing import Any

from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal

from concord.spec.links import SPI_HZ


def platform_with(platform: Any, *resources: Resource) -> type:
    """The platform class with more resources; of the same name and number it loses its own."""
    replaced = {(resource.name, resource.number) for resource in resources}
    kept = [resource for resource in platform.resources if (resource.name, resource.number) not in replaced]
    return type(platform.__name__, (platform,), {"resources": [*kept, *resources]})


def spi_pins(sck: str, csn: str, copi: str, cipo: str, connector: tuple[str, int]) -> Resource:
    """Pins of a connector of an ECP5 board for a host with a serial peripheral interface of 3.3 V.

    Parameters
    ----------
    sck, csn, copi, cipo : str
        Names that the connector has for them. That of ``sck`` is one that clocks can come from (``PCLKT``); nextpnr
        would route another through the fabric, and the time that takes is not counted.
    connector : tuple of (str, int)
        Name and number of the connector.
    """
    return Resource(
        "spi",
        0,
        Subsignal("sck", Pins(sck, dir="i", conn=connector), Clock(2 * SPI_HZ)),
        Subsignal("csn", Pins(csn, dir="i", conn=connector), Attrs(PULLMODE="UP")),
        Subsignal("copi", Pins(copi, dir="i", conn=connector)),
        Subsignal("cipo", Pins(cipo, dir="o", conn=connector), Attrs(SLEWRATE="FAST")),
        Attrs(IO_TYPE="LVCMOS33"),
    )
