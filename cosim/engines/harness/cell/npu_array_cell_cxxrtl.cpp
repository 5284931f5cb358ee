// The array cell as a black box of a CXXRTL model (its ports are in npu_array_cell_box.v).
//
// It is compiled together with the generated design, whose header is core.h.
#include "core.h"
#include "npu_cell.h"

namespace cxxrtl_design {

namespace {

template <size_t Bits> uint8_t scalar(const value<Bits> &port) { return static_cast<uint8_t>(port.data[0]); }

struct Box final : bb_p_npu__array__cell {
    npu::Cell cell;

    void reset() override { cell.reset(); }

    bool eval(performer *) override {
        if (!posedge_p_clk()) return true;
        npu::CellIn in;
        in.precision = scalar(p_precision);
        in.depthwise = scalar(p_depthwise);
        in.w_valid = scalar(p_w__valid);
        in.w_index = scalar(p_w__index);
        in.w_stride = scalar(p_w__stride);
        in.f_valid = scalar(p_f__valid);
        in.f_swap = scalar(p_f__swap);
        in.f_first = scalar(p_f__first);
        in.f_bank = scalar(p_f__bank);
        in.f_slot = scalar(p_f__slot);
        in.d_valid = scalar(p_d__valid);
        in.d_bank = scalar(p_d__bank);
        in.d_slot = scalar(p_d__slot);
        in.d_octet = scalar(p_d__octet);
        if (in.w_valid || in.f_valid || in.d_valid || cell.busy())
            cell.step(in, reinterpret_cast<const uint8_t *>(p_w__data.data),
                      reinterpret_cast<const uint8_t *>(p_f__data.data));
        if (p_rst) cell.reset();
        if (in.d_valid) {
            cell.pack_acc(p_o__acc.next.data);
            cell.pack_sum(p_o__sum.next.data);
        }
        return true;
    }
};

}  // namespace

std::unique_ptr<bb_p_npu__array__cell> bb_p_npu__array__cell::create(std::string, metadata_map, metadata_map) {
    return std::make_unique<Box>();
}

}  // namespace cxxrtl_design
