"""The tests of the memory functions hold under other settings, and with PyTorch's own allocator."""

import unittest

import programs


class Settings(unittest.TestCase):
    def test_pytorch_passes_the_same_tests(self):
        programs.output("-m", "unittest", "test_memory", NATIVE="1")

    def test_they_hold_under_other_settings(self):
        for settings in ("policy:compact", "expandable_segments:True", "reclaim_live_pools:True"):
            with self.subTest(settings):
                programs.output("-m", "unittest", "test_memory", ACCELERATOR_ALLOC_CONF=settings)


if __name__ == "__main__":
    unittest.main()
