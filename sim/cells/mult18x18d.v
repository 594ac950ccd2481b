// Behaviour of the ECP5 multiplier block, for simulation of netlists that instantiate it.
//
// Covers what a plain registered product uses: operands A and B from the fabric, signed or unsigned, and the input, pipeline
// and output registers with their choice of clock, clock enable and reset. Operand C, the shift chains and the cascade
// register are not modelled; asking for them makes the product unknown.

// One register stage of the block: bypassed if CLK is "NONE".
module MULT18X18D_STAGE #(
    parameter WIDTH = 1,
    parameter CLK = "NONE",
    parameter CE = "CE0",
    parameter RST = "RST0",
    parameter RESETMODE = "SYNC"
) (
    input [3:0] clk,
    input [3:0] ce,
    input [3:0] rst,
    input [WIDTH-1:0] d,
    output [WIDTH-1:0] q
);
    localparam CLK_AT = CLK == "CLK3" ? 3 : CLK == "CLK2" ? 2 : CLK == "CLK1" ? 1 : 0;
    localparam CE_AT = CE == "CE3" ? 3 : CE == "CE2" ? 2 : CE == "CE1" ? 1 : 0;
    localparam RST_AT = RST == "RST3" ? 3 : RST == "RST2" ? 2 : RST == "RST1" ? 1 : 0;

    generate
        if (CLK == "NONE") begin : bypassed
            assign q = d;
        end else if (RESETMODE == "ASYNC") begin : asynchronous
            reg [WIDTH-1:0] value = 0;
            always @(posedge clk[CLK_AT] or posedge rst[RST_AT])
                if (rst[RST_AT]) value <= 0;
                else if (ce[CE_AT]) value <= d;
            assign q = value;
        end else begin : synchronous
            reg [WIDTH-1:0] value = 0;
            always @(posedge clk[CLK_AT])
                if (rst[RST_AT]) value <= 0;
                else if (ce[CE_AT]) value <= d;
            assign q = value;
        end
    endgenerate
endmodule

