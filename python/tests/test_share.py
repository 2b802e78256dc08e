"""Tensors that several processes use: queues of torch.multiprocessing, processes that end, bad handles.

The simulated device runs no kernels, so these tests only copy and set bytes.
"""

import gc
import threading
import time
import unittest

import torch
from torch import multiprocessing

import programs
import simulated

SETTINGS = ("", "expandable_segments:True", "policy:compact")


def numbers(count, first=0):
    return torch.arange(first, first + count, dtype=torch.int32)


def install(settings):
    import accelerator_alloc

    accelerator_alloc.install(settings)


def import_tensors(settings, received, answers):
    """Answers what tensors contain, writes other numbers into them, and waits for the word to drop them."""
    install(settings)
    for _ in range(2):
        tensors = received.get()
        answers.put([tensor.cpu().tolist()[:4] for tensor in tensors])
        same = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        answers.put(same.count(same[0]))
        tensors[0].copy_(numbers(len(tensors[0]), 500))
        torch.cuda.synchronize()
        answers.put("written")
        assert received.get() == "drop"
        answers.put([tensor.cpu().tolist()[:4] for tensor in tensors])
        del tensors
        gc.collect()
        answers.put(simulated.violations())


def export_tensor(settings, sent, stop):
    if settings is not None:
        install(settings)
    sent.put(numbers(300_000, 7).cuda())
    stop.get()


def drop_in_a_capture(received, answers):
    """Drops a tensor while a graph is being captured, and then imports nothing more."""
    install("")
    tensor, side = received.get(), torch.cuda.Stream()
    # PyTorch waits for the current stream when a tensor of another process is dropped.
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="relaxed"):
        torch.empty(1_000, device="cuda").fill_(1)
        with torch.cuda.stream(side):
            del tensor
        answers.put("dropped")
        assert received.get() == "end"
    answers.put(simulated.violations())
    received.get()


def drop_beside_a_pool(received, answers):
    """Drops a tensor while requests go to a pool, and a stream that has allocated nothing reads it."""
    install("")
    tensor, other, target = received.get(), torch.cuda.Stream(), numbers(300_000).pin_memory()
    torch.cuda.synchronize()
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        simulated.hold(other)
        with torch.cuda.stream(other):
            target.copy_(tensor, non_blocking=True)
        del tensor
        answers.put(None)
    simulated.release(other)
    torch.cuda.synchronize()
    answers.put((target.tolist()[:4], simulated.violations()))


def import_on_the_second_device(received, answers):
    install("")
    tensors = [received.get()]
    thread = threading.Thread(target=tensors.clear)  # which has no context, so that its device is the first one
    thread.start()
    thread.join()
    answers.put([simulated.has_context(0), simulated.has_context(1), torch.cuda.current_device()])
    received.get()


def share_on_the_second_device():
    """Prints what happens to the contexts of another process that drops a tensor."""
    install("")
    context = multiprocessing.get_context("spawn")
    sent, answers = context.Queue(), context.Queue()
    process = context.Process(target=import_on_the_second_device, args=(sent, answers))
    process.start()
    tensor = numbers(300_000).to("cuda:1")
    sent.put(tensor)
    print(answers.get(timeout=60))
    sent.put("stop")
    process.join()


def wait_until(condition, sentence):
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(sentence)
        torch.cuda.ipc_collect()
        time.sleep(0.01)


