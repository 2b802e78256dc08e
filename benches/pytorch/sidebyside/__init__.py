"""PyTorch's own C++ allocator and ours, side by side.

command   what the program does, in order
machine   what the machine must be, and what it is
fetch     PyTorch's and NVIDIA's packages
build     both sides
traces    what is replayed
sides     how each side's programs are run, and what they print
measure   both sides in turn
tables    the figures, beside what is wanted
document  where the tables go
"""
