"""The tests of the memory functions hold under other settings, and with PyTorch's own allocator."""

import os
import subprocess
import sys
import unittest
from pathlib import Path


def run(test, **variables):
    command = [sys.executable, "-m", "unittest", test]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parent)
    return done.returncode, done.stderr


class Settings(unittest.TestCase):
    def test_pytorch_passes_the_same_tests(self):
        code, errors = run("test_memory", NATIVE="1")
        self.assertEqual(code, 0, errors)

    def test_they_hold_under_other_settings(self):
        for settings in ("policy:compact", "expandable_segments:True", "reclaim_live_pools:True"):
            with self.subTest(settings):
                code, errors = run("test_memory", ACCELERATOR_ALLOC_CONF=settings)
                self.assertEqual(code, 0, errors)


if __name__ == "__main__":
    unittest.main()
