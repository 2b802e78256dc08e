// PyTorch's allocator for tensors of the CPU, over the library's C functions. It is compiled against the headers of one
// version of PyTorch.
//
// The context of a tensor's `DataPtr` is its address: PyTorch's own code calls `raw_allocate`, which requires that, and
// copies storages on write. So the library finds memory by its address.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <string>

#include "accelerator_torch.h"

namespace accelerator {
namespace {

CpuLibrary library;
c10::Allocator* native = nullptr;
std::atomic<bool> is_installed = false; // false again after an uninstallation, which this allocator's tensors may outlive
bool is_child = false; // a fork made this process

const c10::Device CPU{c10::DeviceType::CPU};

// Tells PyTorch's profiler that memory is allocated, or is about to be freed.
C10_NOINLINE void profile(void* address, bool allocated) {
  Usage usage = library.usage(reinterpret_cast<uint64_t>(address));
  if (!usage.block) return;
  auto bytes = int64_t(usage.block);
  c10::reportMemoryUsageToProfiler(address, allocated ? bytes : -bytes, usage.allocated - (allocated ? 0 : bytes),
                                   usage.reserved, CPU);
}

// The deleter of all tensors, which also gets what PyTorch's own allocator has given out: PyTorch asks for the deleter
// when it frees memory without a tensor.
void release(void* address) {
  if (!address) return;
  auto word = reinterpret_cast<uint64_t>(address);
  if (C10_UNLIKELY(is_child)) {
    if (!library.forget(word)) native->raw_deallocate(address);
    return;
  }
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) profile(address, false);
  if (library.raw_free(word) == FOREIGN) native->raw_deallocate(address);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (C10_UNLIKELY(is_child || !is_installed.load(std::memory_order_relaxed))) return native->allocate(size);
    uint64_t word = 0;
    int status = library.raw_allocate(size, 0, nullptr, &word);
    // As PyTorch's own: it has no exception of its own for the CPU's memory.
    if (C10_UNLIKELY(status != DONE)) TORCH_CHECK(false, std::string(library.last_error()));
    auto* address = reinterpret_cast<void*>(word);
    if (C10_UNLIKELY(address && c10::memoryProfilingEnabled())) profile(address, true);
    return {address, address, &release, CPU};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(to, from, size);
  }
};

bool has_nothing_to_free() noexcept {
  return false;
}

}  // namespace
}  // namespace accelerator

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Puts the library's allocator in the place of PyTorch's, with these settings or those of the environment. Returns
// null, or what went wrong; nothing has changed then. The caller holds a lock.
EXPORTED const char* accelerator_torch_install(const char* path, const char* settings) {
  using namespace accelerator;
  if (is_child) return "this process was forked from one with the allocator: start a new program instead";
  void* handle = dlopen(path, RTLD_NOW);
  if (!handle) return dlerror();
  ACCELERATOR_TORCH_FUNCTIONS(ACCELERATOR_TORCH_FIND)
  ACCELERATOR_TORCH_CPU_FUNCTIONS(ACCELERATOR_TORCH_FIND)
  if (library.start(settings, &has_nothing_to_free) != DONE) return library.last_error();
  if (!native) {
    // A child, too, may fork while its threads free memory.
    auto in_child = [] { library.fork_end(); is_child = true; };
    if (pthread_atfork(library.fork_begin, library.fork_end, in_child)) return "there is no memory";
    native = c10::GetCPUAllocator();
  }
  // It is never destroyed, since tensors may outlive everything else.
  static auto* allocator = new Allocator;
  is_installed = true;
  c10::SetCPUAllocator(allocator, 255);
  return nullptr;
}

// From now on, PyTorch's own allocator gives out memory. What was given out before goes back to the library: this
// allocator stays in front, since PyTorch frees memory without a tensor by the allocator of that moment.
EXPORTED const char* accelerator_torch_uninstall() {
  accelerator::is_installed = false;
  return nullptr;
}
