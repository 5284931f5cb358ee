// npu_dpu_float_cell implemented in C++ (npu_dpu_float_cell.h): the lanes of the DPU's float unit.
module npu_dpu_float_cell (
    input  bit          clk,
    input  bit          rst,
    input  bit          take,
    input  bit [255:0]  main,
    input  bit          go,
    input  bit          last,
    input  bit [5:0]    step,
    input  bit [9:0]    control,
    input  bit [3:0]    algo,
    input  bit          binary,
    input  bit          brain,
    input  bit [1:0]    bs_source,
    input  bit [1:0]    bn_source,
    input  bit [511:0]  bs,
    input  bit [511:0]  bn,
    input  bit [255:0]  ew,
    input  bit [203:0]  settings,
    output bit [255:0]  result
);
    import "DPI-C" function int unsigned npu_dpu_float_cell_new();
    import "DPI-C" function void npu_dpu_float_cell_settings(
        input int unsigned cell_number, input bit [203:0] settings);
    import "DPI-C" function void npu_dpu_float_cell_bs(input int unsigned cell_number, input bit [511:0] operands);
    import "DPI-C" function void npu_dpu_float_cell_bn(input int unsigned cell_number, input bit [511:0] operands);
    import "DPI-C" function void npu_dpu_float_cell_ew(input int unsigned cell_number, input bit [255:0] operand);
    import "DPI-C" function void npu_dpu_float_cell_step(input int unsigned cell_number, input int unsigned scalars);
    import "DPI-C" function void npu_dpu_float_cell_result(
        input int unsigned cell_number, output bit [255:0] result);
    import "DPI-C" function void npu_dpu_float_cell_take(input int unsigned cell_number, input bit [255:0] main);

    int unsigned cell_number;
    initial cell_number = npu_dpu_float_cell_new();

    bit [203:0] shown;
    bit [255:0] made;

    always @(posedge clk) begin
        if (go) begin
            if (settings != shown) begin
                npu_dpu_float_cell_settings(cell_number, settings);
                shown <= settings;
            end
            if (step[1:0] != 0) npu_dpu_float_cell_bs(cell_number, bs);
            if (step[3:2] != 0) npu_dpu_float_cell_bn(cell_number, bn);
            if (step[4]) npu_dpu_float_cell_ew(cell_number, ew);
            npu_dpu_float_cell_step(
                cell_number, {5'b0, bn_source, bs_source, brain, binary, algo, control, step, last});
            if (last) begin
                npu_dpu_float_cell_result(cell_number, made);
                result <= made;
            end
        end
        if (take) npu_dpu_float_cell_take(cell_number, main);
        if (rst) result <= 0;
    end
endmodule
