// Behaviour of the two carry bits of ECP5, for simulation of netlists that instantiate them.

module CCU2C (
    input CIN, A0, B0, C0, D0, A1, B1, C1, D1,
    output S0, S1, COUT
);
    parameter [15:0] INIT0 = 0;
    parameter [15:0] INIT1 = 0;
    parameter INJECT1_0 = "YES";
    parameter INJECT1_1 = "YES";

    wire sum0 = INIT0[{D0, C0, B0, A0}], other0 = INIT0[{2'b00, B0, A0}] & INJECT1_0 == "NO";
    wire sum1 = INIT1[{D1, C1, B1, A1}], other1 = INIT1[{2'b00, B1, A1}] & INJECT1_1 == "NO";
    wire carry = sum0 ? CIN : other0;
    assign S0 = sum0 ^ (CIN & INJECT1_0 == "NO");
    assign S1 = sum1 ^ (carry & INJECT1_1 == "NO");
    assign COUT = sum1 ? carry : other1;
endmodule
