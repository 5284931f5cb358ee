"""What the interfaces of others have in common: the process of a program's models, and the way to it.

A C library (`native/rk_worker.c`) that a program or a runtime loads starts a process (`worker`) that compiles
and simulates models; `protocol` has their messages, `library` builds the libraries, `programs` and `scripts`
run programs with them.
"""
