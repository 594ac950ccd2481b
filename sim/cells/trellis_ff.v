// Behaviour of the ECP5 flip-flop, for simulation of netlists that instantiate it.
//
// Covers synchronous set or reset from the fabric and the choices for clock, enable and reset; the second data input is not
// modelled.
module TRELLIS_FF #(
    parameter GSR = "ENABLED",
    parameter CEMUX = "1",
    parameter CLKMUX = "CLK",
    parameter LSRMUX = "LSR",
    parameter REGSET = "RESET"
) (
    input CLK,
    input LSR,
    input CE,
    input DI,
    output reg Q
);
    wire clock = CLKMUX == "INV" ? ~CLK : CLK;
    wire enable = CEMUX == "1" ? 1'b1 : CEMUX == "0" ? 1'b0 : CEMUX == "INV" ? ~CE : CE;
    wire reset = LSRMUX == "INV" ? ~LSR : LSR;

    initial Q = REGSET == "SET";

    always @(posedge clock)
        if (reset) Q <= REGSET == "SET";
        else if (enable) Q <= DI;
endmodule
