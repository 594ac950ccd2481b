// Behaviour of the iCE40 UP multiplier block, for simulation of netlists that instantiate it.
//
// Covers a 16 by 16 bit product, or two of 8 by 8 bits, signed or unsigned per operand, with the input registers A and B
// and the registers behind the products. Accumulation, mixtures of both and holds are not modelled; asking for them makes
// the product unknown.

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
    parameter [0:0] MODE_8x8 = 0;
    parameter [0:0] TOP_8x8_MULT_REG = 0;
    parameter [0:0] BOT_8x8_MULT_REG = 0;
    parameter [0:0] PIPELINE_16x16_MULT_REG2 = 0;
    parameter [1:0] TOPOUTPUT_SELECT = 0;
    parameter [1:0] BOTOUTPUT_SELECT = 0;

    reg [15:0] a_late = 0, b_late = 0;
    reg [31:0] late = 0;
    reg [15:0] top_late = 0, bot_late = 0;
    wire [15:0] a = A_REG ? a_late : A;
    wire [15:0] b = B_REG ? b_late : B;
    wire signed [16:0] factor_a = {A_SIGNED & a[15], a};
    wire signed [16:0] factor_b = {B_SIGNED & b[15], b};
    wire signed [33:0] exact = factor_a * factor_b;
    wire signed [8:0] top_a = {A_SIGNED & a[15], a[15:8]}, bot_a = {A_SIGNED & a[7], a[7:0]};
    wire signed [8:0] top_b = {B_SIGNED & b[15], b[15:8]}, bot_b = {B_SIGNED & b[7], b[7:0]};
    wire signed [17:0] top = top_a * top_b, bot = bot_a * bot_b;

    always @(posedge CLK or posedge IRSTTOP)
        if (IRSTTOP) a_late <= 0;
        else if (CE) a_late <= A;
    always @(posedge CLK or posedge IRSTBOT)
        if (IRSTBOT) b_late <= 0;
        else if (CE) b_late <= B;
    always @(posedge CLK or posedge IRSTBOT)
        if (IRSTBOT) late <= 0;
        else if (CE) late <= exact[31:0];

    always @(posedge CLK or posedge IRSTTOP)
        if (IRSTTOP) top_late <= 0;
        else if (CE) top_late <= top[15:0];
    always @(posedge CLK or posedge IRSTBOT)
        if (IRSTBOT) bot_late <= 0;
        else if (CE) bot_late <= bot[15:0];

    wire [1:0] output_select = MODE_8x8 ? 2 : 3;
    wire modelled = TOPOUTPUT_SELECT == output_select && BOTOUTPUT_SELECT == output_select && !AHOLD && !BHOLD;
    wire [31:0] halves = {TOP_8x8_MULT_REG ? top_late : top[15:0], BOT_8x8_MULT_REG ? bot_late : bot[15:0]};
    wire [31:0] whole = PIPELINE_16x16_MULT_REG2 ? late : exact[31:0];
    assign O = !modelled ? {32{1'bx}} : MODE_8x8 ? halves : whole;
    assign {CO, ACCUMCO, SIGNEXTOUT} = 3'b0;
endmodule