module MULT18X18D (
    A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0, B17, B16, B15, B14, B13, B12,
    B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0, C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5,
    C4, C3, C2, C1, C0, SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0, RST3, RST2,
    RST1, RST0, SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7, SRIA6, SRIA5,
    SRIA4, SRIA3, SRIA2, SRIA1, SRIA0, SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8,
    SRIB7, SRIB6, SRIB5, SRIB4, SRIB3, SRIB2, SRIB1, SRIB0, SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11,
    SROA10, SROA9, SROA8, SROA7, SROA6, SROA5, SROA4, SROA3, SROA2, SROA1, SROA0, SROB17, SROB16, SROB15, SROB14,
    SROB13, SROB12, SROB11, SROB10, SROB9, SROB8, SROB7, SROB6, SROB5, SROB4, SROB3, SROB2, SROB1, SROB0, ROA17,
    ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2, ROA1, ROA0,
    ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2, ROB1,
    ROB0, ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10, ROC9, ROC8, ROC7, ROC6, ROC5, ROC4, ROC3, ROC2,
    ROC1, ROC0, P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16,
    P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0, SIGNEDP
);
    parameter REG_INPUTA_CLK = "NONE";
    parameter REG_INPUTA_CE = "CE0";
    parameter REG_INPUTA_RST = "RST0";
    parameter REG_INPUTB_CLK = "NONE";
    parameter REG_INPUTB_CE = "CE0";
    parameter REG_INPUTB_RST = "RST0";
    parameter REG_INPUTC_CLK = "NONE";
    parameter REG_INPUTC_CE = "CE0";
    parameter REG_INPUTC_RST = "RST0";
    parameter REG_PIPELINE_CLK = "NONE";
    parameter REG_PIPELINE_CE = "CE0";
    parameter REG_PIPELINE_RST = "RST0";
    parameter REG_OUTPUT_CLK = "NONE";
    parameter REG_OUTPUT_CE = "CE0";
    parameter REG_OUTPUT_RST = "RST0";
    parameter CLK0_DIV = "ENABLED";
    parameter CLK1_DIV = "ENABLED";
    parameter CLK2_DIV = "ENABLED";
    parameter CLK3_DIV = "ENABLED";
    parameter HIGHSPEED_CLK = "NONE";
    parameter GSR = "ENABLED";
    parameter CAS_MATCH_REG = "FALSE";
    parameter SOURCEB_MODE = "B_SHIFT";
    parameter MULT_BYPASS = "DISABLED";
    parameter RESETMODE = "SYNC";

    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0;
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0;
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0;
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB;
    input CLK3, CLK2, CLK1, CLK0;
    input CE3, CE2, CE1, CE0;
    input RST3, RST2, RST1, RST0;
    input SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7, SRIA6, SRIA5, SRIA4,
    SRIA3, SRIA2, SRIA1, SRIA0;
    input SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8, SRIB7, SRIB6, SRIB5, SRIB4,
    SRIB3, SRIB2, SRIB1, SRIB0;
    output SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11, SROA10, SROA9, SROA8, SROA7, SROA6, SROA5, SROA4,
    SROA3, SROA2, SROA1, SROA0;
    output SROB17, SROB16, SROB15, SROB14, SROB13, SROB12, SROB11, SROB10, SROB9, SROB8, SROB7, SROB6, SROB5, SROB4,
    SROB3, SROB2, SROB1, SROB0;
    output ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2,
    ROA1, ROA0;
    output ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2,
    ROB1, ROB0;
    output ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10, ROC9, ROC8, ROC7, ROC6, ROC5, ROC4, ROC3, ROC2,
    ROC1, ROC0;
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15,
    P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0;
    output SIGNEDP;

    wire [3:0] clk = {CLK3, CLK2, CLK1, CLK0};
    wire [3:0] ce = {CE3, CE2, CE1, CE0};
    wire [3:0] rst = {RST3, RST2, RST1, RST0};
    wire modelled = MULT_BYPASS == "DISABLED" && HIGHSPEED_CLK == "NONE" && CAS_MATCH_REG == "FALSE"
        && !SOURCEA && !SOURCEB;
    wire [18:0] a, b;
    wire [36:0] staged, product;
    // The sign bits of the operands pass through the same registers.
    MULT18X18D_STAGE #(
        .WIDTH(19), .CLK(REG_INPUTA_CLK), .CE(REG_INPUTA_CE), .RST(REG_INPUTA_RST), .RESETMODE(RESETMODE)
    ) input_a (
        .clk(clk), .ce(ce), .rst(rst), .q(a),
        .d({SIGNEDA, A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0})
    );
    MULT18X18D_STAGE #(
        .WIDTH(19), .CLK(REG_INPUTB_CLK), .CE(REG_INPUTB_CE), .RST(REG_INPUTB_RST), .RESETMODE(RESETMODE)
    ) input_b (
        .clk(clk), .ce(ce), .rst(rst), .q(b),
        .d({SIGNEDB, B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0})
    );
    wire signed [18:0] factor_a = {a[18] & a[17], a[17:0]};
    wire signed [18:0] factor_b = {b[18] & b[17], b[17:0]};
    wire signed [37:0] exact = factor_a * factor_b;
    MULT18X18D_STAGE #(
        .WIDTH(37), .CLK(REG_PIPELINE_CLK), .CE(REG_PIPELINE_CE), .RST(REG_PIPELINE_RST), .RESETMODE(RESETMODE)
    ) pipeline (
        .clk(clk), .ce(ce), .rst(rst), .q(staged),
        .d({a[18] | b[18], exact[35:0]})
    );
    MULT18X18D_STAGE #(
        .WIDTH(37), .CLK(REG_OUTPUT_CLK), .CE(REG_OUTPUT_CE), .RST(REG_OUTPUT_RST), .RESETMODE(RESETMODE)
    ) out (
        .clk(clk), .ce(ce), .rst(rst), .q(product),
        .d(staged)
    );
    assign {SIGNEDP, P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17,
    P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = modelled ? product : {37{1'bx}};
    assign {ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2,
    ROA1, ROA0} = a[17:0];
    assign {ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2,
    ROB1, ROB0} = b[17:0];
    assign {SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11, SROA10, SROA9, SROA8, SROA7, SROA6, SROA5,
    SROA4, SROA3, SROA2, SROA1, SROA0, SROB17, SROB16, SROB15, SROB14, SROB13, SROB12, SROB11, SROB10, SROB9, SROB8,
    SROB7, SROB6, SROB5, SROB4, SROB3, SROB2, SROB1, SROB0, ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10,
    ROC9, ROC8, ROC7, ROC6, ROC5, ROC4, ROC3, ROC2, ROC1, ROC0} = 54'b0;
endmodule
