"""What goes wrong when the allocator is installed, and what it says then."""

import os
import subprocess
import sys
import unittest
from pathlib import Path


def program(text, **variables):
    """Runs a program in a process of its own. Returns its output and the last line of its errors."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parent)
    return done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]


INSTALL = "import accelerator_alloc\naccelerator_alloc.install(conf={conf!r})\n"
NAME = "import torch\nprint(torch.cuda.get_allocator_backend())\n"


class Installation(unittest.TestCase):
    def test_it_is_named_afterwards(self):
        out, error = program(INSTALL.format(conf=None) + NAME)
        self.assertEqual((out, error), ("accelerator", ""))

    def test_a_second_one_is_refused(self):
        _, error = program(2 * INSTALL.format(conf=None))
        self.assertRegex(error, "AcceleratorError: the allocator is installed already; configure.. changes its")

    def test_an_unknown_setting_is_named_and_nothing_changes(self):
        for wrong, named in (("no_such_setting:1", "no_such_setting"), ("max_split_size_mb:x", "max_split_size_mb")):
            text = f"try:\n {INSTALL.format(conf=wrong).strip().replace(chr(10), chr(10) + ' ')}\n"
            text += "except RuntimeError as error:\n print(error)\n" + NAME
            out, _ = program(text)
            told, backend = out.rsplit("\n", 1)
            self.assertIn(named, told)
            self.assertEqual(backend, "native")

    def test_settings_of_the_environment_count(self):
        text = INSTALL.format(conf=None) + (
            "import torch\nx = torch.empty(3 << 20, dtype=torch.uint8, device='cuda')\n"
            "print(torch.cuda.memory_snapshot()[0]['is_expandable'])\n"
        )
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "ACCELERATOR_ALLOC_CONF"):
            out, error = program(text, **{variable: "expandable_segments:True"})
            self.assertEqual((out, error), ("True", ""), variable)

    def test_late_installation_leaves_earlier_memory_where_it_is(self):
        text = (
            "import torch\nx = torch.empty(50 << 20, dtype=torch.uint8, device='cuda')\n"
            + INSTALL.format(conf=None)
            + "y = torch.empty(10 << 20, dtype=torch.uint8, device='cuda')\n"
            "s = torch.cuda.Stream()\nx.record_stream(s); y.record_stream(s)\n"
            "print(torch.cuda.memory_allocated() >> 20)\n"
            "del x\nprint(torch.cuda.memory_allocated() >> 20)\n"
            "del y\ntorch.cuda.empty_cache()\nprint(torch.cuda.memory_reserved())\n"
        )
        out, error = program(text)
        self.assertEqual((out.split(), error), (["60", "10", "0"], ""))


if __name__ == "__main__":
    unittest.main()
