"""The memory functions of PyTorch, on our allocator."""

import ctypes
import gc
import tempfile
import threading
import unittest
import warnings

import torch
from torch import cuda

import accelerator_alloc

MIB = 1 << 20


def setUpModule():
    # Kernels are not captured here, so PyTorch finds every graph empty.
    warnings.filterwarnings("ignore", "The CUDA Graph is empty")
    accelerator_alloc.install()


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


class Simulated:
    """The controls of the simulated driver."""

    driver = ctypes.CDLL(None)

    @classmethod
    def hold(cls, stream):
        """Keeps a stream's work from running."""
        cls.driver.cuda_sim_hold(ctypes.c_void_p(stream.cuda_stream))

    @classmethod
    def release(cls, stream):
        cls.driver.cuda_sim_release(ctypes.c_void_p(stream.cuda_stream))

    @classmethod
    def violations(cls):
        cls.driver.cuda_sim_violations.restype = ctypes.c_uint64
        return cls.driver.cuda_sim_violations()


class Case(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(Simulated.violations(), 0, "accesses to memory that is not the program's")


class Tensors(Case):
    def test_their_bytes_go_there_and_back(self):
        there = torch.arange(10_000)
        self.assertTrue(torch.equal(there.cuda().cpu(), there))

    def test_they_are_aligned(self):
        self.assertEqual(tensor(3).data_ptr() % 512, 0)

    def test_an_empty_one_has_no_address(self):
        self.assertEqual(tensor(0).data_ptr(), 0)

    def test_a_storage_is_resized(self):
        small = torch.arange(100, device="cuda")
        small.untyped_storage().resize_(MIB)
        self.assertEqual(small.untyped_storage().nbytes(), MIB)

    def test_a_clone_on_write_is_freed_once(self):
        before = cuda.memory_allocated()
        original = torch.zeros(1000, device="cuda")
        lazy = torch._lazy_clone(original)
        self.assertEqual(torch._C._data_address(original), torch._C._data_address(lazy))
        lazy.add_(1)
        del original, lazy
        self.assertEqual(cuda.memory_allocated(), before)

    def test_dlpack_shares_their_memory(self):
        one = torch.arange(10, device="cuda")
        self.assertEqual(torch.from_dlpack(one).data_ptr(), one.data_ptr())

    def test_pinned_memory_is_copied(self):
        pinned = torch.arange(MIB, dtype=torch.int32).pin_memory()
        self.assertTrue(torch.equal(pinned.cuda(non_blocking=True).cpu(), pinned))

    def test_threads_allocate_on_streams_of_their_own(self):
        def work():
            with cuda.stream(cuda.Stream()):
                for number in range(200):
                    torch.empty(1000 * (number % 17 + 1), device="cuda").add_(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_memory_is_allocated_without_a_tensor(self):
        before = cuda.memory_allocated()
        address = cuda.caching_allocator_alloc(MIB)
        self.assertEqual(cuda.memory_allocated(), before + MIB)
        cuda.caching_allocator_delete(address)
        self.assertEqual(cuda.memory_allocated(), before)


class Streams(Case):
    def test_recorded_memory_is_not_reused_while_the_stream_uses_it(self):
        stream, used = cuda.Stream(), tensor(30)
        address = used.data_ptr()
        Simulated.hold(stream)
        with cuda.stream(stream):
            torch.zeros(4096, dtype=torch.uint8).cuda(non_blocking=True)
        used.record_stream(stream)
        del used
        early = tensor(30)
        Simulated.release(stream)
        stream.synchronize()
        self.assertNotEqual(early.data_ptr(), address)
        late = tensor(30)
        self.assertEqual(late.data_ptr(), address)

    def test_its_own_stream_is_no_reason_to_wait(self):
        used = tensor(30)
        address = used.data_ptr()
        used.record_stream(cuda.current_stream())
        del used
        self.assertEqual(tensor(30).data_ptr(), address)

    def test_a_stream_of_another_library_can_be_used(self):
        with cuda.stream(cuda.ExternalStream(cuda.Stream().cuda_stream)):
            tensor(1)


class Statistics(Case):
    def test_they_follow_allocations(self):
        before = cuda.memory_allocated()
        kept = tensor(2)
        self.assertEqual(cuda.memory_allocated() - before, kept.nbytes)
        self.assertGreaterEqual(len(cuda.memory_stats()), 123)  # more once there were private pools
        self.assertEqual(torch.accelerator.memory_allocated(), cuda.memory_allocated())
        self.assertIn("Allocated memory", cuda.memory_summary())

    def test_peaks_and_sums_are_reset(self):
        tensor(50)
        cuda.reset_peak_memory_stats()
        self.assertEqual(cuda.max_memory_allocated(), cuda.memory_allocated())
        cuda.reset_accumulated_memory_stats()
        self.assertEqual(cuda.memory_stats()["allocated_bytes.all.allocated"], 0)

    def test_the_cache_goes_back_to_the_driver(self):
        for empty in (cuda.empty_cache, torch.accelerator.empty_cache):
            tensor(100)
            free = cuda.mem_get_info()[0]
            empty()
            self.assertGreaterEqual(cuda.mem_get_info()[0], free + 100 * MIB)


class OutOfMemory(Case):
    def test_it_is_torchs_own_exception(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: seen.append(numbers))
        with self.assertRaisesRegex(torch.OutOfMemoryError, "tried to allocate 195.31 GiB"):
            tensor(200_000)
        self.assertEqual(seen[0][1], 200_000 * MIB)
        tensor(1)  # all is well afterwards

    def test_a_fraction_limits_the_process(self):
        cuda.set_per_process_memory_fraction(0.01)
        try:
            self.assertAlmostEqual(cuda.get_per_process_memory_fraction(), 0.01)
            with self.assertRaises(torch.OutOfMemoryError):
                tensor(2000)
        finally:
            cuda.set_per_process_memory_fraction(1.0)
        with self.assertRaises(RuntimeError):
            torch._C._cuda_setMemoryFraction(1.5, 0)


class Snapshots(Case):
    def test_they_have_each_block(self):
        kept = tensor(7)
        segments = cuda.memory_snapshot()
        blocks = [block for segment in segments for block in segment["blocks"] if block["address"] == kept.data_ptr()]
        self.assertEqual([block["state"] for block in blocks], ["active_allocated"])
        self.assertEqual(sum(segment["total_size"] for segment in segments), cuda.memory_reserved())

    def test_histories_have_stacks(self):
        cuda.memory._record_memory_history(stacks="python", context="all")
        kept = tensor(5)
        address = kept.data_ptr()
        del kept
        with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
            cuda.memory._dump_snapshot(file.name)
        snapshot = cuda.memory._snapshot()
        cuda.memory._record_memory_history(enabled=None)
        entries = [entry for trace in snapshot["device_traces"] for entry in trace if entry.get("addr") == address]
        self.assertEqual([entry["action"] for entry in entries][-3:], ["alloc", "free_requested", "free_completed"])
        names = {frame["name"] for entry in entries for frame in entry["frames"]}
        self.assertIn("test_histories_have_stacks", names)


class Pools(Case):
    def test_a_pool_has_memory_of_its_own(self):
        pool = cuda.MemPool()
        with cuda.use_mem_pool(pool):
            inside = tensor(40)
        outside = tensor(40)
        self.assertEqual(pool.use_count(), 1)
        segments = pool.snapshot()
        self.assertEqual({segment["segment_pool_id"] for segment in segments}, {tuple(pool.id)})
        addresses = {block["address"] for segment in segments for block in segment["blocks"]}
        self.assertIn(inside.data_ptr(), addresses)
        self.assertNotIn(outside.data_ptr(), addresses)

    def test_a_graph_keeps_its_memory(self):
        graph, given = cuda.CUDAGraph(), torch.zeros(1000, device="cuda")
        with cuda.graph(graph):
            result = given + 1
            scratch = torch.empty(3 * MIB, device="cuda")
        graph.replay()
        pools = {segment["segment_pool_id"] for segment in cuda.memory_snapshot()}
        self.assertEqual(len(pools - {(0, 0)}), 1)
        address = scratch.data_ptr()
        del scratch
        self.assertNotEqual(torch.empty(3 * MIB, device="cuda").data_ptr(), address)
        del result
        graph.reset()

    def test_callables_become_graphs(self):
        layer, batch = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64).cuda()
        cuda.make_graphed_callables(layer, (batch,))(torch.randn(8, 64).cuda()).sum().backward()

    def test_a_checkpoint_restores_a_pool(self):
        pool, graphs = cuda.graph_pool_handle(), [cuda.CUDAGraph() for _ in range(3)]
        with cuda.graph(graphs[0], pool=pool):
            first = torch.empty(3 * MIB, device="cuda")
        state = torch._C._cuda_getCheckpointState(0, pool)
        with cuda.graph(graphs[1], pool=pool):
            second = torch.empty(5 * MIB, device="cuda")
        addresses = {first.data_ptr(), second.data_ptr()}
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(0, pool, addresses))
        torch._C._cuda_setCheckpointPoolState(0, state, [second.untyped_storage()._cdata], [])
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(0, pool, {first.data_ptr()}))
        with cuda.graph(graphs[2], pool=pool):
            again = torch.empty(5 * MIB, device="cuda")
        self.assertIn(again.data_ptr(), addresses)


if __name__ == "__main__":
    unittest.main()
