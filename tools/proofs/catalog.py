"""All proofs, in the order in which the page shows them."""

from __future__ import annotations

from tools.proofs.plan import Fault, Proof

FIFO = "amaranth.lib.fifo"
BUS = "rkcosim.rtl.bus"

PROOFS = (
    Proof(
        "sync_fifo",
        "amaranth.lib.fifo: SyncFIFO",
        "streams.sync_fifo",
        (
            Fault(
                FIFO,
                "self.w_rdy.eq(self.level != self.depth),",
                "self.w_rdy.eq(1),",
                "A full FIFO takes a value.",
            ),
        ),
        reduced="8 bits, 2 values",
    ),
    Proof(
        "sync_fifo_buffered",
        "amaranth.lib.fifo: SyncFIFOBuffered",
        "streams.sync_fifo_buffered",
        (
            Fault(
                FIFO,
                "do_inner_read  = inner_r_rdy & (~self.r_rdy | self.r_en)",
                "do_inner_read  = inner_r_rdy",
                "A value that was not taken is replaced by the next one.",
            ),
        ),
        reduced="8 bits, 4 values",
    ),
    Proof(
        "skid_buffer",
        "rtl/bus.py: SkidBuffer",
        "streams.skid_buffer",
        (
            Fault(
                BUS,
                "with m.Elif(self.i.valid & room):",
                "with m.Elif(self.i.valid):",
                "A kept value is overwritten while the buffer is full.",
            ),
        ),
    ),
    Proof(
        "diagnostic_merge",
        "rtl/bus.py: DiagnosticMerge",
        "streams.diagnostic_merge",
        (
            Fault(
                BUS,
                "kept.r_en.eq(~Cat(earlier).any()),",
                "kept.r_en.eq(1),",
                "An event is lost when two ports have one.",
            ),
        ),
        reduced="2 ports, 2 events for each, 4 bits of an event",
    ),
    Proof(
        "axi_lite_rules",
        "rtl/bus.py: AxiLiteSlave",
        "buses.axi_lite_rules",
        (
            Fault(
                BUS,
                "write_ready.eq(aw_held & w_held & ~axil.bvalid),",
                "write_ready.eq(aw_held & w_held),",
                "A write is performed while an earlier response waits.",
            ),
        ),
    ),
    Proof(
        "axi_lite_accesses",
        "rtl/bus.py: AxiLiteSlave",
        "buses.axi_lite_accesses",
        (
            Fault(
                BUS,
                "        with m.If(ar_room):\n            m.d.sync += raddr.eq(axil.araddr)",
                "        m.d.sync += raddr.eq(axil.araddr)",
                "The address of a held read follows the bus.",
            ),
        ),
    ),
    Proof(
        "axi_lite_strobes",
        "rtl/bus.py: AxiLiteSlave",
        "buses.axi_lite_strobes",
        (
            Fault(
                BUS,
                "bus.write.eq(write_go & whole),",
                "bus.write.eq(write_go),",
                "A write of single bytes is performed.",
            ),
        ),
    ),
    Proof(
        "register_fabric",
        "rtl/regbus.py: RegisterFabric",
        "buses.register_fabric",
        (
            Fault(
                "rkcosim.rtl.regbus",
                "fetch.ready.eq(ready),",
                "fetch.ready.eq(ready), host.ready.eq(ready),",
                "The host is told that its access has taken place when the command stream's has.",
            ),
        ),
    ),
    Proof(
        "register_fabric_waits",
        "rtl/regbus.py: RegisterFabric",
        "buses.register_fabric_waits",
        (
            Fault(
                "rkcosim.rtl.regbus",
                "m.d.sync += [fetch_turn.eq(~use_fetch), refused.eq(0)]",
                "m.d.sync += [fetch_turn.eq(use_fetch), refused.eq(0)]",
                "A delayed write keeps the fabric.",
            ),
        ),
    ),
    Proof(
        "dma_registers",
        "rtl/npu/dma_registers.py: DmaRegisters",
        "buses.dma_registers",
        (
            Fault(
                "rkcosim.rtl.npu.dma_registers",
                "self.read_limit.eq(stored.RD_OS_CNT), self.write_limit.eq(stored.WR_OS_CNT)",
                "self.read_limit.eq(stored.WR_OS_CNT), self.write_limit.eq(stored.WR_OS_CNT)",
                "Reads use the limit of writes.",
            ),
        ),
    ),
    Proof(
        "pc_registers",
        "rtl/pc_registers.py: PcRegisters",
        "buses.pc_registers",
        (
            Fault(
                "rkcosim.rtl.pc_registers",
                'm.d.sync += write(_PC["REGISTER_AMOUNTS"], self.link_value)',
                'm.d.sync += write(_PC["REGISTER_AMOUNTS"], port.wdata)',
                "A link loads the amount from the host's bus.",
            ),
        ),
    ),
    Proof(
        "pc_words",
        "rtl/pc_dma.py: PcDma",
        "chains.pc_words",
        (
            Fault(
                "rkcosim.rtl.pc_task",
                "            m.d.comb += self.may_start.eq(~self.active)",
                "            m.d.comb += self.may_start.eq(1)",
                "An op-enable word does not wait for the end of the task before.",
            ),
            Fault(
                "rkcosim.rtl.pc_words",
                "m.d.comb += [self.enable.eq(right), self.malformed.eq(~right)]",
                "m.d.comb += [self.enable.eq(1), self.malformed.eq(~right)]",
                "An op-enable word with another offset starts blocks.",
            ),
        ),
        reduced="a stream of words instead of the fetcher",
        unchecked="a word may stop being executed, since `settled` and `dpu_busy` are free",
        together=120,
    ),
    Proof(
        "pc_chain",
        "rtl/pc_dma.py: PcDma",
        "chains.pc_chain",
        (
            Fault(
                "rkcosim.rtl.pc_lists",
                "early = self.held & base_seen & amount_seen & prefetch & more",
                "early = self.held & base_seen & amount_seen & prefetch",
                "A list is fetched behind the last one.",
            ),
            Fault(
                "rkcosim.rtl.pc_lists",
                "m.d.comb += self.drains.eq(1)\n                with m.If(~self.active):",
                "m.d.comb += self.drains.eq(1)\n                with m.If(1):",
                "A kick ends while its last task runs.",
            ),
            Fault(
                "rkcosim.rtl.pc_lists",
                "                with m.Elif(base_seen):\n",
                "                with m.Elif(1):\n",
                "A list without a link is followed by a list at the address of this one.",
            ),
        ),
        reduced="a stream of words instead of the fetcher, numbers of lists of 3 bits (7 tasks)",
        depth=28,
        slow=True,
        seconds=300,
        unchecked="a word may stop being executed, since `settled` and `dpu_busy` are free",
        together=300,
    ),
    Proof(
        "interrupt_unit",
        "rtl/interrupt.py: InterruptUnit",
        "control.interrupt_unit",
        (
            Fault(
                "rkcosim.rtl.interrupt",
                "raw.eq((raw & ~clear) | self.events)",
                "raw.eq((raw | self.events) & ~clear)",
                "An event in the cycle of its clear is lost.",
            ),
            Fault(
                "rkcosim.rtl.interrupt",
                "risen.eq(self.last_task & (self.events & mask).any())",
                "risen.eq((self.events & mask).any())",
                "Events of every task raise the line.",
            ),
        ),
    ),
    Proof(
        "register_group_stability",
        "rtl/regfile.py: RegisterFile",
        "control.register_group_stability",
        (
            Fault(
                "rkcosim.rtl.regfile",
                "m.d.comb += held.eq(enable.bit_select(state.POINTER, 1) | sweeping)",
                "m.d.comb += held.eq(sweeping)",
                "Registers of an enabled group are written.",
            ),
        ),
        reduced="block PPU_RDMA, 32 words, 4 bits of one register",
    ),
    Proof(
        "register_groups",
        "rtl/regfile.py: RegisterFile",
        "control.register_groups",
        (
            Fault(
                "rkcosim.rtl.regfile",
                "pending.eq(~running & ~sweeping & enable.bit_select(state.EXECUTER, 1)),",
                "pending.eq(~sweeping & enable.bit_select(state.EXECUTER, 1)),",
                "A task starts while one runs.",
            ),
        ),
        reduced="block PPU_RDMA, 32 words, without ping-pong",
    ),
    Proof(
        "core_steps",
        "rtl/co_work.py: CoreSteps",
        "control.core_steps",
        (
            Fault(
                "rkcosim.rtl.co_work",
                "(mine.step == 0) | alone | (heard & (other.floor >= mine.step) & (~co_works | reached))",
                "(mine.step == 0) | alone | ((other.floor >= mine.step) & (~co_works | reached))",
                "An answer to an earlier kick lets a task start.",
            ),
        ),
    ),
    Proof(
        "lock_step",
        "rtl/co_work.py: CoreSteps, StepUnit",
        "control.lock_step",
        (
            Fault(
                "rkcosim.rtl.co_work",
                "heard & (other.floor >= mine.step) & (~co_works | reached)",
                "heard & (~co_works | reached)",
                "A core does not wait for the others.",
            ),
        ),
        reduced="2 cores, an exchange in every second cycle",
        slow=True,
        seconds=20,
    ),
    Proof(
        "counters",
        "rtl/counters.py: CoreCounters",
        "control.counters",
        (
            Fault(
                "rkcosim.rtl.counters",
                "m.d.sync += counting.eq(self.enable)",
                "m.d.comb += counting.eq(self.enable)",
                "A cycle before the switch is counted.",
            ),
        ),
    ),
    Proof(
        "fill_turn",
        "rtl/npu/cbuf.py: FillTurn",
        "control.fill_turn",
        (
            Fault(
                "rkcosim.rtl.npu.cbuf",
                "m.d.sync += self.weight.eq(~self.take_weight)",
                "m.d.sync += self.weight.eq(self.take_weight)",
                "The side that was served goes first again.",
            ),
        ),
    ),
    Proof(
        "cbuf_contents",
        "rtl/npu/cbuf.py: Cbuf",
        "control.cbuf_contents",
        (
            Fault(
                "rkcosim.rtl.npu.cbuf",
                "write.addr.eq(Mux(hit0, fill.entry[1:], fill.entry2[1:])),",
                "write.addr.eq(fill.entry[1:]),",
                "The second atom of a fill goes to the entry of the first.",
            ),
        ),
        reduced="4 entries, 1 bit of each atom",
    ),
    Proof(
        "burst_splitter",
        "rtl/npu/ddma.py: BurstSplitter",
        "dma.burst_splitter",
        (
            Fault(
                "rkcosim.rtl.npu.ddma",
                "self.more.eq(final_beat >= PAGE_BEATS),",
                "self.more.eq(final_beat > PAGE_BEATS),",
                "A burst that ends one beat behind a page is not split.",
            ),
            Fault(
                "rkcosim.rtl.npu.ddma",
                "                    last.eq(chosen),\n",
                "",
                "The first client always goes first.",
            ),
        ),
    ),
    Proof(
        "split_tracker",
        "rtl/npu/ddma.py: SplitTracker",
        "dma.split_tracker",
        (
            Fault(
                "rkcosim.rtl.npu.ddma",
                "read.addr.eq(Cat(tails[self.pop_id], self.pop_id)),",
                "read.addr.eq(Cat(heads[self.pop_id], self.pop_id)),",
                "The flag of the newest burst is returned.",
            ),
        ),
        reduced="2 clients, 4 bursts",
    ),
    Proof(
        "ddma_bus",
        "rtl/npu/ddma.py: Ddma",
        "dma.ddma_bus",
        (
            Fault(
                "rkcosim.rtl.npu.ddma",
                "go.eq(todo.r_rdy & (taken != 0)),",
                "go.eq(todo.r_rdy),",
                "Data are sent before their address.",
            ),
        ),
        reduced="addresses of 8 KiB, bursts of 4 beats, 3 outstanding",
        depth=12,
        slow=True,
        seconds=20,
    ),
    Proof(
        "write_buffer",
        "rtl/npu/write_buffer.py: WriteBuffer",
        "dma.write_buffer_whole",
        (
            Fault(
                "rkcosim.rtl.npu.write_buffer",
                "(complete != 0)",
                "1",
                "A request leaves before its beats are there.",
            ),
        ),
        reduced="bursts of 4 beats, 3 bits of data",
        slow=True,
    ),
    Proof(
        "atom_writer",
        "rtl/npu/atom_writer.py: AtomWriter",
        "dma.atom_writer",
        (
            Fault(
                "rkcosim.rtl.npu.atom_writer",
                "flush.eq(final & spill),",
                "flush.eq(0),",
                "The last atom of an odd run is not written.",
            ),
        ),
        reduced="runs of 7 atoms, 4 bits of each atom",
        slow=True,
    ),
    Proof(
        "burst_reader",
        "rtl/npu/cna_fetch.py: BurstReader",
        "dma.burst_reader",
        (
            Fault(
                "rkcosim.rtl.npu.cna_fetch",
                "joins.eq(self.run.valid & short & ~empty & (run.addr == end)),",
                "joins.eq(self.run.valid & short & ~empty),",
                "A run is joined to one that ends elsewhere.",
            ),
            Fault(
                "rkcosim.rtl.npu.cna_fetch",
                "borders.w_data.eq(Cat(addr[0], addr[0] ^ count[0])),",
                "borders.w_data.eq(Cat(addr[0], count[0])),",
                "The half behind a burst that begins at an odd atom is taken as an atom.",
            ),
        ),
        reduced="runs of 3 atoms in 1 KiB, 32 beats of 12 bits buffered, 2 requests open",
        depth=10,
        slow=True,
        seconds=60,
    ),
    Proof(
        "operand_reader",
        "rtl/npu/dpu_rdma_operands.py: OperandReader",
        "dma.operand_reader",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_rdma_operands",
                "pop.eq(take & (upper | (left == 1))),",
                "pop.eq(take & upper),",
                "The last beat stays in the buffer when only its lower half is used.",
            ),
            Fault(
                "rkcosim.rtl.npu.dpu_rdma_operands",
                "m.d.comb += [following.eq(Mux(use[1], 2, 3)), ends.eq(~use[1] & ~use[2])]",
                "m.d.comb += [following.eq(2), ends.eq(~use[1] & ~use[2])]",
                "Operands of MUL are taken as those of CPEND.",
            ),
        ),
        reduced="3 blocks, bursts of 2 beats, a buffer of 4 beats, 5 bits of each atom",
        slow=True,
        seconds=20,
    ),
    Proof(
        "stripes_of_pool",
        "rtl/npu/ppu_stripes.py: PpuStripes",
        "reorder.stripes_of_pool",
        (
            Fault(
                "rkcosim.rtl.npu.ppu_stripes",
                "self.i.ready.eq(filling & ~Mux(bank, full[1], full[0])),",
                "self.i.ready.eq(filling),",
                "A stripe is overwritten while it is sent.",
            ),
        ),
        reduced="stripes of 2 pixels, 7 pixels, 7 surfaces in groups of 2, 4 bits of each atom",
        unchecked="a read of another row may give another value in each cycle",
        together=120,
    ),
    Proof(
        "operand_table",
        "rtl/npu/dpu_table.py: OperandTable",
        "reorder.operand_table",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_table",
                "self.available.eq(~self.wanted | (used > self.octet)),",
                "self.available.eq(~self.wanted | (used >= self.octet)),",
                "An octet is looked up before it has been loaded.",
            ),
        ),
        reduced="4 bits of the operands of an octet",
    ),
    Proof(
        "stripe_buffer",
        "rtl/npu/dpu_writer.py: StripeBuffer",
        "reorder.stripe_buffer",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_writer",
                "surface.eq(given.surface + (other & given.upward)),",
                "surface.eq(given.surface),",
                "The atom of the next surface is that of the same surface.",
            ),
        ),
        reduced="4 bits of each atom, 8 to 32 bits of an element",
    ),
    Proof(
        "list_fetcher",
        "rtl/list_fetch.py: ListFetcher",
        "dma.list_fetcher",
        (
            Fault(
                "rkcosim.rtl.list_fetch",
                "left.eq((self.amount + self.base[0] + 2) >> 1)",
                "left.eq((self.amount + self.base[0] + 3) >> 1)",
                "A beat behind the list is read.",
            ),
            Fault(
                "rkcosim.rtl.list_fetch",
                "position.eq(Mux(now.half, 2, 0)),",
                "position.eq(0),",
                "The first half beat is not skipped.",
            ),
        ),
        reduced="lists of 8 fetches, a FIFO of 4 beats",
        slow=True,
        seconds=600,
    ),
    Proof(
        "atom_reader",
        "rtl/npu/atom_reader.py: AtomReader",
        "dma.atom_reader",
        (
            Fault(
                "rkcosim.rtl.npu.atom_reader",
                "beats.r_en.eq(took & (first_half | last)),",
                "beats.r_en.eq(took & first_half),",
                "The last beat of a run stays in the buffer when only its lower half is used.",
            ),
        ),
        reduced="runs of 7 atoms",
    ),
    Proof(
        "atom_reader_bursts",
        "rtl/npu/atom_reader.py: AtomReader",
        "dma.atom_reader_bursts",
        (
            Fault(
                "rkcosim.rtl.npu.atom_reader",
                "limit.eq(Mux(skip, 31, 32)),",
                "limit.eq(32),",
                "A burst has 17 beats.",
            ),
        ),
        reduced="runs of 127 atoms",
        slow=True,
        seconds=90,
    ),
    Proof(
        "round_shift",
        "rtl/npu/arith.py: round_shift",
        "arithmetic.rounding_shift",
        (
            Fault(
                "rkcosim.rtl.npu.arith",
                "up = Mux(away, (shift.unit != 0) & ~value[-1], up)",
                "up = Mux(away, shift.unit != 0, up)",
                "A tie of a negative number is rounded up instead of away from zero.",
            ),
        ),
        depth=2,
    ),
    Proof(
        "clamp",
        "rtl/npu/arith.py: clamp, rectifier_limits",
        "arithmetic.clamps",
        (
            Fault(
                "rkcosim.rtl.npu.arith",
                "low = Mux(relu, Mux(relux & (limit < 0), limit, 0), LOWEST)",
                "low = Mux(relu, 0, LOWEST)",
                "ReLU ignores a negative limit of ReLUX.",
            ),
        ),
        depth=2,
    ),
    Proof(
        "bn",
        "rtl/npu/dpu_scale.py: BnStages",
        "arithmetic.bn_stages",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_scale",
                "                        m.d.comb += addend.eq(-term)",
                "                        m.d.comb += addend.eq(~term)",
                "A subtraction is off by one.",
            ),
        ),
        depth=2,
        reduced="lane 0, operands of registers",
        slow=True,
        seconds=900,
    ),
    Proof(
        "bs",
        "rtl/npu/dpu_scale.py: BsStages",
        "arithmetic.bs_stages",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_scale",
                "                        m.d.comb += added.eq(before - operand)",
                "                        m.d.comb += added.eq(before + ~operand)",
                "A subtraction is off by one.",
            ),
        ),
        depth=2,
        reduced="lane 0, operands of registers, flying mode (without CPEND and CLIP_TRUNCATE)",
        slow=True,
        seconds=900,
    ),
    Proof(
        "cpend",
        "rtl/npu/dpu_scale.py: BsStages",
        "arithmetic.cpend",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_scale",
                "                    tie = cut_to_even & ((biased[:31] & cut_dropped) == 0)",
                "                    tie = (biased[:31] & cut_dropped) == 0",
                "ROUND_TYPE has no effect.",
            ),
            Fault(
                "rkcosim.rtl.npu.dpu_scale",
                "window.eq(sum_[lane].as_signed() * cfg.BS_OW_OP.OW_OP)",
                "window.eq(sum_[lane] * cfg.BS_OW_OP.OW_OP)",
                "The window sum is taken as a number without sign.",
            ),
        ),
        depth=2,
        reduced="lane 0, operands of BS from registers",
    ),
    Proof(
        "out_cvt",
        "rtl/npu/dpu_cvt.py: OutputConverter",
        "arithmetic.out_cvt",
        (
            Fault(
                "rkcosim.rtl.npu.dpu_cvt",
                "                    m.d.comb += ties_up.eq(odd_part(product, shift) ^ on.odd)",
                "                    m.d.comb += ties_up.eq(odd_part(product, shift))",
                "The offset does not count when a tie is rounded to even.",
            ),
            Fault(
                "rkcosim.rtl.npu.dpu_cvt",
                "                    m.d.comb += ties_up.eq(on.some & ~Mux(on.late, product[-1], below[-1]))",
                "                    m.d.comb += ties_up.eq(on.some & ~product[-1])",
                "The offset does not count when a tie is rounded away from zero.",
            ),
        ),
        depth=2,
        reduced="lane 0, integer types",
        slow=True,
        seconds=900,
    ),
    Proof(
        "float_formats",
        "rtl/npu/float32.py: widen_fp16, narrow_fp16, widen_bf16, narrow_bf16, from_int32, to_int32",
        "arithmetic.float_formats",
        (
            Fault(
                "rkcosim.rtl.npu.float32",
                "small = Mux(fraction == 0, Const(0, 31), Cat(Const(0, 14), shifted, (112 - count)[:8]))",
                "small = Mux(fraction == 0, Const(0, 31), Cat(Const(0, 14), shifted, (113 - count)[:8]))",
                "Subnormal numbers of fp16 are doubled.",
            ),
        ),
        depth=2,
    ),
)
