// npu_dpu_cell implemented in C++ (npu_dpu_cell.h): the stages of the DPU's pipe, in the same cycles as the RTL.
module npu_dpu_cell (
    input  bit          clk,
    input  bit          rst,
    input  bit          start,
    input  bit          advance,
    input  bit [9:0]    valid,
    input  bit          floats,
    input  bit          late_floats,
    input  bit [614:0]  settings,
    input  bit [255:0]  main,
    input  bit [127:0]  high,
    input  bit [255:0]  sum,
    input  bit [5:0]    clip,
    input  bit [255:0]  float_main,
    input  bit [511:0]  bs_operands,
    input  bit [511:0]  bn_operands,
    input  bit [255:0]  ew_operand,
    input  bit          ew_ready,
    input  bit [3:0]    live,
    input  bit          late_offset,
    input  bit          lut_write,
    input  bit          lut_read,
    input  bit          lut_table,
    input  bit [9:0]    lut_entry,
    input  bit [15:0]   lut_data,
    output bit          bs_wanted,
    output bit          bn_wanted,
    output bit          lut_may_advance,
    output bit [15:0]   lut_answer,
    output bit          ew_take,
    output bit          ew_may_advance,
    output bit [255:0]  value
);
    import "DPI-C" function int unsigned npu_dpu_cell_new();
    import "DPI-C" function void npu_dpu_cell_settings(
        input int unsigned cell_number, input bit [614:0] settings);
    import "DPI-C" function int unsigned npu_dpu_cell_start(
        input int unsigned cell_number, input int unsigned late_offset);
    import "DPI-C" function void npu_dpu_cell_bs(input int unsigned cell_number, input bit [511:0] operands);
    import "DPI-C" function void npu_dpu_cell_bn(input int unsigned cell_number, input bit [511:0] operands);
    import "DPI-C" function void npu_dpu_cell_ew(input int unsigned cell_number, input bit [255:0] operand);
    import "DPI-C" function void npu_dpu_cell_step(input int unsigned cell_number, input int unsigned scalars);
    import "DPI-C" function void npu_dpu_cell_enter(input int unsigned cell_number, input bit [255:0] main);
    import "DPI-C" function void npu_dpu_cell_enter_sums(
        input int unsigned cell_number, input bit [127:0] high, input bit [255:0] sum, input int unsigned clip);
    import "DPI-C" function void npu_dpu_cell_value(input int unsigned cell_number, output bit [255:0] value);
    import "DPI-C" function void npu_dpu_cell_lut_write(
        input int unsigned cell_number, input int unsigned entry, input int unsigned data);
    import "DPI-C" function int unsigned npu_dpu_cell_lut_read(
        input int unsigned cell_number, input int unsigned entry);

    int unsigned cell_number;
    initial cell_number = npu_dpu_cell_new();

    // What `start` has answered.
    bit sums, uses_ew, lut_live;

    // The look-up in steps of two elements, as in LutStage.
    bit [2:0] lut_step;
    bit [1:0] lut_came;
    bit lut_coming;
    wire ahead = lut_live & advance & valid[5];
    wire later = lut_live & valid[6] & (lut_step != 4);
    assign lut_may_advance = ~lut_live | ~valid[6] | (lut_step == 4);

    assign ew_take = ~late_floats & advance & valid[6];
    assign ew_may_advance = late_floats | ~valid[6] | ew_ready;

    // Stage k + 1 loads; the cell is not called when no register of its loads.
    wire [9:0] load = advance ? valid : 10'b0;
    bit [614:0] shown;
    bit [255:0] result;

    always @(posedge clk) begin
        if (settings != shown) begin
            npu_dpu_cell_settings(cell_number, settings);
            shown <= settings;
        end
        if (load != 0 || later || lut_coming) begin
            if (load[1] && bs_wanted) npu_dpu_cell_bs(cell_number, bs_operands);
            if (load[4] && bn_wanted) npu_dpu_cell_bn(cell_number, bn_operands);
            if (load[6] && uses_ew) npu_dpu_cell_ew(cell_number, ew_operand);
            npu_dpu_cell_step(
                cell_number,
                {7'b0, late_floats, floats, live, advance, lut_came, lut_coming, lut_step, ~later, ahead | later, load});
            if (load[0]) begin
                if (floats) npu_dpu_cell_enter(cell_number, float_main);
                else npu_dpu_cell_enter(cell_number, main);
                if (sums) npu_dpu_cell_enter_sums(cell_number, high, sum, {26'b0, clip});
            end
            if (load[9]) begin
                npu_dpu_cell_value(cell_number, result);
                value <= result;
            end
        end
        lut_coming <= ahead | later;
        if (later) begin
            lut_came <= lut_step[1:0];
            lut_step <= lut_step + 1;
        end else if (ahead) begin
            lut_came <= 0;
            lut_step <= 1;
        end else if (start | advance) lut_step <= 0;
        if (start) {sums, uses_ew, lut_live, bn_wanted, bs_wanted} <= 5'(npu_dpu_cell_start(cell_number, {31'b0, late_offset}));
        if (lut_read) lut_answer <= 16'(npu_dpu_cell_lut_read(cell_number, {21'b0, lut_table, lut_entry}));
        if (lut_write) npu_dpu_cell_lut_write(cell_number, {21'b0, lut_table, lut_entry}, {16'b0, lut_data});
        if (rst) begin
            lut_step <= 0;
            lut_came <= 0;
            lut_coming <= 0;
        end
    end
endmodule
