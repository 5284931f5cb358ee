// The ports of the array cell, for CXXRTL; its implementation is npu_array_cell_cxxrtl.cpp.
(* cxxrtl_blackbox *)
module npu_array_cell (
    (* cxxrtl_edge = "p" *) input clk,
    input rst,
    input [2:0] precision,
    input depthwise,
    input w_valid,
    input [3:0] w_index,
    input [1:0] w_stride,
    input [511:0] w_data,
    input f_valid,
    input f_swap,
    input f_first,
    input f_bank,
    input [3:0] f_slot,
    input [1023:0] f_data,
    input d_valid,
    input d_bank,
    input [3:0] d_slot,
    input [2:0] d_octet,
    (* cxxrtl_sync *) output [383:0] o_acc,
    (* cxxrtl_sync *) output [255:0] o_sum
);
endmodule
