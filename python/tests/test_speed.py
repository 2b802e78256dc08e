"""Allocating and freeing takes at most half of the time that PyTorch's own allocator takes, in the same process."""

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.8",
    "large_segment_size_mb:40",
    "policy:compact",
)
SIZES = (512, 4 << 20)
LIMIT = 0.5


def measure(conf, library):
    """Prints for each size the nanoseconds of PyTorch's allocator and of ours, and the median of the ratios."""
    import torch

    torch.cuda.init()
    torch.empty(1, device="cuda")
    functions = ctypes.CDLL(library)
    functions.installed.restype = ctypes.c_void_p
    functions.nanoseconds.restype = ctypes.c_double
    functions.nanoseconds.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    native = functions.installed()
    import accelerator_alloc

    accelerator_alloc.install(conf)
    ours = functions.installed()
    for size in SIZES:
        # Each pair of rounds takes milliseconds, so that both are disturbed alike.
        rounds = [[functions.nanoseconds(one, size, 5_000) for one in (native, ours)] for _ in range(101)]
        print(*map(min, zip(*rounds)), statistics.median(own / other for other, own in rounds))


class Speed(unittest.TestCase):
    def test_allocate_and_free_take_half_the_time(self):
        import torch

        packages = Path(torch.__file__).parent
        headers = packages.parent / "nvidia" / "cu13" / "include"
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "allocate.so"
            command = ["g++", "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", f"-I{packages / 'include'}"]
            command += [f"-I{headers}", "allocate.cpp", f"-L{packages / 'lib'}", "-lc10_cuda", "-lc10", "-o", library]
            subprocess.run(command, env=environment, check=True, cwd=Path(__file__).parent)
            for conf in SETTINGS:
                code = f"import test_speed; test_speed.measure({conf!r}, {str(library)!r})"
                done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
                for size, line in zip(SIZES, done.stdout.splitlines(), strict=True):
                    native, ours, ratio = map(float, line.split())
                    print(f"{conf or 'default'}, {size} bytes: {native:.0f} ns, {ours:.0f} ns, {ratio:.2f}")
                    with self.subTest(conf=conf, size=size):
                        self.assertLessEqual(ratio, LIMIT)


if __name__ == "__main__":
    unittest.main()
