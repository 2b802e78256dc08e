"""The tests of the memory functions hold under other settings, and with PyTorch's own allocator."""

import unittest

import programs


# The last line.
PASSED = r"\nOK( \(skipped=\d+\))?\Z"


class Settings(unittest.TestCase):
    def test_pytorch_passes_the_same_tests(self):
        _, error = programs.fork("-m", "unittest", "test_memory", NATIVE="1")
        self.assertRegex(error, PASSED)

    def test_they_hold_under_other_settings(self):
        for settings in ("policy:compact", "expandable_segments:True", "reclaim_live_pools:True"):
            with self.subTest(settings):
                _, error = programs.fork("-m", "unittest", "test_memory", ACCELERATOR_ALLOC_CONF=settings)
                self.assertRegex(error, PASSED)


if __name__ == "__main__":
    unittest.main()
