// npu_array_cell implemented in C++ (npu_cell.h): same ports and same cycles as the RTL cell.
module npu_array_cell (
    input  bit          clk,
    input  bit          rst,
    input  bit [2:0]    precision,
    input  bit          depthwise,
    input  bit          w_valid,
    input  bit [3:0]    w_index,
    input  bit [1:0]    w_stride,
    input  bit [511:0]  w_data,
    input  bit          f_valid,
    input  bit          f_swap,
    input  bit          f_first,
    input  bit          f_bank,
    input  bit [3:0]    f_slot,
    input  bit [1023:0] f_data,
    input  bit          d_valid,
    input  bit          d_bank,
    input  bit [3:0]    d_slot,
    input  bit [2:0]    d_octet,
    output bit [383:0]  o_acc,
    output bit [255:0]  o_sum
);
    import "DPI-C" function int unsigned npu_cell_new();
    import "DPI-C" function void npu_cell_step(
        input int unsigned cell_number, input int unsigned scalars,
        input bit [511:0] weights, input bit [1023:0] features);
    import "DPI-C" function void npu_cell_reset(input int unsigned cell_number);
    import "DPI-C" function void npu_cell_out(
        input int unsigned cell_number, output bit [383:0] acc, output bit [255:0] sum);

    int unsigned cell_number;
    initial cell_number = npu_cell_new();

    // Pixels still inside the cell; the cell is not called when there is nothing to do.
    bit [2:0] under_way;
    bit [383:0] acc;
    bit [255:0] sum;

    always @(posedge clk) begin
        if (f_valid || w_valid || d_valid || under_way != 0)
            npu_cell_step(
                cell_number,
                {4'b0, precision, d_octet, d_slot, d_bank, d_valid, f_slot, f_bank, f_first, f_swap, f_valid,
                 w_stride, w_index, w_valid, depthwise},
                w_data, f_data);
        under_way <= {under_way[1:0], f_valid};
        if (rst) begin
            npu_cell_reset(cell_number);
            under_way <= 0;
        end
        if (d_valid) begin
            npu_cell_out(cell_number, acc, sum);
            o_acc <= acc;
            o_sum <= sum;
        end
    end
endmodule
