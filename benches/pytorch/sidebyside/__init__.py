"""PyTorch's own C++ allocator and ours, side by side.

command   the program's steps in order
machine   requirements on the machine, and its description
fetch     PyTorch's and NVIDIA's packages
build     builds both sides
traces    the traces to replay
sides     runs each side's programs
outputs   parses their output
measure   measures both sides in turn
tables    formats the figures next to the limits
document  writes the tables into a document
failure   errors that end the program with a message
"""
