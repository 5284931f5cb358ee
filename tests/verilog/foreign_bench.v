// SPDX-License-Identifier: Apache-2.0
// A testbench that knows nothing of this project: a host on AXI-Lite, a memory on AXI, and a log of what both
// did. `board` connects them to the module NPU, which is npu_core or the traffic generator below.
//
// Cycle n is the one that ends with rising edge n + 1: `edges` counts the edges before the present one.
// Every output changes 1 ns after its edge.
`timescale 1ns/1ps
`default_nettype none

// Writes and reads registers: a script of accesses, with gaps that a seed determines. Addresses and data of
// writes are sent independently of each other; requests do not wait for responses.
module host #(parameter integer ITEMS = 256) (
    input wire clk, input wire rst, input wire irq,
    output reg [15:0] awaddr, output reg awvalid, input wire awready,
    output reg [31:0] wdata, output reg [3:0] wstrb, output reg wvalid, input wire wready,
    input wire [1:0] bresp, input wire bvalid, output reg bready,
    output reg [15:0] araddr, output reg arvalid, input wire arready,
    input wire [31:0] rdata, input wire [1:0] rresp, input wire rvalid, output reg rready
);
    // kind: 0 end, 1 write, 2 read, 3 wait for all responses, 4 wait for the interrupt
    reg [63:0] script [0:ITEMS-1];  // kind, strobes, address, value
    integer edges = 0, log, seed = 1;
    integer aw_start [0:ITEMS-1], aw_done [0:ITEMS-1], w_start [0:ITEMS-1], w_done [0:ITEMS-1];
    integer ar_start [0:ITEMS-1], ar_done [0:ITEMS-1];
    integer w_order [0:ITEMS-1], r_order [0:ITEMS-1];
    integer writes = 0, reads = 0, answers = 0, values = 0;
    integer first, last, na, nw, nr, n;
    integer aw_now, w_now, ar_now;  // `edges` at the last edge that a process has seen
    reg done = 1'b0;

    always @(posedge clk) edges <= edges + 1;

    function integer gap(input integer most);
        gap = $unsigned($random(seed)) % 3 == 0 ? $unsigned($random(seed)) % (most + 1) : 0;
    endfunction

    initial begin
        for (n = 0; n < ITEMS; n = n + 1) script[n] = 64'd0;
        $readmemh("script.hex", script);
        log = $fopen("host.log");
        if (!$value$plusargs("seed=%d", seed)) seed = 1;
        awvalid = 0; wvalid = 0; bready = 0; arvalid = 0; rready = 0;
        awaddr = 0; wdata = 0; wstrb = 0; araddr = 0;
        @(posedge clk);
        while (rst) @(posedge clk);
        first = 0;
        while (script[first][63:60] != 0) begin
            if (script[first][63:60] == 3) begin
                while (answers != writes || values != reads) @(posedge clk);
                first = first + 1;
            end else if (script[first][63:60] == 4) begin
                while (irq !== 1'b1) @(posedge clk);
                first = first + 1;
            end else begin
                last = first;
                while (script[last][63:60] == 1 || script[last][63:60] == 2) last = last + 1;
                aw_now = edges; w_now = edges; ar_now = edges;
                fork
                    begin  // addresses of writes
                        for (na = first; na < last; na = na + 1) if (script[na][63:60] == 1) begin
                            repeat (gap(4)) begin @(posedge clk); aw_now = edges; end
                            aw_start[na] = aw_now + 1;
                            awaddr <= #1 script[na][47:32]; awvalid <= #1 1'b1;
                            @(posedge clk);
                            while (!awready) @(posedge clk);
                            aw_now = edges;
                            aw_done[na] = aw_now;
                            awvalid <= #1 1'b0;
                            w_order[writes] = na;
                            writes = writes + 1;
                        end
                    end
                    begin  // data of writes
                        for (nw = first; nw < last; nw = nw + 1) if (script[nw][63:60] == 1) begin
                            repeat (gap(4)) begin @(posedge clk); w_now = edges; end
                            w_start[nw] = w_now + 1;
                            wdata <= #1 script[nw][31:0]; wstrb <= #1 script[nw][51:48]; wvalid <= #1 1'b1;
                            @(posedge clk);
                            while (!wready) @(posedge clk);
                            w_now = edges;
                            w_done[nw] = w_now;
                            wvalid <= #1 1'b0;
                        end
                    end
                    begin  // addresses of reads
                        for (nr = first; nr < last; nr = nr + 1) if (script[nr][63:60] == 2) begin
                            repeat (gap(2)) begin @(posedge clk); ar_now = edges; end
                            ar_start[nr] = ar_now + 1;
                            araddr <= #1 script[nr][47:32]; arvalid <= #1 1'b1;
                            @(posedge clk);
                            while (!arready) @(posedge clk);
                            ar_now = edges;
                            ar_done[nr] = ar_now;
                            arvalid <= #1 1'b0;
                            r_order[reads] = nr;
                            reads = reads + 1;
                        end
                    end
                join
                first = last;
            end
        end
        while (answers != writes || values != reads) @(posedge clk);
        repeat (4) @(posedge clk);
        $fclose(log);
        done = 1'b1;
    end

    // Responses, taken with waits.
    integer sw = 77, sr = 99, item;
    always @(posedge clk) begin
        bready <= #1 ($unsigned($random(sw)) % 3) != 0;
        rready <= #1 ($unsigned($random(sr)) % 3) != 0;
        if (bvalid && bready) begin
            item = w_order[answers];
            $fdisplay(log, "write %h %h %b %0d %0d %0d %b", script[item][47:32], script[item][31:0],
                script[item][51:48], aw_start[item] < w_start[item] ? aw_start[item] : w_start[item],
                aw_done[item] > w_done[item] ? aw_done[item] : w_done[item], edges, bresp);
            answers = answers + 1;
        end
        if (rvalid && rready) begin
            item = r_order[values];
            $fdisplay(log, "read %h %h 1111 %0d %0d %0d %b", script[item][47:32], rdata,
                ar_start[item], ar_done[item], edges, rresp);
            values = values + 1;
        end
    end
endmodule

// A memory with waits on every channel, up to eight requests under way, read data of several ids mixed, and
// responses of writes out of order.
module memory #(parameter integer BEATS = 4096, parameter integer FIRST = 0) (
    input wire clk, input wire rst,
    input wire [4:0] arid, input wire [39:0] araddr, input wire [7:0] arlen, input wire arvalid,
    output reg arready,
    output reg [4:0] rid, output reg [255:0] rdata, output reg [1:0] rresp, output reg rlast,
    output reg rvalid, input wire rready,
    input wire [3:0] awid, input wire [39:0] awaddr, input wire [7:0] awlen, input wire awvalid,
    output reg awready,
    input wire [255:0] wdata, input wire [31:0] wstrb, input wire wlast, input wire wvalid, output reg wready,
    output reg [3:0] bid, output reg [1:0] bresp, output reg bvalid, input wire bready
);
    reg [255:0] beats [0:BEATS-1];
    integer edges = 0, log, seed = 5;
    // Requests under way, the oldest first.
    integer reads = 0, writes = 0, answers = 0;
    reg [4:0] r_id [0:8]; reg [39:0] r_addr [0:8]; integer r_len [0:8], r_at [0:8];
    integer r_start [0:8], r_taken [0:8], r_first [0:8];
    reg [3:0] w_id [0:8]; reg [39:0] w_addr [0:8]; integer w_len [0:8];
    integer w_start [0:8], w_taken [0:8], w_first [0:8], w_beats [0:8], w_bytes [0:8];
    integer b_of [0:8];  // complete writes: their places in the arrays above
    integer k, j, n, pick, since_ar = -1, since_aw = -1, bytes, place, now;
    reg oldest;

    always @(posedge clk) edges <= edges + 1;

    initial begin
        $readmemh("memory.hex", beats);
        log = $fopen("memory.log");
        if (!$value$plusargs("seed=%d", seed)) seed = 5;
        arready = 0; rvalid = 0; awready = 0; wready = 0; bvalid = 0;
        rid = 0; rdata = 0; rresp = 0; rlast = 0; bid = 0; bresp = 0;
    end

    function integer chance(input integer of);
        chance = $unsigned($random(seed)) % of;
    endfunction

    always @(posedge clk) if (!rst) begin
        // Addresses.
        if (arvalid && since_ar < 0) since_ar = edges;
        if (arvalid && arready) begin
            r_id[reads] = arid; r_addr[reads] = araddr; r_len[reads] = arlen; r_at[reads] = 0;
            r_start[reads] = since_ar; r_taken[reads] = edges; r_first[reads] = -1;
            reads = reads + 1; since_ar = -1;
        end
        arready <= #1 reads < 7 && chance(3) != 0;
        if (awvalid && since_aw < 0) since_aw = edges;
        if (awvalid && awready) begin
            w_id[writes] = awid; w_addr[writes] = awaddr; w_len[writes] = awlen;
            w_start[writes] = since_aw; w_taken[writes] = edges; w_first[writes] = -1;
            w_beats[writes] = 0; w_bytes[writes] = 0;
            writes = writes + 1; since_aw = -1;
        end
        awready <= #1 writes < 7 && chance(3) != 0;

        // Data of writes: of the oldest write that is not complete.
        if (wvalid && wready) begin
            k = 0;
            while (w_beats[k] > w_len[k]) k = k + 1;
            if (w_first[k] < 0) w_first[k] = edges;
            place = (w_addr[k] >> 5) - FIRST + w_beats[k];
            for (n = 0; n < 32; n = n + 1) if (wstrb[n]) begin
                beats[place][8*n +: 8] = wdata[8*n +: 8];
                w_bytes[k] = w_bytes[k] + 1;
            end
            w_beats[k] = w_beats[k] + 1;
            if (wlast !== (w_beats[k] > w_len[k])) $display("wlast is wrong");
        end
        wready <= #1 chance(4) != 0;

        // Responses of writes: any complete one that is the oldest of its id.
        if (bvalid && bready) begin
            $fdisplay(log, "write %0d %h %0d %0d %0d %0d %0d %0d", w_id[now], w_addr[now], w_len[now] + 1,
                w_bytes[now], w_start[now], w_taken[now], w_first[now], edges);
            for (j = now; j < writes - 1; j = j + 1) begin
                w_id[j] = w_id[j+1]; w_addr[j] = w_addr[j+1]; w_len[j] = w_len[j+1];
                w_start[j] = w_start[j+1]; w_taken[j] = w_taken[j+1]; w_first[j] = w_first[j+1];
                w_beats[j] = w_beats[j+1]; w_bytes[j] = w_bytes[j+1];
            end
            writes = writes - 1;
            bvalid <= #1 1'b0;
        end
        if ((!bvalid || bready) && writes > 0 && chance(3) == 0) begin
            pick = chance(writes);
            oldest = w_beats[pick] > w_len[pick];
            for (j = 0; j < pick; j = j + 1) if (w_id[j] == w_id[pick]) oldest = 0;
            if (oldest) begin
                now = pick;
                bvalid <= #1 1'b1; bid <= #1 w_id[pick];
            end
        end

        // Read data: of any request that is the oldest of its id.
        if (rvalid && rready) rvalid <= #1 1'b0;
        if ((!rvalid || rready) && reads > 0 && chance(4) != 0) begin
            pick = chance(reads);
            oldest = edges > r_taken[pick] + 3;
            for (j = 0; j < pick; j = j + 1) if (r_id[j] == r_id[pick]) oldest = 0;
            if (oldest) begin
                place = (r_addr[pick] >> 5) - FIRST + r_at[pick];
                rvalid <= #1 1'b1; rid <= #1 r_id[pick]; rdata <= #1 beats[place];
                rlast <= #1 r_at[pick] == r_len[pick];
                // The beat is taken in the cycle after this edge or later: `pending` logs it.
                r_at[pick] = r_at[pick] + 1;
                sent_id = r_id[pick];
                sent_last = r_at[pick] > r_len[pick];
                sent_start = r_start[pick]; sent_taken = r_taken[pick]; sent_addr = r_addr[pick];
                sent_len = r_len[pick]; sent_at = r_at[pick];
                if (sent_last) begin
                    for (j = pick; j < reads - 1; j = j + 1) begin
                        r_id[j] = r_id[j+1]; r_addr[j] = r_addr[j+1]; r_len[j] = r_len[j+1];
                        r_at[j] = r_at[j+1]; r_start[j] = r_start[j+1]; r_taken[j] = r_taken[j+1];
                    end
                    reads = reads - 1;
                end
            end
        end
    end

    // The log of reads: the first beat of each id's burst, and its last.
    reg [4:0] sent_id; reg sent_last; reg [39:0] sent_addr;
    integer sent_start, sent_taken, sent_len, sent_at;
    integer first_of [0:31];
    always @(posedge clk) if (!rst && rvalid && rready) begin
        if (seen_at == 1) first_of[rid] = edges;
        if (rlast)
            $fdisplay(log, "read %0d %h %0d %0d %0d %0d %0d %0d", rid, seen_addr, seen_len + 1,
                (seen_len + 1) * 32, seen_start, seen_taken, first_of[rid], edges);
    end
    // What the present beat belongs to: registers like rvalid itself.
    reg [39:0] seen_addr; integer seen_start, seen_taken, seen_len, seen_at;
    always @(negedge clk) begin
        seen_addr = sent_addr; seen_start = sent_start; seen_taken = sent_taken; seen_len = sent_len;
        seen_at = sent_at;
    end
