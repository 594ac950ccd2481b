"""The model of the link in front of the emulator, with a feeder where the configuration has one."""

from concord.host.emulated import EmulatedDevice
from concord.spec.memmap import RegionId
from support.link_model import DeviceModel


class FedModel(DeviceModel):
    """The model of the link in front of the emulator."""

    def __init__(self, config):
        super().__init__(config)
        self.device = EmulatedDevice(config)
        self.feeder = self.device._feeder  # of the emulator, if there is an inbox

    def word(self, region, addr):
        return self.device.read(region, addr)[0]

    def _access(self, kind, payload):
        known = len(self.writes)
        data = super()._access(kind, payload)
        for region, addr, word in self.writes[known:]:
            if region is not RegionId.REGS:
                self.device.write(region, addr, [word])
            elif word & 1:
                self.device.start(word >> 16, adds=bool(word >> 2 & 1))
            else:
                self.device.clear_flags()
        return data
