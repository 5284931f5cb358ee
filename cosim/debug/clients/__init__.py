"""The debugger for people and editors: the terminal, and the Debug Adapter Protocol."""
