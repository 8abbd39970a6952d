"""Compile the loops into a library: numba and LLVM make objects of them, and Zig's linker joins the objects.

Nothing of this package is imported where a library is loaded.
"""
