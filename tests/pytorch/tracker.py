"""PyTorch's own MemoryTracker on a file: prints its summaries, and saves what it has loaded.

    tracker.py memory_tracker.py FILE SAVED TOP...

PyTorch itself is not needed: what memory_tracker.py imports of it, and loading does not use, stands in.
"""

import importlib.util
import sys
import types


def stand_in(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module
    return module


nn = stand_in("torch.nn", Module=object)
stand_in("torch.utils")
stand_in("torch.utils._python_dispatch", TorchDispatchMode=object)
stand_in(
    "torch",
    nn=nn,
    _C=types.SimpleNamespace(_log_api_usage_once=lambda name: None),
    get_device_module=lambda: None,
)

source, file, saved, *tops = sys.argv[1:]
spec = importlib.util.spec_from_file_location("memory_tracker", source)
memory_tracker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory_tracker)

tracker = memory_tracker.MemoryTracker()
tracker.load(file)
for top in tops:
    tracker.summary(top=int(top))
tracker.save_stats(saved)
