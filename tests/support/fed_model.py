"""The model of the link in front of the emulator, with a feeder where the configuration has one."""

from concord.host.emulated import EmulatedDevice
from concord.spec.memmap import REGISTERS, Reg, RegionId
from support.link_model import DeviceModel


class FedModel(DeviceModel):
    """The model of the link in front of the emulator."""

    def __init__(self, config):
        super().__init__(config)
        self.device = EmulatedDevice(config)
        self.feeder = self.device._feeder  # of the emulator, if there is an inbox
        #: Whether nothing was written to the external memory since the host said that it holds what it should.
        self.kept = False

    def word(self, region, addr):
        word = self.device.read(region, addr)[0]
        if (region, addr) == (RegionId.REGS, Reg.STATUS):
            layout = REGISTERS[Reg.STATUS].layout
            word = layout.pack(**(layout.unpack(word) | {"dram_kept": int(self.kept)}))
        return word

    def _access(self, kind, payload):
        known = len(self.writes)
        data = super()._access(kind, payload)
        for region, addr, word in self.writes[known:]:
            if region is not RegionId.REGS:
                self.device.write(region, addr, [word])
                self.kept &= region is not RegionId.DRAM
            elif REGISTERS[Reg.CONTROL].layout.unpack(word)["keep_dram"]:
                self.kept = True
            elif word & 1:
                self.device.start(word >> 16, adds=bool(word >> 2 & 1))
            else:
                self.device.clear_flags()
        return data
