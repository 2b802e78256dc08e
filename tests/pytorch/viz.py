"""PyTorch's _memory_viz.py on snapshots, its texts printed.

    viz.py _memory_viz.py memory|segments|segsum|trace FILE
    viz.py _memory_viz.py compare BEFORE AFTER
    viz.py _memory_viz.py plots FILE

The flame graphs are left as the text that they are made of. Of the plots it prints their kinds, and checks that what is
in the page is what is in the file.
"""

import base64
import importlib.util
import json
import pickle
import re
import sys

source, command, *files = sys.argv[1:]
spec = importlib.util.spec_from_file_location("_memory_viz", source)
viz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(viz)


def load(name):
    with open(name, "rb") as file:
        return pickle.load(file)


def text(lines):
    return lines


def plotted(page):
    local_files, kind = re.search(r"local_files = (.*)\nadd_local_files\(local_files, (.*)\)", page).groups()
    (file,) = json.loads(local_files)
    return pickle.loads(base64.b64decode(file["base64"])), kind


snapshots = [load(name) for name in files]
if command in ("memory", "segments"):
    result = getattr(viz, command)(*snapshots, format_flamegraph=text)
elif command in ("segsum", "trace"):
    result = getattr(viz, command)(*snapshots)
elif command == "compare":
    result = viz.compare(*(snapshot["segments"] for snapshot in snapshots), format_flamegraph=text)
else:
    (snapshot,) = snapshots
    result = ""
    for page in (
        viz.trace_plot(snapshot),
        viz.trace_plot(snapshot, plot_segments=True),
        viz.segment_plot(snapshot),
    ):
        data, kind = plotted(page)
        assert data == snapshot, f"{kind}: not what is in the file"
        result += kind + "\n"
    data, _ = plotted(viz.trace_plot(snapshot, filter_freed=True))
    result += " ".join(str(len(entries)) for entries in data["device_traces"]) + "\n"
sys.stdout.write(result)
