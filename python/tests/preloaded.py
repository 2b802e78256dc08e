"""Runs programs in children of this process, which has imported PyTorch: that takes seconds, and a fork does not.

Each line of the input is a program: its arguments, its environment, and the files for its output and its errors. The
answer is a line with its exit code.
"""

import json
import os
import runpy
import sys

import torch  # noqa: F401

while line := sys.stdin.readline():
    program = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()

# What follows runs in the child, which ends as any program does.
for stream, name in enumerate((os.devnull, program["out"], program["error"])):
    file = os.open(name, os.O_RDWR)
    os.dup2(file, stream)
    os.close(file)
os.environ.clear()
os.environ.update(program["environment"])
first, *rest = program["arguments"]
if first == "-c":
    sys.argv = [first, *rest[1:]]
    exec(rest[0], {"__name__": "__main__"})
elif first == "-m":
    sys.argv = rest
    runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
else:
    sys.argv = [first, *rest]
    runpy.run_path(first, run_name="__main__")
