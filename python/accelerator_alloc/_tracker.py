"""How memory changes in a block of code."""

import contextlib
import html
import os
import tempfile

from . import _program
from ._error import AcceleratorError
from ._tools import Report


def tracker(module=None):
    """Returns a context manager that records the memory of the current CUDA device after each operator::

        with accelerator_alloc.tracker(model) as tracked:
            model(batch).sum().backward()
        print(tracked)

    It releases cached memory and resets peaks when it starts, and works with PyTorch's allocator, too.

    :param module: names the operators after its submodules
    :raises AcceleratorError: if PyTorch cannot be imported or sees no CUDA device
    """
    return Tracker(module)


class Tracker:
    """The memory of a block of code, in bytes. See :func:`tracker`."""

    def __init__(self, module=None):
        try:
            import torch
            from torch.distributed._tools.memory_tracker import MemoryTracker
        except (ImportError, OSError) as error:
            raise AcceleratorError(f"PyTorch cannot be imported: {error}") from error
        if not torch.cuda.is_available():
            raise AcceleratorError("PyTorch sees no CUDA device")
        self._cuda, self._monitor = torch.cuda, MemoryTracker()
        self._module = torch.nn.Module() if module is None else module

    def __enter__(self):
        self._cuda.init()
        self._monitor.start_monitor(self._module)
        # PyTorch's files keep the memory at the start as an operator.
        self._monitor._record_memory_stats("start_monitor")
        self._cuda.reset_peak_memory_stats()
        self._start = self._end = self._cuda.memory_stats()
        return self

    def __exit__(self, *error):
        self._end = self._cuda.memory_stats()
        self._monitor.stop()

    @property
    def allocated_change(self):
        """The bytes in live tensors at the end of the block, less those at its start."""
        return self._change("allocated_bytes.all.current")

    @property
    def reserved_change(self):
        """The bytes reserved from the device at the end of the block, less those at its start."""
        return self._change("reserved_bytes.all.current")

    @property
    def peak_allocated(self):
        """The most bytes in live tensors at once in the block, including those from before."""
        return self._end.get("allocated_bytes.all.peak", 0)

    def _change(self, key):
        return self._end.get(key, 0) - self._start.get(key, 0)

    def save(self, path):
        """Writes a file that ``accel tracker``, ``accel report`` and PyTorch's ``MemoryTracker.load`` can read."""
        self._monitor.save_stats(os.fspath(path))

    def summary(self, top=20):
        """Returns the operators that used the most memory, as text."""
        with self._file() as file:
            return _program.output("tracker", f"--top={top}", file)

    def report(self):
        """Returns a page about the block. See :func:`accelerator_alloc.report`."""
        with self._file() as file:
            return Report(file)

    @contextlib.contextmanager
    def _file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "this block.pickle")
            self.save(file)
            yield file

    def __str__(self):
        lines = [
            f"allocated: {_mib(self.allocated_change):+,.1f} MiB, at most {_mib(self.peak_allocated):,.1f} MiB",
            f"reserved: {_mib(self.reserved_change):+,.1f} MiB",
        ]
        return "\n".join([*lines, self.summary()])

    __repr__ = __str__

    def _repr_html_(self):
        return f"<pre>{html.escape(str(self))}</pre>"


def _mib(count):
    return count / (1 << 20)