class Share(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install("")

    def setUp(self):
        self.context = multiprocessing.get_context("spawn")

    def start(self, target, *arguments):
        process = self.context.Process(target=target, args=arguments)
        process.start()
        self.addCleanup(process.kill)
        return process

    def configure(self, settings):
        import accelerator_alloc

        gc.collect()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        policy = "" if "policy" in settings else "policy:pytorch,"
        expands = "" if "expandable" in settings else "expandable_segments:False,"
        accelerator_alloc.configure((policy + expands + settings).rstrip(","))

    def test_tensors_go_through_queues_and_come_back(self):
        for settings in SETTINGS:
            with self.subTest(settings):
                self.configure(settings)
                before = torch.cuda.memory_allocated()
                sent, answers = self.context.Queue(), self.context.Queue()
                process = self.start(import_tensors, settings, sent, answers)

                def answer(answers=answers):
                    return answers.get(timeout=60)

                for count in (1_000, 6_000_000):
                    whole = numbers(count).cuda()
                    parts = [whole, whole[10:], numbers(count, 900).cuda()]
                    sent.put(parts)
                    self.assertEqual(answer(), [[0, 1, 2, 3], [10, 11, 12, 13], [900, 901, 902, 903]])
                    self.assertEqual(answer(), 2)
                    self.assertEqual(answer(), "written")
                    self.assertEqual(whole.cpu().tolist()[:4], [500, 501, 502, 503])
                    # The memory stays for the other process.
                    del whole, parts
                    gc.collect()
                    reused = numbers(count, 77).cuda()
                    self.assertGreater(torch.cuda.memory_allocated(), before + 2 * reused.nbytes)
                    sent.put("drop")
                    self.assertEqual(answer()[0], [500, 501, 502, 503])
                    self.assertEqual(answer(), 0)
                    del reused
                    wait_until(lambda: torch.cuda.memory_allocated() == before, "shared memory is not freed")
                process.join()
                self.assertEqual(process.exitcode, 0)

    def test_an_import_that_is_dropped_in_a_capture_ends_with_it(self):
        self.configure("")
        before = torch.cuda.memory_allocated()
        sent, answers = self.context.Queue(), self.context.Queue()
        process = self.start(drop_in_a_capture, sent, answers)
        sent.put(numbers(300_000).cuda())
        self.assertEqual(answers.get(timeout=60), "dropped")
        torch.cuda.ipc_collect()
        self.assertGreater(torch.cuda.memory_allocated(), before)
        sent.put("end")
        self.assertEqual(answers.get(timeout=60), 0)
        wait_until(lambda: torch.cuda.memory_allocated() == before, "the memory of an import is not freed")
        sent.put("stop")
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_an_import_waits_for_all_streams_while_requests_go_to_a_pool(self):
        self.configure("")
        sent, answers = self.context.Queue(), self.context.Queue()
        process = self.start(drop_beside_a_pool, sent, answers)
        tensor = numbers(300_000, 7).cuda()
        sent.put(tensor)
        self.assertIsNone(answers.get(timeout=60))
        self.assertEqual(answers.get(timeout=60), ([7, 8, 9, 10], 0))
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_the_end_of_an_import_creates_no_context_on_another_device(self):
        text = "import test_share\ntest_share.share_on_the_second_device()"
        out, error = programs.run("-c", text, CUDA_SIM_DEVICES="2")
        self.assertEqual((out, error), ("[False, True, 0]", ""))

    def test_memory_stays_when_the_process_that_shared_it_is_killed(self):
        for settings in SETTINGS:
            with self.subTest(settings):
                self.configure(settings)
                received, stop = self.context.Queue(), self.context.Queue()
                process = self.start(export_tensor, settings, received, stop)
                tensor = received.get(timeout=60)
                self.assertEqual(tensor.cpu().tolist()[-1], 300_006)
                process.kill()
                process.join()
                self.assertEqual(tensor.cpu().tolist(), list(range(7, 300_007)))
                tensor.copy_(numbers(300_000, 8))
                self.assertEqual(tensor.cpu().tolist()[:2], [8, 9])

    def test_a_tensor_comes_from_a_process_with_pytorchs_own_allocator(self):
        received, stop = self.context.Queue(), self.context.Queue()
        process = self.start(export_tensor, None, received, stop)
        tensor = received.get(timeout=60)
        self.assertEqual(tensor.cpu().tolist(), list(range(7, 300_007)))
        del tensor
        stop.put("stop")
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_the_pool_of_shared_memory_is_not_restored(self):
        self.configure("")
        pool, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            tensor = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
        state = torch._C._cuda_getCheckpointState(0, pool)
        tensor.untyped_storage()._share_cuda_()
        with self.assertRaisesRegex(RuntimeError, "cannot be restored while its memory is shared"):
            torch._C._cuda_setCheckpointPoolState(0, state, [], [])

    def test_a_bad_handle_raises_an_error(self):
        self.configure("")
        tensor = numbers(5_000).cuda()
        device, handle, *rest, _ = tensor.untyped_storage()._share_cuda_()
        self.assertEqual(tensor.untyped_storage()._share_cuda_()[1], handle)
        new = torch.UntypedStorage._new_shared_cuda
        rest.append(False)  # no event of this process can be opened in it
        with self.assertRaisesRegex(RuntimeError, "this process shared the memory itself"):
            new(device, handle, *rest)
        with self.assertRaisesRegex(RuntimeError, "not a handle of shared memory"):
            new(device, handle[:-1], *rest)
        other = bytes([*handle[:-1], handle[-1] ^ 1])
        with self.assertRaisesRegex(RuntimeError, "this process shared the memory itself"):
            new(device, other, *rest)
        server = bytes([*handle[:4], handle[4] ^ 1, *handle[5:]])
        with self.assertRaisesRegex(RuntimeError, "has ended"):
            new(device, server, *rest)


if __name__ == "__main__":
    unittest.main()
