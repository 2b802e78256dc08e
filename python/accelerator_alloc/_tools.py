"""The reports and the advice of the program `accel`, for a running job and for files."""

import contextlib
import html
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

from . import _program
from ._error import AcceleratorError


def report(source=None, device=None):
    """Returns a page that shows where the memory of a job went. A notebook displays it::

        accelerator_alloc.report().save("report.html")

    It works with PyTorch's allocator, too.

    :param source: a snapshot, as ``torch.cuda.memory._snapshot`` returns it, or the file of a snapshot, of a tracker,
        or of a trace of this project. Without it, the memory of this process is shown, with its history if
        ``torch.cuda.memory._record_memory_history`` records one.
    :param device: the number of the CUDA device; the one with the longest history if none is given
    :raises AcceleratorError: if the source cannot be read, or this process uses no CUDA device
    """
    return Report(source, device)


def advise(source=None, device=None):
    """Returns the settings to choose for a recorded job, what they save, and why. That takes seconds, or minutes for a
    long history, since the job is replayed under each of the settings::

        torch.cuda.memory._record_memory_history()
        train_one_step()
        print(accelerator_alloc.advise())

    :param source: as for :func:`report`, with a history
    :param device: as for :func:`report`
    :raises AcceleratorError: as for :func:`report`, and if there is no history
    """
    with _file(source, needs_history=True) as arguments:
        return Advice(json.loads(_program.output("advise", "--json", *_chosen(device), *arguments)))


class Report:
    """A page with pictures of memory. See :func:`report`."""

    def __init__(self, source, device=None):
        # The job goes on, so what it was like now is kept.
        with _file(source) as (*options, file):
            self._name, self._data = os.path.basename(file), Path(file).read_bytes()
        self._options = [*options, *_chosen(device)]
        self.html = self._made("report.html").decode()

    def save(self, path):
        """Writes the page (.html), or its main picture (.svg or .png).

        :raises AcceleratorError: if the file cannot be written, or its name has another ending
        """
        made = self._made(f"report{Path(path).suffix}")
        try:
            Path(path).write_bytes(made)
        except OSError as error:
            raise AcceleratorError(f"the report cannot be saved: {error}") from error

    def _made(self, name):
        with tempfile.TemporaryDirectory() as folder:
            file, made = Path(folder) / self._name, Path(folder) / "made" / name
            file.write_bytes(self._data)
            made.parent.mkdir()
            _program.output("report", *self._options, "--output", str(made), str(file))
            return made.read_bytes()

    def _repr_html_(self):
        # A page of its own, since its styles and scripts are not for the notebook.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def __repr__(self):
        return f"<report about {self._name}: save(path) writes it, and a notebook displays it>"


class Advice:
    """Which settings to choose. See :func:`advise`."""

    def __init__(self, advised):
        #: The recommended settings for :func:`install`, or None to keep the current ones.
        self.conf = advised["set"]
        #: The results of all settings, as dictionaries: peaks and sizes in bytes.
        self.settings = advised["settings"]
        chosen = advised["now"] if self.conf is None else self.conf
        row = next(row for row in self.settings if row["conf"] == chosen and row["virtual_memory"])
        #: The peak of reserved bytes under the recommended settings, or else the current ones.
        self.reserved = row["reserved"]
        #: The bytes of the smallest device on which the job completes with them, or None if it never does.
        self.smallest_device = row["smallest"]
        self._text = advised["text"]

    def __str__(self):
        call = f"\nIn Python: accelerator_alloc.install(conf={self.conf!r}).\n" if self.conf else ""
        return self._text + call

    __repr__ = __str__

    def _repr_html_(self):
        return f"<pre>{html.escape(str(self))}</pre>"


def _chosen(device):
    return [] if device is None else [f"--device={int(device)}"]


@contextlib.contextmanager
def _file(source, needs_history=False):
    """Gives arguments of the program for a source: options, and the file as the last one."""
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):
            raise AcceleratorError(f"there is no file {os.fspath(source)}")
        yield [os.path.abspath(source)]
        return
    name, snapshot = ("this process", _snapshot()) if source is None else ("the snapshot", source)
    try:
        has_history = any(snapshot["device_traces"])
    except (KeyError, TypeError) as error:
        raise AcceleratorError("the source is neither a file nor a snapshot from torch.cuda.memory") from error
    if needs_history and not has_history:
        raise AcceleratorError("there is no history: call torch.cuda.memory._record_memory_history() before the work")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.pickle"
        file.write_bytes(pickle.dumps(snapshot))
        yield ["--no-limits", str(file)]  # which protect from files of others


def _snapshot():
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        raise AcceleratorError("this process uses no CUDA device: nothing can be shown without a snapshot or a file")
    return torch.cuda.memory._snapshot()
