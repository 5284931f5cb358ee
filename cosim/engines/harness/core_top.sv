// The core with its inputs behind registers of the harness.
//
// The harness sets the pins of the next cycle before each clock edge. No combinational logic therefore
// depends on an input of the compiled model, which Verilator would evaluate a second time for every edge.
module core_top (
    input bit clk,
`ifdef RKCOSIM_GATES
    // clk_gates: one clock per group of blocks, raised with `clk` for the groups that are awake. clk_pins:
    // one per group of pins, raised when one of its pins changes: host, read data, responses, ready.
    input bit [`RKCOSIM_GATES-1:0] clk_gates,
    input bit [3:0] clk_pins,
    output bit [`RKCOSIM_GATES-1:0] awake,
`endif
    input bit rst,
    input bit counting,
    input bit [1:0] core_index,
    input bit [7:0] options,
    input bit [17:0] step_answer,
    input bit s_axil_awvalid, s_axil_wvalid, s_axil_bready, s_axil_arvalid, s_axil_rready,
    input bit [15:0] s_axil_awaddr, s_axil_araddr,
    input bit [31:0] s_axil_wdata,
    input bit [3:0] s_axil_wstrb,
    output bit s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid,
    output bit [1:0] s_axil_bresp, s_axil_rresp,
    output bit [31:0] s_axil_rdata,
    input bit m_axi_arready, m_axi_awready, m_axi_wready,
    input bit m_axi_rvalid, m_axi_rlast,
    input bit [255:0] m_axi_rdata,
    input bit [4:0] m_axi_rid,
    input bit [1:0] m_axi_rresp,
    input bit m_axi_bvalid,
    input bit [3:0] m_axi_bid,
    input bit [1:0] m_axi_bresp,
    output bit m_axi_arvalid, m_axi_awvalid, m_axi_wvalid, m_axi_wlast, m_axi_rready, m_axi_bready,
    output bit [39:0] m_axi_araddr, m_axi_awaddr,
    output bit [4:0] m_axi_arid,
    output bit [3:0] m_axi_awid,
    output bit [7:0] m_axi_arlen, m_axi_awlen,
    output bit [2:0] m_axi_arsize, m_axi_awsize,
    output bit [1:0] m_axi_arburst, m_axi_awburst,
    output bit [255:0] m_axi_wdata,
    output bit [31:0] m_axi_wstrb,
    output bit irq, idle, diag_valid,
    output bit [7:0] diag_code,
    output bit [3:0] diag_block,
    output bit [15:0] diag_register, events,
    output bit [31:0] diag_value,
    output bit [11:0] task_index,
    output bit [15:0] step_report,
    output bit watch_valid, watch_fetched,
    output bit [15:0] watch_offset,
    output bit [31:0] watch_value,
    output bit [6:0] busy_blocks,
    // For the performance counters; they keep their values while `counting` is low.
    output bit [47:0] activity,
    output bit [191:0] levels,
    output bit [11:0] macs, array_macs
);
    bit rst_r, counting_r;
    bit [1:0] core_index_r;
    bit [7:0] options_r;
    bit [17:0] step_answer_r;
    bit awvalid_r, wvalid_r, bready_r, arvalid_r, rready_r;
    bit [15:0] awaddr_r, araddr_r;
    bit [31:0] wdata_r;
    bit [3:0] wstrb_r;
    bit m_arready_r, m_awready_r, m_wready_r, m_rvalid_r, m_rlast_r, m_bvalid_r;
    bit [255:0] m_rdata_r;
    bit [4:0] m_rid_r;
    bit [1:0] m_rresp_r, m_bresp_r;
    bit [3:0] m_bid_r;

`ifdef RKCOSIM_GATES
    wire clk_host = clk_pins[0], clk_read = clk_pins[1], clk_response = clk_pins[2], clk_ready = clk_pins[3];
`else
    wire clk_host = clk, clk_read = clk, clk_response = clk, clk_ready = clk;
