// Behaviour of the ECP5 block RAM, for simulation of netlists that instantiate it.
//
// Covers one clock, port A writing and port B reading, both with the same data width, with or without the output register
// of port B, no resets. A read in the cycle of a write to the same word gives the old word here, which the device does not
// promise. Anything else makes the output unknown.

module DP16KD #(
    parameter [319:0] INITVAL_00 = 0,
    parameter [319:0] INITVAL_01 = 0,
    parameter [319:0] INITVAL_02 = 0,
    parameter [319:0] INITVAL_03 = 0,
    parameter [319:0] INITVAL_04 = 0,
    parameter [319:0] INITVAL_05 = 0,
    parameter [319:0] INITVAL_06 = 0,
    parameter [319:0] INITVAL_07 = 0,
    parameter [319:0] INITVAL_08 = 0,
    parameter [319:0] INITVAL_09 = 0,
    parameter [319:0] INITVAL_0A = 0,
    parameter [319:0] INITVAL_0B = 0,
    parameter [319:0] INITVAL_0C = 0,
    parameter [319:0] INITVAL_0D = 0,
    parameter [319:0] INITVAL_0E = 0,
    parameter [319:0] INITVAL_0F = 0,
    parameter [319:0] INITVAL_10 = 0,
    parameter [319:0] INITVAL_11 = 0,
    parameter [319:0] INITVAL_12 = 0,
    parameter [319:0] INITVAL_13 = 0,
    parameter [319:0] INITVAL_14 = 0,
    parameter [319:0] INITVAL_15 = 0,
    parameter [319:0] INITVAL_16 = 0,
    parameter [319:0] INITVAL_17 = 0,
    parameter [319:0] INITVAL_18 = 0,
    parameter [319:0] INITVAL_19 = 0,
    parameter [319:0] INITVAL_1A = 0,
    parameter [319:0] INITVAL_1B = 0,
    parameter [319:0] INITVAL_1C = 0,
    parameter [319:0] INITVAL_1D = 0,
    parameter [319:0] INITVAL_1E = 0,
    parameter [319:0] INITVAL_1F = 0,
    parameter [319:0] INITVAL_20 = 0,
    parameter [319:0] INITVAL_21 = 0,
    parameter [319:0] INITVAL_22 = 0,
    parameter [319:0] INITVAL_23 = 0,
    parameter [319:0] INITVAL_24 = 0,
    parameter [319:0] INITVAL_25 = 0,
    parameter [319:0] INITVAL_26 = 0,
    parameter [319:0] INITVAL_27 = 0,
    parameter [319:0] INITVAL_28 = 0,
    parameter [319:0] INITVAL_29 = 0,
    parameter [319:0] INITVAL_2A = 0,
    parameter [319:0] INITVAL_2B = 0,
    parameter [319:0] INITVAL_2C = 0,
    parameter [319:0] INITVAL_2D = 0,
    parameter [319:0] INITVAL_2E = 0,
    parameter [319:0] INITVAL_2F = 0,
    parameter [319:0] INITVAL_30 = 0,
    parameter [319:0] INITVAL_31 = 0,
    parameter [319:0] INITVAL_32 = 0,
    parameter [319:0] INITVAL_33 = 0,
    parameter [319:0] INITVAL_34 = 0,
    parameter [319:0] INITVAL_35 = 0,
    parameter [319:0] INITVAL_36 = 0,
    parameter [319:0] INITVAL_37 = 0,
    parameter [319:0] INITVAL_38 = 0,
    parameter [319:0] INITVAL_39 = 0,
    parameter [319:0] INITVAL_3A = 0,
    parameter [319:0] INITVAL_3B = 0,
    parameter [319:0] INITVAL_3C = 0,
    parameter [319:0] INITVAL_3D = 0,
    parameter [319:0] INITVAL_3E = 0,
    parameter [319:0] INITVAL_3F = 0,
    parameter DATA_WIDTH_A = 18,
    parameter DATA_WIDTH_B = 18,
    parameter REGMODE_A = "NOREG",
    parameter REGMODE_B = "NOREG",
    parameter RESETMODE = "SYNC",
    parameter ASYNC_RESET_RELEASE = "SYNC",
    parameter CSDECODE_A = "0b000",
    parameter CSDECODE_B = "0b000",
    parameter CLKAMUX = "CLKA",
    parameter CLKBMUX = "CLKB",
    parameter WRITEMODE_A = "NORMAL",
    parameter WRITEMODE_B = "NORMAL",
    parameter GSR = "ENABLED"
) (
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2,
    DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
    input CLKA, CEA, OCEA, WEA, RSTA, CSA2, CSA1, CSA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2,
    DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
    input CLKB, CEB, OCEB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2,
    DOA1, DOA0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2,
    DOB1, DOB0
);
    localparam W = DATA_WIDTH_A;
    localparam BYTES = W > 9 ? W / 9 : 1;
    localparam SIZE = W > 9 ? 9 : W;

    wire [35:0] written = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5,
    DIB4, DIB3, DIB2, DIB1, DIB0, DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6,
    DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
    wire [13:0] to = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
    wire [13:0] from = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
    wire [3:0] enables = W == 36 ? to[3:0] : W == 18 ? {2'b00, to[1:0]} : 4'b0001;
    wire modelled = W == DATA_WIDTH_B && CLKAMUX == "CLKA" && CLKBMUX == "CLKB"
        && CSDECODE_A == "0b000" && CSDECODE_B == "0b000" && !WEB && !RSTA && !RSTB
        && !CSA0 && !CSA1 && !CSA2 && !CSB0 && !CSB1 && !CSB2;

    reg [35:0] latch = 0, register = 0;
    always @(posedge CLKB) if (OCEB) register <= latch;
    wire [35:0] out = REGMODE_B == "OUTREG" ? register : latch;
    assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2,
    DOA1, DOA0} = modelled && W == 36 ? out[17:0] : {18{1'bx}};
    assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2,
    DOB1, DOB0} = !modelled ? {18{1'bx}} : W == 36 ? out[35:18] : out[17:0];

    // Every 320 bits hold 32 bytes of nine bits, two in twenty; widths below nine leave the ninth bit unused.
    reg [319:0] store [0:63];
    initial begin
        store[0] = INITVAL_00; store[1] = INITVAL_01; store[2] = INITVAL_02; store[3] = INITVAL_03;
        store[4] = INITVAL_04; store[5] = INITVAL_05; store[6] = INITVAL_06; store[7] = INITVAL_07;
        store[8] = INITVAL_08; store[9] = INITVAL_09; store[10] = INITVAL_0A; store[11] = INITVAL_0B;
        store[12] = INITVAL_0C; store[13] = INITVAL_0D; store[14] = INITVAL_0E; store[15] = INITVAL_0F;
        store[16] = INITVAL_10; store[17] = INITVAL_11; store[18] = INITVAL_12; store[19] = INITVAL_13;
        store[20] = INITVAL_14; store[21] = INITVAL_15; store[22] = INITVAL_16; store[23] = INITVAL_17;
        store[24] = INITVAL_18; store[25] = INITVAL_19; store[26] = INITVAL_1A; store[27] = INITVAL_1B;
        store[28] = INITVAL_1C; store[29] = INITVAL_1D; store[30] = INITVAL_1E; store[31] = INITVAL_1F;
        store[32] = INITVAL_20; store[33] = INITVAL_21; store[34] = INITVAL_22; store[35] = INITVAL_23;
        store[36] = INITVAL_24; store[37] = INITVAL_25; store[38] = INITVAL_26; store[39] = INITVAL_27;
        store[40] = INITVAL_28; store[41] = INITVAL_29; store[42] = INITVAL_2A; store[43] = INITVAL_2B;
        store[44] = INITVAL_2C; store[45] = INITVAL_2D; store[46] = INITVAL_2E; store[47] = INITVAL_2F;
        store[48] = INITVAL_30; store[49] = INITVAL_31; store[50] = INITVAL_32; store[51] = INITVAL_33;
        store[52] = INITVAL_34; store[53] = INITVAL_35; store[54] = INITVAL_36; store[55] = INITVAL_37;
        store[56] = INITVAL_38; store[57] = INITVAL_39; store[58] = INITVAL_3A; store[59] = INITVAL_3B;
        store[60] = INITVAL_3C; store[61] = INITVAL_3D; store[62] = INITVAL_3E; store[63] = INITVAL_3F;
    end

    function [19:0] place;  // row and lowest bit of a byte of a word
        input [13:0] addr;
        input integer number;
        reg [10:0] at;
        begin
            at = (W == 36 ? {addr[13:5], 2'b00} : W == 18 ? {addr[13:4], 1'b0} : addr[13:3]) + number;
            place[19:10] = at[10:5];
            place[9:0] = 20 * at[4:1] + 9 * at[0] + (W < 9 ? (addr[2:0] & -W) : 0);
        end
    endfunction

    genvar k;
    generate
        for (k = 0; k < BYTES; k = k + 1) begin : byte_
            wire [19:0] target = place(to, k);
            wire [19:0] origin = place(from, k);
            always @(posedge CLKA)
                if (CEA && WEA && enables[k]) store[target[15:10]][target[9:0] +: SIZE] <= written[9*k +: SIZE];
            always @(posedge CLKB) if (CEB) latch[9*k +: SIZE] <= store[origin[15:10]] >> origin[9:0];
        end
    endgenerate
endmodule
