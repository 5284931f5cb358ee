"""The debugger on the RTL: runs in cycles, forwards and backwards, and what the blocks hold."""
