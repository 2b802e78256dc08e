"""Without a compiler, the allocator is PyTorch's pluggable one: what works then, and what does not."""

import tempfile
import unittest
from pathlib import Path

import accelerator_alloc
import programs

INSTALL = "import torch, accelerator_alloc\naccelerator_alloc.install(CONF)\n"
MIB = "MIB = 1 << 20\nempty = lambda mib: torch.empty(mib * MIB, dtype=torch.uint8, device='cuda')\n"
CURRENT = "accelerator_alloc.memory_stats('cuda')['allocated_bytes.all.current'] // MIB"

# Each feature: a program that prints what is expected, or the error that tells of the loss.
WORKS = {
    "allocation and free": (f"x = empty(30)\nprint({CURRENT})\ndel x\nprint({CURRENT})", "30\n0"),
    "bytes": ("x = torch.arange(1000)\nprint(torch.equal(x.cuda().cpu(), x))", "True"),
    "empty_cache": (
        "empty(30)\ntorch.cuda.empty_cache()\n"
        "print(accelerator_alloc.memory_stats('cuda')['reserved_bytes.all.current'])",
        "0",
    ),
    "record_stream": (
        "s, x = torch.cuda.Stream(), empty(30)\nx.record_stream(s)\ndel x\n"
        "print(accelerator_alloc.memory_stats('cuda')['active_bytes.all.peak'] // MIB)",
        "30",
    ),
    "memory fraction": (
        "torch.cuda.set_per_process_memory_fraction(0.25)\n"
        "try: empty(30_000)\nexcept torch.OutOfMemoryError as error: print(str(error)[:19])",
        "CUDA out of memory.",
    ),
    "out of memory": (
        "for _ in range(3):\n try: empty(200_000)\n"
        " except torch.OutOfMemoryError as error: print('tried to allocate' in str(error))",
        "True\nTrue\nTrue",
    ),
    "mem_get_info": ("print(torch.cuda.mem_get_info()[1] >> 30)", "80"),
    "settings": (
        "accelerator_alloc.configure('roundup_power2_divisions:2')\n"
        "x = empty(33)\nprint(accelerator_alloc.memory_stats('cuda')['allocated_bytes.all.current'] // MIB)",
        "48",
    ),
}
LOST = {
    "memory_stats": ("empty(1)\ntorch.cuda.memory_stats()", "does not yet support getDeviceStats"),
    "memory_summary": ("empty(1)\ntorch.cuda.memory_summary()", "does not yet support getDeviceStats"),
    "reset_peak_memory_stats": ("torch.cuda.reset_peak_memory_stats()", "does not yet support resetPeakStats"),
    "reset_accumulated_memory_stats": (
        "torch.cuda.reset_accumulated_memory_stats()",
        "does not yet support resetAccumulatedStats",
    ),
    "get_per_process_memory_fraction": (
        "torch.cuda.get_per_process_memory_fraction()",
        "does not yet support getMemoryFraction",
    ),
    "observers of failed requests": (
        "torch._C._cuda_attach_out_of_memory_observer(lambda *shortage: None)",
        "does not yet support attachOutOfMemoryObserver",
    ),
    "memory_snapshot": ("torch.cuda.memory_snapshot()", "does not yet support snapshot"),
    "memory history": ("torch.cuda.memory._record_memory_history()", "does not yet support recordHistory"),
    "graphs": (
        "with torch.cuda.graph(torch.cuda.CUDAGraph()): empty(1)",
        "graphs and pools need the part of accelerator_alloc for this PyTorch: install a C.. compiler",
    ),
    "MemPool": ("torch.cuda.MemPool()", "does not|not supported"),
    "accelerator_alloc.pool": ("accelerator_alloc.pool('cache')", "does not|not supported"),
    "queues of tensors": ("empty(1).untyped_storage()._share_cuda_()", "does not yet support (?i:shareIPCHandle)"),
    "uninstallation": ("accelerator_alloc.uninstall()", "PyTorch cannot replace its pluggable allocator"),
    "late installation": (None, "PyTorch's own allocator cannot be replaced any more"),
}
LATE = "import torch, accelerator_alloc\ntorch.empty(1, device='cuda')\naccelerator_alloc.install()"


