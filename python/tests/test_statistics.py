"""The statistics and histories of training jobs equal those of PyTorch's own allocator."""

import concurrent.futures
import os
import unittest

from jobs import at_once, train, with_both

MODELS = ("transformer", "convolution", "experts")
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64,garbage_collection_threshold:0.8",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "large_segment_size_mb:40",
)
# What is compared of a block.
BLOCK = ("size", "requested_size", "state")


class Statistics(unittest.TestCase):
    maxDiff = None

    def test_they_equal_those_of_pytorch(self):
        jobs = [(model, conf) for model in MODELS for conf in SETTINGS]
        for job, (native, ours) in zip(jobs, with_both(jobs)):
            with self.subTest(job=job):
                self.assertGreater(native["allocation.all.allocated"], 200)
                self.assertEqual(len(native), 123)
                self.assertEqual(native, ours)

    def test_the_policy_compact_reserves_less(self):
        jobs = [(model, conf, ours) for model in MODELS for conf, ours in (("", False), ("policy:compact", True))]
        peaks = [(one["reserved_bytes.all.peak"], one["requested_bytes.all.peak"]) for one in at_once(jobs, large=True)]
        ratios = [reserved / requested for reserved, requested in peaks]
        for model, native, ours in zip(MODELS, ratios[::2], ratios[1::2]):
            with self.subTest(model=model, native=native, ours=ours):
                self.assertGreater(native, 1.05)
                self.assertLess(ours, 1.03)

    def test_any_order_of_work_is_fine(self):
        # The job looks for violations itself.
        settings = ("", "expandable_segments:True", "policy:compact")
        jobs = [(MODELS[seed % 3], conf, seed) for conf in settings for seed in range(1, 11)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            runs = threads.map(lambda job: train(job[0], job[1], True, seed=job[2]), jobs)
            allocations = {(model, one["allocation.all.allocated"]) for (model, *_), one in zip(jobs, runs)}
        self.assertEqual(len(allocations), len(MODELS))


class Histories(unittest.TestCase):
    def test_they_equal_those_of_pytorch(self):
        jobs = [(model, conf) for model in MODELS for conf in ("", "expandable_segments:True")]
        for job, (native, ours) in zip(jobs, with_both(jobs, record=True)):
            with self.subTest(job=job):
                (entries, completed, segments), our_events = map(events, (native, ours))
                self.assertGreater(len(entries), 400)
                self.assertGreater(len(completed), 100)
                self.assertEqual((entries, completed, segments), our_events)


def events(snapshot):
    """Returns the entries of a history and the segments, in a form that does not depend on addresses and handles.

    The entries ``free_completed`` come extra and sorted: when a stream has finished depends on the driver.
    """
    start = min(segment["address"] for segment in snapshot["segments"])
    streams = {}
    entries = [
        (
            entry["action"],
            entry["size"],
            entry["addr"] - start,
            streams.setdefault(entry["stream"], len(streams)),
            lines(entry),
        )
        for entry in snapshot["device_traces"][0]
    ]
    segments = [
        (
            segment["address"] - start,
            segment["total_size"],
            segment["segment_type"],
            segment["is_expandable"],
            [[block["address"] - start, *map(block.get, BLOCK)] for block in segment["blocks"]],
        )
        for segment in sorted(snapshot["segments"], key=lambda segment: segment["address"])
    ]
    completed = sorted(entry for entry in entries if entry[0] == "free_completed")
    return [entry for entry in entries if entry[0] != "free_completed"], completed, segments


def lines(entry):
    """Returns the lines of the training program in a stack. Events that PyTorch causes by itself have another one."""
    if entry["action"] not in ("alloc", "free_requested"):
        return ()
    return tuple(frame["line"] for frame in entry.get("frames", ()) if frame["filename"].endswith("train.py"))


if __name__ == "__main__":
    unittest.main()
