"""The memory functions of PyTorch, on our allocator.

With NATIVE=1 they run on PyTorch's own, to see that the tests are right.
"""

import concurrent.futures
import ctypes
import gc
import os
import subprocess
import tempfile
import unittest
import warnings
from pathlib import Path

import torch
from torch import cuda

import accelerator_alloc
import simulated

MIB = 1 << 20


def setUpModule():
    # Kernels are not captured here, so PyTorch finds every graph empty.
    warnings.filterwarnings("ignore", "The CUDA Graph is empty")
    if not os.environ.get("NATIVE"):
        accelerator_alloc.install()


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


class Case(unittest.TestCase):
    def tearDown(self):
        gc.collect()
        self.assertEqual(simulated.violations(), 0, "accesses to memory that is not the program's")


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

    def test_the_last_reference_of_a_clone_on_write_keeps_the_memory(self):
        before = cuda.memory_allocated()
        original = torch.zeros(1000, device="cuda")
        address = original.data_ptr()
        lazy = torch._lazy_clone(original)
        lazy.record_stream(cuda.Stream())
        del lazy
        original.add_(1)
        self.assertEqual(original.data_ptr(), address)
        del original
        cuda.synchronize()
        self.assertEqual(cuda.memory_allocated(), before)

    def test_dlpack_shares_their_memory(self):
        one = torch.arange(10, device="cuda")
        self.assertEqual(torch.from_dlpack(one).data_ptr(), one.data_ptr())

    def test_pinned_memory_is_copied(self):
        pinned = torch.arange(MIB, dtype=torch.int32).pin_memory()
        self.assertTrue(torch.equal(pinned.cuda(non_blocking=True).cpu(), pinned))

    def test_threads_allocate_on_streams_of_their_own(self):
        def work(number):
            with cuda.stream(cuda.Stream()):
                for size in range(200):
                    there = torch.full((1000 * (size % 17 + 1),), number)
                    if not torch.equal(there.cuda().cpu(), there):
                        return "the bytes of another thread"
            return None

        before = cuda.memory_allocated()
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            self.assertEqual(list(threads.map(work, range(4))), [None] * 4)
        self.assertEqual(cuda.memory_allocated(), before)

    def test_a_thread_keeps_the_context_that_it_has(self):
        # It may be a green one, in whose place the runtime would put the primary one of the device.
        tensor(1)
        driver, context = ctypes.CDLL(None), ctypes.c_void_p()
        runtime = ctypes.CDLL("libcudart.so.13")
        self.assertEqual(driver.cuCtxGetCurrent(ctypes.byref(context)), 0)

        def count(has_context):
            driver.cuCtxSetCurrent(context if has_context else None)
            before = runtime.standin_devices_set()
            tensor(1)
            return runtime.standin_devices_set() - before

        with concurrent.futures.ThreadPoolExecutor(1) as other:
            self.assertEqual(other.submit(count, True).result(), 0)
        set_without_one = 0 if os.environ.get("NATIVE") else 1  # PyTorch leaves this to `cudaMalloc`
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            self.assertEqual(other.submit(count, False).result(), set_without_one)

    def test_memory_is_allocated_without_a_tensor(self):
        before = cuda.memory_allocated()
        address = cuda.caching_allocator_alloc(MIB)
        self.assertEqual(cuda.memory_allocated(), before + MIB)
        cuda.caching_allocator_delete(address)
        self.assertEqual(cuda.memory_allocated(), before)


    def test_a_sanitizer_sees_them(self):
        from torch.cuda import _gpu_trace as trace

        seen = []
        trace.register_callback_for_memory_allocation(lambda address: seen.append(("allocated", address)))
        trace.register_callback_for_memory_deallocation(lambda address: seen.append(("freed", address)))
        torch._C._activate_gpu_trace()
        used = tensor(3)
        address = used.data_ptr()
        del used
        self.assertEqual(seen, [("allocated", address), ("freed", address)])