class Fallback(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.environment = {"XDG_CACHE_HOME": folder.name, "CXX": "", "PATH": folder.name}

    def program(self, text, conf=None):
        return programs.fork("-c", text.replace("CONF", "" if conf is None else repr(conf)), **self.environment)

    def test_what_works(self):
        for conf in (None, "policy:compact"):
            for feature, (text, expected) in WORKS.items():
                with self.subTest(feature, conf=conf):
                    out, error = self.program(INSTALL + MIB + text, conf)
                    self.assertEqual(out, expected, error)

    def test_what_is_lost_raises_an_error(self):
        for feature, (text, told) in LOST.items():
            with self.subTest(feature):
                out, error = self.program(LATE if text is None else INSTALL + MIB + text)
                self.assertRegex(error.splitlines()[-1] if error else out, f"Error: .*({told})")

    def test_the_documents_list_what_is_lost(self):
        page = (Path(__file__).parents[2] / "docs" / "PYTORCH.md").read_text()
        section = page.split("## Without a compiler\n")[1].split("\n## ")[0]
        self.assertEqual([feature for feature in LOST if f"| {feature} |" not in section.replace("`", "")], [])

    def test_no_stream_of_another_device_is_recorded(self):
        text = (
            "x = empty(30)\n"
            "for record in (x.record_stream, lambda s: torch._C.TensorBase.record_stream(x, s)):\n"
            "    for s in (torch.cuda.Stream(1), torch.cuda.default_stream(1), torch.cuda.default_stream(0)):\n"
            "        try: print(record(s))\n"
            "        except RuntimeError as error: print(str(error).splitlines()[0])\n"
            "del x\nprint(len(empty(30)) // MIB)"
        )
        self.environment["CUDA_SIM_DEVICES"] = "2"
        lines = self.program(INSTALL + MIB + text)[0].splitlines()
        told = "accelerator: cuda:0 has the tensor, and cuda:1 the stream"
        self.assertEqual([line.split(": make")[0] for line in lines[:3]], [told, told, "None"])
        self.assertIn("cuda:0: a stream was refused: it is of another device or context", lines[3])
        # The library cannot tell the default streams of devices apart.
        self.assertEqual(lines[4:], ["None", "None", "30"])

    def test_a_warning_says_so(self):
        out, error = self.program(INSTALL + "print(torch.cuda.get_allocator_backend())")
        self.assertEqual(out, "pluggable")
        self.assertRegex(error, "RuntimeWarning: there is no C.. compiler .*: install g... Until then, PyTorch's pluggable")

    def test_it_is_installed_even_if_warnings_are_errors(self):
        text = (
            "import warnings\nwarnings.simplefilter('error')\nimport torch, accelerator_alloc\n"
            "try:\n    accelerator_alloc.install()\nexcept RuntimeWarning:\n"
            "    print(accelerator_alloc.is_installed(), torch.cuda.get_allocator_backend())"
        )
        self.assertEqual(self.program(text), ("True pluggable", ""))

    def test_caught_errors_leave_nothing(self):
        text = (
            "import resource\n"
            "def fail(times):\n"
            "    for _ in range(times):\n"
            "        try:\n            empty(1 << 40)\n        except torch.OutOfMemoryError:\n            pass\n"
            "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
            "before = fail(1000)\nprint((fail(4000) - before) < 2048)"
        )
        self.assertEqual(self.program(INSTALL + MIB + text)[0], "True")

    def test_a_library_of_another_kind_is_refused(self):
        self.environment["ACCELERATOR_TORCH_LIBRARY"] = accelerator_alloc._library.path("cpu")
        self.assertRegex(self.program(INSTALL)[1], "is the library of another version, or of another kind of device")

    def test_a_job_reserves_less_under_the_policy_compact(self):
        ratios = []
        for conf in ("", "policy:compact"):
            command = ["train.py", "experts", "--ours", "--pluggable", "--conf", conf]
            ratios.append(float(programs.fork(*command, **self.environment)[0].split(": ")[1]))
        self.assertGreater(ratios[0], 1.1)
        self.assertLess(ratios[1], 1.03)


if __name__ == "__main__":
    unittest.main()