endmodule

// Stands for the core in tests that only need traffic: registers on AXI-Lite that take several requests, and
// a master that fetches a list and moves data with several ids.
module traffic #(parameter integer BURSTS = 24) (
    input wire clk, input wire rst, output reg irq,
    input wire [15:0] s_axil_awaddr, input wire s_axil_awvalid, output reg s_axil_awready,
    input wire [31:0] s_axil_wdata, input wire [3:0] s_axil_wstrb, input wire s_axil_wvalid,
    output reg s_axil_wready, output reg [1:0] s_axil_bresp, output reg s_axil_bvalid, input wire s_axil_bready,
    input wire [15:0] s_axil_araddr, input wire s_axil_arvalid, output reg s_axil_arready,
    output reg [31:0] s_axil_rdata, output reg [1:0] s_axil_rresp, output reg s_axil_rvalid,
    input wire s_axil_rready,
    output reg [4:0] m_axi_arid, output reg [39:0] m_axi_araddr, output reg [7:0] m_axi_arlen,
    output reg m_axi_arvalid, input wire m_axi_arready,
    input wire [4:0] m_axi_rid, input wire [255:0] m_axi_rdata, input wire [1:0] m_axi_rresp,
    input wire m_axi_rlast, input wire m_axi_rvalid, output reg m_axi_rready,
    output reg [3:0] m_axi_awid, output reg [39:0] m_axi_awaddr, output reg [7:0] m_axi_awlen,
    output reg m_axi_awvalid, input wire m_axi_awready,
    output reg [255:0] m_axi_wdata, output reg [31:0] m_axi_wstrb, output reg m_axi_wlast,
    output reg m_axi_wvalid, input wire m_axi_wready,
    input wire [3:0] m_axi_bid, input wire [1:0] m_axi_bresp, input wire m_axi_bvalid, output reg m_axi_bready
);
    integer seed = 21;
    function integer chance(input integer of);
        chance = $unsigned($random(seed)) % of;
    endfunction

    reg [31:0] registers [0:65535];
    reg [15:0] aw [0:15]; reg [31:0] wd [0:15]; reg [3:0] ws [0:15]; reg [15:0] ar [0:15];
    integer aws = 0, wds = 0, ars = 0, j;
    integer kicked = 0, asked = 0, got = 0, sent = 0, answered = 0, beat = 0, taken = 0, n;
    reg [7:0] len [0:63];
    reg running = 1'b0;

    initial begin
        for (j = 0; j < 65536; j = j + 1) registers[j] = 32'd0;
        irq = 0;
        s_axil_awready = 0; s_axil_wready = 0; s_axil_bvalid = 0; s_axil_bresp = 0;
        s_axil_arready = 0; s_axil_rvalid = 0; s_axil_rdata = 0; s_axil_rresp = 0;
        m_axi_arvalid = 0; m_axi_arid = 0; m_axi_araddr = 0; m_axi_arlen = 0; m_axi_rready = 0;
        m_axi_awvalid = 0; m_axi_awid = 0; m_axi_awaddr = 0; m_axi_awlen = 0;
        m_axi_wvalid = 0; m_axi_wdata = 0; m_axi_wstrb = 0; m_axi_wlast = 0; m_axi_bready = 0;
    end

    always @(posedge clk) if (!rst) begin
        // Registers.
        if (s_axil_awvalid && s_axil_awready) begin aw[aws] = s_axil_awaddr; aws = aws + 1; end
        if (s_axil_wvalid && s_axil_wready) begin
            wd[wds] = s_axil_wdata; ws[wds] = s_axil_wstrb; wds = wds + 1;
        end
        s_axil_awready <= #1 aws < 4 && chance(2) != 0;
        s_axil_wready <= #1 wds < 4 && chance(2) != 0;
        if (s_axil_bvalid && s_axil_bready) s_axil_bvalid <= #1 1'b0;
        if ((!s_axil_bvalid || s_axil_bready) && aws > 0 && wds > 0 && chance(3) != 0) begin
            if (ws[0] == 4'hf) begin
                if (aw[0] == 16'h0024) begin registers[16'h0028] = 0; irq <= #1 1'b0; end
                else registers[aw[0]] = wd[0];
                if (aw[0] == 16'h0008 && wd[0][0]) begin running = 1'b1; asked = 0; sent = 0; end
            end
            s_axil_bresp <= #1 ws[0] == 4'hf ? 2'b00 : 2'b10;
            s_axil_bvalid <= #1 1'b1;
            for (j = 0; j < 15; j = j + 1) begin aw[j] = aw[j+1]; wd[j] = wd[j+1]; ws[j] = ws[j+1]; end
            aws = aws - 1; wds = wds - 1;
        end
        if (s_axil_arvalid && s_axil_arready) begin ar[ars] = s_axil_araddr; ars = ars + 1; end
        s_axil_arready <= #1 ars < 4;
        if (s_axil_rvalid && s_axil_rready) s_axil_rvalid <= #1 1'b0;
        if ((!s_axil_rvalid || s_axil_rready) && ars > 0 && chance(3) == 0) begin
            s_axil_rdata <= #1 registers[ar[0]];
            s_axil_rvalid <= #1 1'b1;
            for (j = 0; j < 15; j = j + 1) ar[j] = ar[j+1];
            ars = ars - 1;
        end

        // Bursts: the list first, then reads and writes of several clients.
        if (m_axi_arvalid && m_axi_arready) m_axi_arvalid <= #1 1'b0;
        if (running && (!m_axi_arvalid || m_axi_arready) && asked < BURSTS && chance(2) == 0) begin
            m_axi_arvalid <= #1 1'b1;
            if (asked == 0) begin
                m_axi_arid <= #1 5'd7; m_axi_araddr <= #1 {8'd0, registers[16'h0010]};
                m_axi_arlen <= #1 registers[16'h0014][15:1];
            end else begin
                m_axi_arid <= #1 chance(7); m_axi_araddr <= #1 40'h100000 + 32 * chance(256);
                m_axi_arlen <= #1 chance(8);
            end
            asked = asked + 1;
        end
        m_axi_rready <= #1 chance(4) != 0;
        if (m_axi_rvalid && m_axi_rready && m_axi_rlast) got = got + 1;
        if (m_axi_awvalid && m_axi_awready) begin m_axi_awvalid <= #1 1'b0; taken = taken + 1; end
        if (running && (!m_axi_awvalid || m_axi_awready) && sent < BURSTS && chance(3) == 0) begin
            n = chance(6);
            m_axi_awvalid <= #1 1'b1; m_axi_awid <= #1 chance(2);
            m_axi_awaddr <= #1 40'h110000 + 32 * chance(64);
            m_axi_awlen <= #1 n;
            len[sent] = n;
            sent = sent + 1;
        end
        if (m_axi_wvalid && m_axi_wready) begin
            m_axi_wvalid <= #1 1'b0;
            if (m_axi_wlast) begin kicked = kicked + 1; beat = 0; end else beat = beat + 1;
        end
        if (running && (!m_axi_wvalid || m_axi_wready) && kicked < taken && chance(3) != 0) begin
            m_axi_wvalid <= #1 1'b1; m_axi_wlast <= #1 beat == len[kicked];
            m_axi_wdata <= #1 {8{$random(seed)}};
            m_axi_wstrb <= #1 chance(3) == 0 ? $random(seed) : 32'hffff_ffff;
        end
        m_axi_bready <= #1 chance(3) != 0;
        if (m_axi_bvalid && m_axi_bready) answered = answered + 1;
        if (running && got == BURSTS && answered == BURSTS) begin
            running = 1'b0;
            registers[16'h0028] = registers[16'h0020] & 32'h300;
            irq <= #1 1'b1;
        end
    end
endmodule

module chip (
    input wire ref_clk, input wire resetn
);
    wire int_n;
    wire [15:0] wa, ra; wire [31:0] wv, rv; wire [3:0] wb; wire [1:0] br, rr;
    wire wa_v, wa_r, wv_v, wv_r, b_v, b_r, ra_v, ra_r, rv_v, rv_r, done;
    wire [4:0] rq_id, rd_id; wire [39:0] rq_a, wq_a; wire [7:0] rq_n, wq_n; wire [3:0] wq_id, ans_id;
    wire [255:0] rd, wd; wire [31:0] wd_b; wire [1:0] rd_s, ans_s;
    wire rq_v, rq_r, rd_v, rd_r, rd_l, wq_v, wq_r, wd_v, wd_r, wd_l, ans_v, ans_r;
    wire irq;
    wire rst = ~resetn;
    assign int_n = ~irq;

    host cpu (.clk(ref_clk), .rst(rst), .irq(irq), .awaddr(wa), .awvalid(wa_v), .awready(wa_r), .wdata(wv),
        .wstrb(wb), .wvalid(wv_v), .wready(wv_r), .bresp(br), .bvalid(b_v), .bready(b_r), .araddr(ra),
        .arvalid(ra_v), .arready(ra_r), .rdata(rv), .rresp(rr), .rvalid(rv_v), .rready(rv_r));
    memory #(.FIRST(32'h100000 >> 5)) ddr (.clk(ref_clk), .rst(rst), .arid(rq_id), .araddr(rq_a), .arlen(rq_n),
        .arvalid(rq_v), .arready(rq_r), .rid(rd_id), .rdata(rd), .rresp(rd_s), .rlast(rd_l), .rvalid(rd_v),
        .rready(rd_r), .awid(wq_id), .awaddr(wq_a), .awlen(wq_n), .awvalid(wq_v), .awready(wq_r), .wdata(wd),
        .wstrb(wd_b), .wlast(wd_l), .wvalid(wd_v), .wready(wd_r), .bid(ans_id), .bresp(ans_s), .bvalid(ans_v),
        .bready(ans_r));
    `NPU accelerator (.clk(ref_clk), .rst(rst), .irq(irq),
        .s_axil_awaddr(wa), .s_axil_awvalid(wa_v), .s_axil_awready(wa_r), .s_axil_wdata(wv),
        .s_axil_wstrb(wb), .s_axil_wvalid(wv_v), .s_axil_wready(wv_r), .s_axil_bresp(br),
        .s_axil_bvalid(b_v), .s_axil_bready(b_r), .s_axil_araddr(ra), .s_axil_arvalid(ra_v),
        .s_axil_arready(ra_r), .s_axil_rdata(rv), .s_axil_rresp(rr), .s_axil_rvalid(rv_v),
        .s_axil_rready(rv_r),
        .m_axi_arid(rq_id), .m_axi_araddr(rq_a), .m_axi_arlen(rq_n), .m_axi_arvalid(rq_v),
        .m_axi_arready(rq_r), .m_axi_rid(rd_id), .m_axi_rdata(rd), .m_axi_rresp(rd_s), .m_axi_rlast(rd_l),
        .m_axi_rvalid(rd_v), .m_axi_rready(rd_r), .m_axi_awid(wq_id), .m_axi_awaddr(wq_a),
        .m_axi_awlen(wq_n), .m_axi_awvalid(wq_v), .m_axi_awready(wq_r), .m_axi_wdata(wd),
        .m_axi_wstrb(wd_b), .m_axi_wlast(wd_l), .m_axi_wvalid(wd_v), .m_axi_wready(wd_r),
        .m_axi_bid(ans_id), .m_axi_bresp(ans_s), .m_axi_bvalid(ans_v), .m_axi_bready(ans_r)
        `MORE_PORTS);
    assign done = cpu.done;
endmodule

// The clock may stop and change its period (plusarg `uneven`).
module board;
    reg osc = 1'b0, resetn = 1'b0;
    integer half = 5, ticks = 0;
    reg uneven;
    chip u1 (.ref_clk(osc), .resetn(resetn));

    initial begin
        uneven = $test$plusargs("uneven");
        $dumpfile("board.vcd");
        $dumpvars(`LEVELS, board);
        #3;
        while (!u1.done && ticks < 40000) begin
            #half osc = 1'b1;
            #half osc = 1'b0;
            ticks = ticks + 1;
            if (ticks == 8) #1 resetn = 1'b1;
            if (uneven && ticks % 61 == 0) half = 3 + ticks % 5;
            if (uneven && ticks % 97 == 0) #173;
        end
        $display("%0s after %0d ticks", u1.done ? "done" : "TIME OUT", ticks);
        $finish;
    end
endmodule

`default_nettype wire
