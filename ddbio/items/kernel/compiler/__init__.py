"""Compiler of the loops: numba and LLVM compile them to objects, and Zig's linker joins the objects into a library.

This package is not imported in processes that load a library.
"""
