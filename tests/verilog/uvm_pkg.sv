// The classes of IEEE 1800.2 that a generated register model uses, with their declarations and no behaviour:
// enough for a compiler to check names, types and numbers of arguments.
package uvm_pkg;
  typedef enum {UVM_NO_ENDIAN, UVM_LITTLE_ENDIAN, UVM_BIG_ENDIAN, UVM_LITTLE_FIFO, UVM_BIG_FIFO} uvm_endianness_e;
  typedef enum bit [31:0] {UVM_NO_COVERAGE = 0} uvm_coverage_model_e;
  typedef bit [63:0] uvm_reg_data_t;
  typedef bit [63:0] uvm_reg_addr_t;

  class uvm_object;
    function new(string name = "");
    endfunction
  endclass

  typedef class uvm_reg_block;
  typedef class uvm_reg;

  class uvm_reg_file extends uvm_object;
    function new(string name = "");
      super.new(name);
    endfunction
  endclass

  class uvm_reg_frontdoor extends uvm_object;
    function new(string name = "");
      super.new(name);
    endfunction
  endclass

  class uvm_reg_field extends uvm_object;
    function new(string name = "uvm_reg_field");
      super.new(name);
    endfunction
    function void configure(uvm_reg parent, int unsigned size, int unsigned lsb_pos, string access, bit volatile,
                            uvm_reg_data_t reset, bit has_reset, bit is_rand, bit individually_accessible);
    endfunction
  endclass

  virtual class uvm_reg extends uvm_object;
    function new(string name = "", int unsigned n_bits, int has_coverage);
      super.new(name);
    endfunction
    function void configure(uvm_reg_block blk_parent, uvm_reg_file regfile_parent = null, string hdl_path = "");
    endfunction
    virtual function void build();
    endfunction
  endclass

  class uvm_reg_map extends uvm_object;
    function new(string name = "uvm_reg_map");
      super.new(name);
    endfunction
    virtual function void add_reg(uvm_reg rg, uvm_reg_addr_t offset, string rights = "RW", bit unmapped = 0,
                                  uvm_reg_frontdoor frontdoor = null);
    endfunction
    virtual function void add_submap(uvm_reg_map child_map, uvm_reg_addr_t offset);
    endfunction
  endclass

  virtual class uvm_reg_block extends uvm_object;
    uvm_reg_map default_map;
    function new(string name = "", int has_coverage = UVM_NO_COVERAGE);
      super.new(name);
    endfunction
    function void configure(uvm_reg_block parent = null, string hdl_path = "");
    endfunction
    virtual function void build();
    endfunction
    virtual function uvm_reg_map create_map(string name, uvm_reg_addr_t base_addr, int unsigned n_bytes,
                                            uvm_endianness_e endian, bit byte_addressing = 1);
      return null;
    endfunction
  endclass
endpackage