class Streams(Case):
    def test_recorded_memory_is_not_reused_while_the_stream_uses_it(self):
        stream, used = cuda.Stream(), tensor(30)
        address = used.data_ptr()
        simulated.hold(stream)
        with cuda.stream(stream):
            torch.zeros(4096, dtype=torch.uint8).cuda(non_blocking=True)
        used.record_stream(stream)
        del used
        early = tensor(30)
        simulated.release(stream)
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
        cuda.empty_cache()
        stream = cuda.Stream().cuda_stream
        with cuda.stream(cuda.ExternalStream(stream)):
            used = tensor(30)
        segments = [segment for segment in cuda.memory_snapshot() if segment["stream"] == stream]
        self.assertTrue(any(block["address"] == used.data_ptr() for segment in segments for block in segment["blocks"]))


class Statistics(Case):
    def test_they_follow_allocations(self):
        before = cuda.memory_allocated()
        kept = tensor(2)
        self.assertEqual(cuda.memory_allocated() - before, kept.nbytes)
        self.assertGreaterEqual(len(cuda.memory_stats()), 122)  # more of later versions, and of private pools
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


    def test_the_profiler_sees_allocations_and_frees(self):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profiled:
            before = cuda.memory_allocated()
            kept = tensor(7)
            address = kept.data_ptr()
            del kept
            cuda.caching_allocator_delete(cuda.caching_allocator_alloc(9 * MIB))
        events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
        events = [event.nbytes() for event in events if event.device_type() == torch.profiler.DeviceType.CUDA]
        self.assertEqual(events, [7 * MIB, -7 * MIB, 9 * MIB, -9 * MIB])
        self.assertEqual(cuda.memory_allocated(), before)
        self.assertNotEqual(address, 0)

    def test_caching_is_switched_off_and_on(self):
        cuda.empty_cache()
        cuda.caching_allocator_enable(False)
        try:
            free = cuda.mem_get_info()[0]
            tensor(100)
            self.assertEqual(cuda.mem_get_info()[0], free)
        finally:
            cuda.caching_allocator_enable(True)


