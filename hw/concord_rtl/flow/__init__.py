"""The open FPGA flow: synthesis, place and route, bitstreams and the contents of their block RAMs."""