`endif

    always @(posedge clk_host) begin
        rst_r <= rst;
        counting_r <= counting;
        core_index_r <= core_index;
        options_r <= options;
        step_answer_r <= step_answer;
        awvalid_r <= s_axil_awvalid;
        wvalid_r <= s_axil_wvalid;
        bready_r <= s_axil_bready;
        arvalid_r <= s_axil_arvalid;
        rready_r <= s_axil_rready;
        awaddr_r <= s_axil_awaddr;
        araddr_r <= s_axil_araddr;
        wdata_r <= s_axil_wdata;
        wstrb_r <= s_axil_wstrb;
    end

    always @(posedge clk_read) begin
        m_rvalid_r <= m_axi_rvalid;
        if (m_axi_rvalid) begin
            m_rlast_r <= m_axi_rlast;
            m_rdata_r <= m_axi_rdata;
            m_rid_r <= m_axi_rid;
            m_rresp_r <= m_axi_rresp;
        end
    end

    always @(posedge clk_response) begin
        m_bvalid_r <= m_axi_bvalid;
        m_bid_r <= m_axi_bid;
        m_bresp_r <= m_axi_bresp;
    end

    always @(posedge clk_ready) begin
        m_arready_r <= m_axi_arready;
        m_awready_r <= m_axi_awready;
        m_wready_r <= m_axi_wready;
    end

    core core (
`ifdef RKCOSIM_GATES
`ifndef RKCOSIM_WATCHED
        .clk_gates,
`endif
        .awake,
`endif
        .clk, .rst(rst_r), .counting(counting_r), .core_index(core_index_r), .options(options_r),
        .step_answer(step_answer_r), .step_report,
        .s_axil_awvalid(awvalid_r), .s_axil_awready, .s_axil_awaddr(awaddr_r),
        .s_axil_wvalid(wvalid_r), .s_axil_wready, .s_axil_wdata(wdata_r), .s_axil_wstrb(wstrb_r),
        .s_axil_bvalid, .s_axil_bready(bready_r), .s_axil_bresp,
        .s_axil_arvalid(arvalid_r), .s_axil_arready, .s_axil_araddr(araddr_r),
        .s_axil_rvalid, .s_axil_rready(rready_r), .s_axil_rdata, .s_axil_rresp,
        .m_axi_arvalid, .m_axi_arready(m_arready_r), .m_axi_araddr, .m_axi_arid, .m_axi_arlen, .m_axi_arsize,
        .m_axi_arburst,
        .m_axi_rvalid(m_rvalid_r), .m_axi_rready, .m_axi_rdata(m_rdata_r), .m_axi_rid(m_rid_r),
        .m_axi_rresp(m_rresp_r), .m_axi_rlast(m_rlast_r),
        .m_axi_awvalid, .m_axi_awready(m_awready_r), .m_axi_awaddr, .m_axi_awid, .m_axi_awlen, .m_axi_awsize,
        .m_axi_awburst,
        .m_axi_wvalid, .m_axi_wready(m_wready_r), .m_axi_wdata, .m_axi_wstrb, .m_axi_wlast,
        .m_axi_bvalid(m_bvalid_r), .m_axi_bready, .m_axi_bid(m_bid_r), .m_axi_bresp(m_bresp_r),
        .irq, .idle, .diag_valid, .diag_code, .diag_block, .diag_register, .diag_value,
        .events, .task_index, .watch_valid, .watch_fetched, .watch_offset, .watch_value, .busy_blocks,
        .activity, .levels, .macs, .array_macs
    );

`ifdef RKCOSIM_PROBES
    // Values that a lockstep run observes inside the core: CBUF writes, and CORE's results when the DPU takes
    // them.
    import "DPI-C" function void rk_probe(
        input int core, input int kind, input int place0, input int place1, input bit [639:0] data);
    localparam int FEATURE_FILL = 0, WEIGHT_FILL = 1, CORE_OCTET = 2;
    always @(posedge clk) begin
        if (core.cna.cbuf.fill_valid)
            rk_probe(int'(core_index_r), core.cna.cbuf.take_weight ? WEIGHT_FILL : FEATURE_FILL,
                     // Fields as in rkcosim.rtl.layouts.CbufFill: entry, column, two; entry2, column2. A
                     // place is 4 * entry + column.
                     {17'd0, core.cna.cbuf.fill[268:256], core.cna.cbuf.fill[270:269]},
                     core.cna.cbuf.fill[271]
                         ? {17'd0, core.cna.cbuf.fill[284:272], core.cna.cbuf.fill[286:285]} : -1,
                     {384'd0, core.cna.cbuf.fill[255:0]});
        if (core.core_block.acc__valid & core.core_block.acc__ready)
            rk_probe(int'(core_index_r), CORE_OCTET, 0, 0, core.core_block.acc__payload[639:0]);
    end
`endif
endmodule