class OutOfMemory(Case):
    seen = []

    @classmethod
    def setUpClass(cls):
        torch._C._cuda_attach_out_of_memory_observer(lambda *numbers: cls.seen.append(numbers))

    def setUp(self):
        cuda.empty_cache()
        self.seen.clear()

    def test_it_is_torchs_own_exception(self):
        with self.assertRaisesRegex(torch.OutOfMemoryError, "CUDA out of memory. .*ried to allocate 195.31 GiB"):
            tensor(200_000)
        tensor(1)  # all is well afterwards

    def test_observers_get_the_numbers(self):
        free, total = cuda.mem_get_info()
        with self.assertRaises(torch.OutOfMemoryError):
            torch.empty(200_000 * MIB + 1, dtype=torch.uint8, device="cuda")
        self.assertEqual(self.seen, [(0, 200_002 * MIB, total, free)])

    def test_observers_get_the_limit(self):
        free, total = cuda.mem_get_info()
        cuda.set_per_process_memory_fraction(0.5)
        try:
            with self.assertRaises(torch.OutOfMemoryError):
                tensor(60_000)
        finally:
            cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(self.seen, [(0, 60_000 * MIB, total // 2, free)])

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
        last = [entry["action"] for entry in snapshot["device_traces"][0]][-2:]
        self.assertEqual(last, ["free_completed", "snapshot"])  # that of _dump_snapshot
        entries = [entry for trace in snapshot["device_traces"] for entry in trace if entry.get("addr") == address]
        self.assertEqual([entry["action"] for entry in entries][-3:], ["alloc", "free_requested", "free_completed"])
        names = {frame["name"] for entry in entries for frame in entry["frames"]}
        self.assertIn("test_histories_have_stacks", names)

    def test_histories_have_stacks_of_cpp(self):
        cuda.memory._record_memory_history(stacks="all", context="alloc")
        kept = tensor(5)
        entries = cuda.memory._snapshot()["device_traces"][0]
        cuda.memory._record_memory_history(enabled=None)
        frames = [entry["frames"] for entry in entries if entry.get("addr") == kept.data_ptr()][-1]
        names = [frame["name"] for frame in frames]
        self.assertIn("test_histories_have_stacks_of_cpp", names)
        self.assertTrue([name for name in names if name.startswith("at::")], names)


    def test_actions_are_skipped(self):
        cuda.memory._record_memory_history(stacks="python", skip_actions=["free_requested"])
        tensor(5)
        entries = cuda.memory._snapshot()["device_traces"][0]
        cuda.memory._record_memory_history(enabled=None)
        actions = {entry["action"] for entry in entries}
        self.assertLessEqual({"alloc", "free_completed"}, actions)
        self.assertNotIn("free_requested", actions)


@unittest.skipIf(os.environ.get("NATIVE"), "PyTorch's own pools cannot be paused")
class Pauses(Case):
    def test_a_paused_pool_gives_its_memory_back_and_keeps_its_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            for keep in ("host", Path(folder) / "kept", None):
                pool = accelerator_alloc.pool(f"cache {keep}")
                there = torch.arange(2 * MIB)
                with pool:
                    inside = there.cuda()
                address, free = inside.data_ptr(), cuda.mem_get_info()[0]
                self.assertGreaterEqual(pool.pause(keep), inside.nbytes)
                self.assertGreaterEqual(cuda.mem_get_info()[0], free + inside.nbytes)
                with pool, self.assertRaisesRegex(RuntimeError, f"pool cache {keep} .* is paused"):
                    tensor(1)
                with self.assertRaisesRegex(accelerator_alloc.AcceleratorError, "paused already"):
                    pool.pause()
                self.assertGreaterEqual(pool.resume(), inside.nbytes)
                self.assertEqual(inside.data_ptr(), address)
                if keep:
                    self.assertTrue(torch.equal(inside.cpu(), there))
                with self.assertRaisesRegex(accelerator_alloc.AcceleratorError, "not paused"):
                    pool.resume()
                with self.assertRaisesRegex(accelerator_alloc.AcceleratorError, "No such file"):
                    pool.pause(Path(folder) / "nowhere" / "kept")

    def test_a_pause_waits_for_streams_that_have_allocated_nothing(self):
        other, ones = cuda.Stream(), torch.ones(2 * MIB).pin_memory()
        for keep in ("host", None):
            pool = accelerator_alloc.pool(f"copied {keep}")
            with pool:
                inside = torch.zeros(2 * MIB).cuda()
            simulated.hold(other)
            with cuda.stream(other):
                inside.copy_(ones, non_blocking=True)
            pool.pause(keep)
            simulated.release(other)
            other.synchronize()
            pool.resume()
            if keep:
                self.assertTrue(torch.equal(inside.cpu(), ones.cpu()))

    def test_the_contents_of_a_pool_go_to_a_file_whose_name_is_no_text(self):
        with tempfile.TemporaryDirectory() as folder:
            pool, there = accelerator_alloc.pool("in a file"), torch.arange(2 * MIB)
            with pool:
                inside = there.cuda()
            pool.pause(Path(folder) / os.fsdecode(b"k\xff"))
            names = os.listdir(os.fsencode(folder))
            pool.resume()
            self.assertEqual(names, [b"k\xff"])
            self.assertTrue(torch.equal(inside.cpu(), there))

    def test_a_pool_is_not_paused_in_a_capture(self):
        pool = accelerator_alloc.pool("captured")
        with cuda.graph(cuda.CUDAGraph()):
            tensor(1).fill_(1)
            with self.assertRaisesRegex(accelerator_alloc.AcceleratorError, "while a graph is being captured"):
                pool.pause()

    def test_a_name_is_a_pool(self):
        pool = accelerator_alloc.pool("weights")
        self.assertIs(accelerator_alloc.pool("weights", 0), pool)
        with pool, accelerator_alloc.pool("activations"):
            inner = tensor(3)
        addresses = lambda pool: {block["address"] for one in pool.snapshot() for block in one["blocks"]}
        self.assertIn(inner.data_ptr(), addresses(accelerator_alloc.pool("activations")))
        self.assertNotIn(inner.data_ptr(), addresses(pool))


class Pools(Case):
    def test_a_pool_may_have_an_allocator_of_its_own(self):
        source = """
            #include <cuda.h>
            #include <sys/types.h>
            int live = 0;
            extern "C" void* make(ssize_t bytes, int, CUstream) {
              CUdeviceptr address = 0;
              live += cuMemAlloc(&address, bytes) == CUDA_SUCCESS;
              return reinterpret_cast<void*>(address);
            }
            extern "C" void drop(void* address, ssize_t, int, CUstream) {
              live -= cuMemFree(reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS;
            }
            extern "C" int count() { return live; }
        """
        headers = Path(torch.__file__).parents[1] / "nvidia" / "cu13" / "include"
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "own.so"
            command = ["g++", "-x", "c++", "-shared", "-fPIC", f"-I{headers}", "-", "-o", library]
            subprocess.run(command, input=source, text=True, env=environment, check=True)
            own = cuda.memory.CUDAPluggableAllocator(str(library), "make", "drop")
            count = ctypes.CDLL(str(library)).count
            pool = cuda.MemPool(own.allocator())
            with cuda.use_mem_pool(pool):
                there = torch.arange(2 * MIB)
                inside = there.cuda()
            self.assertEqual(count(), 1)
            self.assertEqual(pool.snapshot()[0]["address"], inside.data_ptr())
            self.assertTrue(torch.equal(inside.cpu(), there))
            with cuda.use_mem_pool(pool), self.assertRaises(torch.OutOfMemoryError):
                tensor(200_000)
            del inside, pool
            cuda.empty_cache()
            self.assertEqual(count(), 0)

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
        before = {segment["segment_pool_id"] for segment in cuda.memory_snapshot()}
        with cuda.graph(graph):
            result = given + 1
            scratch = torch.empty(3 * MIB, device="cuda")
        graph.replay()
        pools = {segment["segment_pool_id"] for segment in cuda.memory_snapshot()}
        self.assertEqual(len(pools - before), 1)
        address = scratch.data_ptr()
        del scratch
        self.assertNotEqual(torch.empty(3 * MIB, device="cuda").data_ptr(), address)
        del result
        graph.reset()

    def test_a_graph_keeps_free_memory_when_the_device_is_full(self):
        graph, pool = cuda.CUDAGraph(), cuda.graph_pool_handle()
        with cuda.graph(graph, pool=pool):
            torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")  # free after the capture, and used by each replay
        before = self.segments(pool)
        self.assertGreaterEqual(sum(size for _, size in before), 30 * MIB)
        with self.assertRaises(torch.OutOfMemoryError):
            tensor(200_000)
        self.assertEqual(self.segments(pool), before)
        graph.replay()
        graph.reset()
        cuda.empty_cache()
        self.assertEqual(self.segments(pool), [])

    @staticmethod
    def segments(pool):
        segments = cuda.memory_snapshot()
        return [(one["address"], one["total_size"]) for one in segments if one["segment_pool_id"] == tuple(pool)]

    def test_callables_become_graphs(self):
        layer, batch = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64).cuda()
        graphed = cuda.make_graphed_callables(layer, (batch,))
        pools = {one["segment_pool_id"] for one in cuda.memory_snapshot()} - {(0, 0)}
        self.assertGreaterEqual(len(pools), 1)
        graphed(torch.randn(8, 64).cuda()).sum().backward()
        self.assertEqual(layer.weight.grad.shape, (64, 64))

    def test_requests_go_to_a_pool_once_at_a_time(self):
        pool = cuda.MemPool()
        begin, end = torch._C._cuda_beginAllocateCurrentThreadToPool, torch._C._cuda_endAllocateToPool
        begin(0, pool.id)
        with self.assertRaises(RuntimeError):
            begin(0, pool.id)
        end(0, pool.id)
        torch._C._cuda_releasePool(0, pool.id)
        with self.assertRaises(RuntimeError):
            end(0, pool.id)

    def test_memory_known_by_its_address_follows_a_checkpoint(self):
        pool = cuda.graph_pool_handle()
        graphs = [cuda.CUDAGraph() for _ in range(3)]
        with cuda.graph(graphs[0], pool=pool):
            inside = cuda.caching_allocator_alloc(3 * MIB)
            first = tensor(5).fill_(1)
        state = torch._C._cuda_getCheckpointState(0, pool)
        with cuda.graph(graphs[1], pool=pool):
            outside = cuda.caching_allocator_alloc(4 * MIB)
            second = tensor(9).fill_(1)
        kept = first.untyped_storage()._cdata
        torch._C._cuda_setCheckpointPoolState(0, state, [second.untyped_storage()._cdata, kept], [])
        with cuda.graph(graphs[2], pool=pool):
            third = tensor(4).fill_(1)
        self.assertEqual(third.data_ptr(), outside)
        torch._C._free_And_Remove_DeleterFn(third.untyped_storage()._cdata)  # as graph trees do
        live = lambda *addresses: torch._C._cuda_checkPoolLiveAllocations(0, pool, set(addresses))
        self.assertTrue(live(first.data_ptr(), inside))
        cuda.caching_allocator_delete(inside)
        self.assertTrue(live(first.data_ptr()))

    def test_a_tensor_that_lives_across_a_checkpoint_frees_its_own_memory(self):
        pool, graphs = cuda.graph_pool_handle(), [cuda.CUDAGraph() for _ in range(3)]
        with cuda.graph(graphs[0], pool=pool):
            small, first, last = tensor(2), tensor(3), tensor(4)
        del small  # so that the blocks get other numbers when the pool is set back
        state = torch._C._cuda_getCheckpointState(0, pool)
        with cuda.graph(graphs[1], pool=pool):
            second = [tensor(5), tensor(2)]
        stale = [one.untyped_storage()._cdata for one in second]
        torch._C._cuda_setCheckpointPoolState(0, state, stale, [])
        live = lambda *tensors: torch._C._cuda_checkPoolLiveAllocations(0, pool, {one.data_ptr() for one in tensors})
        self.assertTrue(live(first, last))
        with cuda.graph(graphs[2], pool=pool):
            third = [tensor(2), tensor(5)]
        first.record_stream(cuda.Stream())
        del first
        cuda.synchronize()
        cuda.empty_cache()
        self.assertTrue(live(last, *third))
        del last
        self.assertTrue(live(*third))
        before = cuda.memory_allocated()
        del third, second
        self.assertEqual(before - cuda.memory_allocated(), 7 * MIB)
        self.assertTrue(live())

    def test_a_pool_has_a_checkpoint_after_a_capture_with_a_recorded_stream(self):
        pool, graph, side = cuda.graph_pool_handle(), cuda.CUDAGraph(), cuda.Stream()
        with cuda.graph(graph, pool=pool):
            kept, recorded = tensor(3), tensor(5)
            side.wait_stream(cuda.current_stream())
            recorded.record_stream(side)
            cuda.current_stream().wait_stream(side)
            del recorded
        simulated.hold(side)
        with cuda.stream(side):
            torch.zeros(4096, dtype=torch.uint8).cuda(non_blocking=True)
        state = torch._C._cuda_getCheckpointState(0, pool)
        torch._C._cuda_setCheckpointPoolState(0, state, [], [])
        simulated.release(side)
        self.assertTrue(torch._C._cuda_checkPoolLiveAllocations(0, pool, {kept.data_ptr()}))

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
