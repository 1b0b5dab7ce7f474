"""A decode step in machine code of this machine's own: `step.c`, compiled once where a C compiler
is.

    library.load()      # the compiled step, or None and `library.reason()` says why
    program.Program     # the operations of one network's step, and how it is run

PyTorch computes a step of a small model as some 600 operations of microseconds each, and spends
more time between them than on them. Here a step is one call, which reads the weights as fast as
memory gives them.
"""
