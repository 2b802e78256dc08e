"""Records the device memory requests of a program."""

import sys
import weakref

import torch
import torch._compile
import torch._dynamo.eval_frame
from torch.utils._python_dispatch import TorchDispatchMode

GIB = 1 << 30
aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Writes the trace. `answers` maps data-dependent operators to functions that replace them."""

    def __init__(self, out, rng):
        super().__init__()
        self.out, self.rng = out, rng
        self.ids = {}  # storage -> id, while it is live
        self.size = {}
        self.next_id = 1
        self.live = self.peak = self.ops = 0
        self.step_no = 0
        self.streams = {}
        self.workspaces = set()
        self.wrappers = (torch._compile.__file__, torch._dynamo.eval_frame.__file__)
        self.truth = True  # the value of every boolean that the program reads
        self.answers = {aten._local_scalar_dense.default: self.scalar}

    def line(self, s):
        self.out.write(s + "\n")

    def op(self, s):
        self.ops += 1
        self.line(s)

    def alloc(self, nbytes, stream):
        i = self.next_id
        self.next_id += 1
        self.size[i] = nbytes
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        self.op(f"alloc {i} {nbytes} {stream}")
        return i

    def dead(self, key, i):
        if self.ids.get(key) == i:
            del self.ids[key]
        self.live -= self.size.pop(i)
        self.op(f"free {i}")

    def stream_number(self, handle):
        if handle == 0:
            return 0
        return self.streams.setdefault(handle, len(self.streams) + 1)

    def current(self):
        return self.stream_number(torch.cuda.current_stream().stream_id)

    def step(self, what=""):
        """Begins a step."""
        self.report()
        self.step_no += 1
        self.at_step, self.ops_at = self.live, self.ops
        self.line(f"# step {self.step_no} {what}".rstrip())

    def report(self):
        if self.step_no:
            print(
                f"  step {self.step_no}: live before {self.at_step / GIB:.3f} GiB, after {self.live / GIB:.3f} GiB, "
                f"{self.ops - self.ops_at} operations",
                file=sys.stderr,
            )

    def summary(self):
        return f"{self.ops} operations, peak live {self.peak / GIB:.2f} GiB, {self.live / GIB:.2f} GiB live at the end"

    def see(self, t):
        if t.device.type != "cuda":
            return
        s = t.untyped_storage()
        n = s.nbytes()
        if n == 0 or s._cdata in self.ids:
            return
        i = self.ids[s._cdata] = self.alloc(n, self.current())
        weakref.finalize(s, self.dead, s._cdata, i).atexit = False

    def id_of(self, t):
        return self.ids.get(t.untyped_storage()._cdata)

    def scalar(self, t):
        if t.dtype is torch.bool:
            return self.truth
        # On the GPU: found_inf of GradScaler, losses. On the host: the optimizer's counts.
        if t.dtype.is_floating_point:
            return 0.0 if t.device.type == "cuda" else 1.0
        return 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is aten.record_stream.default:
            i = self.id_of(args[0])
            if i:
                self.op(f"record {i} {self.stream_number(args[1].stream_id)}")
            return None
        if func in self.answers:
            return self.answers[func](*args, **(kwargs or {}))
        if func is aten.add.Tensor and self.accumulates(*args, **(kwargs or {})):
            aten.add_.Tensor(*args)
            return args[0]
        out = func(*args, **(kwargs or {}))
        first = func._overloadpacket
        if isinstance(out, torch.Tensor):
            self.see(out)
            if out.device.type == "cuda":
                if first is aten.addmm:
                    self.workspace(1 << 20)
                elif first is aten.sum and len(args) > 1:
                    self.column_sums(args[0], args[1])
                elif first in (aten.mm, aten.bmm, aten.baddbmm):
                    self.workspace(32 << 20)
        elif isinstance(out, (tuple, list)):
            if first is aten.native_dropout:
                self.see(out[1])  # the mask is allocated first
            for t in out:
                if isinstance(t, torch.Tensor):
                    self.see(t)
                elif isinstance(t, (tuple, list)):
                    for u in t:
                        if isinstance(u, torch.Tensor):
                            self.see(u)
            if first is aten._scaled_dot_product_flash_attention_backward:
                b, h, s, d = args[1].shape
                rows = b * h * -(-s // 128) * 128
                self.temporary(rows * 4, rows * -(-d // 32) * 32 * 4)  # row sums; dq in fp32
        return out

    def temporary(self, *sizes):
        """Records memory that an operator allocates and frees internally."""
        made = [self.alloc(n, self.current()) for n in sizes]
        for i in reversed(made):
            self.op(f"free {i}")
            self.live -= self.size.pop(i)

    def column_sums(self, t, dims):
        """Records the partial sums of a tall matrix, in which several blocks add each column.

        A block has 32 x 4 threads with 4 columns per thread.
        """
        cols = t.shape[-1] if t.dim() else 0
        if list(dims) != list(range(t.dim() - 1)) or not t.is_contiguous() or cols < 128 or cols % 4:
            return
        each = -(-(t.numel() // cols) // 4)
        grid = -(-cols // 128)
        if each >= 256 and grid <= 132 * 16:
            blocks = max(min(-(-132 * 16 // grid), -(-each // 16)), -(-each // 256))
            self.temporary(4 * cols * blocks * 32 * 4, 4 * grid)  # partial sums, counters

    def accumulates(self, a, b, alpha=1):
        """Returns whether autograd adds two gradients here.

        It would do so in place with real tensors, but never does with fake ones. The engine calls from its own thread,
        without a Python frame below ours. A tensor that only the engine holds has these reference counts.
        """
        if not (isinstance(b, torch.Tensor) and a.device.type == "cuda" and a.shape == b.shape and a.dtype == b.dtype):
            return False
        if torch.is_grad_enabled() or not a.is_contiguous() or a._is_view():
            return False
        f = sys._getframe(2)
        while f is not None and f.f_code.co_filename in self.wrappers:
            f = f.f_back
        return f is None and a._use_count() <= 4 and torch._C._storage_Use_Count(a.untyped_storage()._cdata) <= 2

    def workspace(self, n):
        key = (self.current(), n)
        if key not in self.workspaces:
            self.workspaces.add(key)
            self.alloc(n, key[0])
