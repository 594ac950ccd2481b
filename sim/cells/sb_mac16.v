// Behaviour of the iCE40 UP multiplier block, for simulation of netlists that instantiate it.
//
// Covers a 16 by 16 bit product, signed or unsigned per operand, with the input registers A and B and the register
// behind the product. Accumulation, the 8 by 8 bit modes and holds are not modelled; asking for
// them makes the product unknown.

module SB_MAC16 (
    input CLK, CE,
    input [15:0] A, B, C, D,
    input AHOLD, BHOLD, CHOLD, DHOLD,
    input IRSTTOP, IRSTBOT, ORSTTOP, ORSTBOT,
    input OLOADTOP, OLOADBOT, ADDSUBTOP, ADDSUBBOT, OHOLDTOP, OHOLDBOT,
    input CI, ACCUMCI, SIGNEXTIN,
    output [31:0] O,
    output CO, ACCUMCO, SIGNEXTOUT
);
    parameter [0:0] A_REG = 0;
    parameter [0:0] B_REG = 0;
    parameter [0:0] A_SIGNED = 0;
    parameter [0:0] B_SIGNED = 0;
    parameter [0:0] PIPELINE_16x16_MULT_REG2 = 0;
    parameter [1:0] TOPOUTPUT_SELECT = 0;
    parameter [1:0] BOTOUTPUT_SELECT = 0;

    reg [15:0] a_late = 0, b_late = 0;
    reg [31:0] late = 0;
    wire [15:0] a = A_REG ? a_late : A;
    wire [15:0] b = B_REG ? b_late : B;
    wire signed [16:0] factor_a = {A_SIGNED & a[15], a};
    wire signed [16:0] factor_b = {B_SIGNED & b[15], b};
    wire signed [33:0] exact = factor_a * factor_b;

    always @(posedge CLK or posedge IRSTTOP)
        if (IRSTTOP) a_late <= 0;
        else if (CE) a_late <= A;
    always @(posedge CLK or posedge IRSTBOT)
        if (IRSTBOT) b_late <= 0;
        else if (CE) b_late <= B;
    always @(posedge CLK or posedge IRSTBOT)
        if (IRSTBOT) late <= 0;
        else if (CE) late <= exact[31:0];

    wire modelled = TOPOUTPUT_SELECT == 3 && BOTOUTPUT_SELECT == 3 && !AHOLD && !BHOLD;
    assign O = !modelled ? {32{1'bx}} : PIPELINE_16x16_MULT_REG2 ? late : exact[31:0];
    assign {CO, ACCUMCO, SIGNEXTOUT} = 3'b0;
endmodule
