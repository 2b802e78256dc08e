// PyTorch's allocator interface over the library's C functions. It is compiled against the headers of one version of
// PyTorch, and is put in the place of PyTorch's own allocator, which stays for the memory that it has given out before.
#include <c10/core/Allocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerator_torch.h"
#include "records.h"

namespace accelerator {
namespace {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;
using namespace c10::cuda::CUDACachingAllocator;

CudaLibrary library;
CUDAAllocator* native = nullptr;
bool is_installed = false; // false again after an uninstallation, which tensors without memory may outlive
bool is_late = false; // PyTorch's own allocator may have given out memory
std::atomic<int> routes = 0; // by which requests go to pools
std::atomic<int> seldom = 0; // reasons to look at new memory again: the routes, and 1 after PyTorch has thrown

// The streams that were current when the routes began. PyTorch begins a route before it captures such a stream, and
// ends it after the capture.
struct Captures {
  std::mutex mutex;
  std::vector<std::pair<std::pair<DeviceIndex, MempoolId_t>, cudaStream_t>> streams;

  void may_begin(DeviceIndex device, MempoolId_t pool) {
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
    std::lock_guard lock(mutex);
    streams.push_back({{device, pool}, stream});
  }

  void ended(DeviceIndex device, MempoolId_t pool) {
    std::lock_guard lock(mutex);
    std::erase_if(streams, [&](const auto& entry) { return entry.first == std::pair(device, pool); });
  }

  // Whether a capture is underway.
  bool any() noexcept {
    std::lock_guard lock(mutex);
    return std::any_of(streams.begin(), streams.end(), [](const auto& entry) {
      auto status = cudaStreamCaptureStatusNone;
      if (cudaStreamIsCapturing(entry.second, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
      cudaGetLastError(); // which PyTorch would take for one of its own
      return true;
    });
  }
} captures;

// PyTorch's own allocator has to know of captures, since tensors from before the installation may be freed in one: it
// then records no events. A template, because older versions of PyTorch have no such functions.
template <class Own>
void mark_native_capture(Own* own, DeviceIndex device, bool begins) {
  if constexpr (requires { own->markCaptureBegin(device); }) {
    if (is_late) begins ? own->markCaptureBegin(device) : own->markCaptureEnd(device);
  }
}

// Does so in those versions, in which the routes to pools count as captures. No request goes to this one.
struct NativeCaptures {
  template <class Own>
  static constexpr bool are_marked = requires(Own own) { own.markCaptureBegin(0); };
  static constexpr MempoolId_t POOL{~uint64_t{0}, 0}; // a number that PyTorch gives no pool
  std::mutex mutex;
  std::map<DeviceIndex, int> underway;

  void may_begin(DeviceIndex device) {
    if (!is_late || are_marked<CUDAAllocator&>) return;
    std::lock_guard lock(mutex);
    auto [known, is_new] = underway.try_emplace(device, 0);
    if (is_new) native->createOrIncrefPool(device, POOL, nullptr); // and keeps it, since no pool begins twice
    if (known->second == 0) native->beginAllocateToPool(device, POOL, [](cudaStream_t) { return false; });
    known->second++;
  }

  void ended(DeviceIndex device) {
    std::lock_guard lock(mutex);
    auto known = underway.find(device);
    if (known == underway.end() || known->second == 0 || --known->second > 0) return;
    native->endAllocateToPool(device, POOL);
    native->releasePool(device, POOL);
  }
} native_captures;

// Throws the library's last error.
void check(int status) {
  TORCH_CHECK(status == DONE, library.last_error());
}

c10::Device cuda(DeviceIndex device) {
  return {c10::DeviceType::CUDA, device};
}

// Tells PyTorch's profiler that memory is allocated, or is about to be freed. It is known by its context or address.
C10_NOINLINE void profile(uint64_t context, bool allocated) {
  Usage usage = library.usage(context);
  if (!usage.block) return;
  auto bytes = int64_t(usage.block);
  c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(usage.address), allocated ? bytes : -bytes,
                                   usage.allocated - (allocated ? 0 : bytes), usage.reserved, cuda(usage.device));
}

// Tells PyTorch's profiler that memory is about to be freed, and its sanitizer, which has no need of bytes.
C10_NOINLINE void observe_free(uint64_t context) {
  if (const auto* trace = c10::impl::GPUTrace::get_trace()) {
    Usage usage = library.usage(context);
    if (usage.block) (*trace)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, usage.address);
  }
  if (c10::memoryProfilingEnabled()) profile(context, false);
}

// The same for memory that has been allocated.
C10_NOINLINE void observe_allocation(uint64_t context, uint64_t address) {
  const auto* trace = c10::impl::GPUTrace::get_trace();
  if (trace && address) (*trace)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, address);
  if (c10::memoryProfilingEnabled()) profile(context, true);
}

bool is_observed() {
  return c10::memoryProfilingEnabled() || c10::impl::GPUTrace::get_trace();
}

// The deleter of all tensors. A context is odd. An address is not: PyTorch passes it for memory without a tensor, and
// for memory that is copied on write.
void release(void* context) {
  auto word = reinterpret_cast<uint64_t>(context);
  if (C10_UNLIKELY(is_observed())) observe_free(word);
  if (C10_LIKELY(word & 1)) {
    library.free(word);
  } else if (word && library.raw_free(word) == FOREIGN) {
    native->raw_delete(context);
  }
}

// Whether PyTorch's own allocator has free memory, which is from before the installation.
bool native_has_free_memory() {
  if (!is_late) return false;
  for (int device = 0; device < c10::cuda::device_count(); device++) {
    auto stats = native->getDeviceStats(device);
    // The rest of a segment that is partly in use cannot go back.
    auto kept = stats.allocated_bytes[0].current + stats.inactive_split_bytes[0].current;
    if (stats.reserved_bytes[0].current > kept) return true;
  }
  return false;
}

// The context that is current on a thread, which need not be the one that CUDA's runtime has for the thread's device.
struct CurrentContext {
  template <class Function>
  static Function find(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    auto asked = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    bool is_there = asked == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return is_there ? reinterpret_cast<Function>(function) : nullptr;
  }

  // Null if there is none.
  static void* get() noexcept {
    static auto* const function = find<int (*)(void**)>("cuCtxGetCurrent");
    void* context = nullptr;
    return function && function(&context) == 0 ? context : nullptr;
  }

  // Whether there is one of this device, such as a green context.
  static bool is_of(DeviceIndex device) noexcept {
    int current = -1;
    return get() && cudaGetDevice(&current) == cudaSuccess && current == device;
  }

  static void set(void* context) noexcept {
    static auto* const function = find<int (*)(void*)>("cuCtxSetCurrent");
    if (function) function(context);
  }
};

// Waits for the work of all devices, any of which may use the memory of another one. It would break a capture.
void finish_all_work() noexcept {
  void* before = CurrentContext::get();
  DeviceIndex current = 0;
  if (c10::cuda::GetDevice(&current) != cudaSuccess) return;
  for (int device = 0; device < c10::cuda::device_count(); device++) {
    if (c10::cuda::hasPrimaryContext(DeviceIndex(device)) && cudaSetDevice(device) == cudaSuccess) {
      cudaDeviceSynchronize();
    }
  }
  // Neither creates a context, as the runtime does for a device that the process does not use yet.
  before ? CurrentContext::set(before) : void(c10::cuda::MaybeSetDevice(current));
  cudaGetLastError(); // which PyTorch would take for one of its own
}

// Pools whose graphs are gone. Their work may still run on any stream, of which the library knows only some, and mapped
// memory goes back to the driver without waiting for others. So the last use of such a pool is released after a wait.
struct EndedPools {
  std::atomic<bool> are_mapped = false;
  std::mutex mutex;
  std::vector<std::pair<DeviceIndex, MempoolId_t>> pools;

  // Comes with each route, since pools get memory by these.
  void note_settings() {
    if (library.settings().expandable_segments) are_mapped = true;
  }

  // Takes over the use of a pool, if it is the last one and the pool may have mapped memory.
  bool take_over(DeviceIndex device, MempoolId_t pool) {
    if (!are_mapped || library.pool_uses(device, number(pool)) != 1) return false;
    std::lock_guard lock(mutex);
    pools.push_back({device, pool});
    return true;
  }

  int uses(DeviceIndex device, MempoolId_t pool) {
    std::lock_guard lock(mutex);
    return int(std::count(pools.begin(), pools.end(), std::pair(device, pool)));
  }

  // Releases the uses, unless a capture is underway.
  void release() noexcept {
    std::vector<std::pair<DeviceIndex, MempoolId_t>> ended;
    {
      std::lock_guard lock(mutex);
      if (pools.empty() || captures.any()) return;
      ended.swap(pools);
    }
    finish_all_work();
    for (auto [device, pool] : ended) library.pool_release(device, number(pool)); // which is there: this is a use of it
  }
} ended_pools;

// Frees what PyTorch can spare, when a request finds no free block.
bool free_memory() noexcept {
  bool freed = false;
  try {
    ended_pools.release();
    // Its memory must not go back during a capture, and a request that goes to a pool may be part of one.
    if (routes == 0 && native_has_free_memory()) {
      native->emptyCache({0, 0});
      freed = true;
    }
    auto* callbacks = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto& name : callbacks->Keys()) freed |= callbacks->Create(name)->Execute();
  } catch (...) {
    // The request goes on without it.
  }
  return freed;
}

// What a function of PyTorch threw while the library called it. Exceptions cannot pass through the library, so the
// request throws them afterwards.
struct Thrown {
  static inline std::atomic<bool> any = false;
  static inline thread_local std::exception_ptr last;

  static void keep() noexcept {
    last = std::current_exception();
    if (!any.exchange(true)) seldom++;
  }
};

// Whether requests go to a pool.
struct Filter {
  using Function = std::function<bool(cudaStream_t)>;

  static bool call(void* function, void* stream) noexcept {
    try {
      return (*static_cast<Function*>(function))(static_cast<cudaStream_t>(stream));
    } catch (...) {
      Thrown::keep();
      return false;
    }
  }

  static void drop(void* function) noexcept {
    delete static_cast<Function*>(function);
  }
};

// The allocator of a pool.
struct Source {
  using Shared = std::shared_ptr<CUDAAllocator>;

  static uint64_t allocate(void* source, uint64_t bytes) noexcept {
    try {
      return reinterpret_cast<uint64_t>((*static_cast<Shared*>(source))->raw_alloc(bytes));
    } catch (...) {
      Thrown::keep();
      return 0;
    }
  }

  static void free(void* source, uint64_t address) noexcept {
    try {
      (*static_cast<Shared*>(source))->raw_delete(reinterpret_cast<void*>(address));
    } catch (...) {
      // It has no way to report an error.
    }
  }

  static void drop(void* source) noexcept {
    delete static_cast<Shared*>(source);
  }
};

struct Checkpoint final : AllocatorState {
  void* state = nullptr;
  ~Checkpoint() override {
    library.checkpoint_drop(state);
  }
};

class Allocator final : public CUDAAllocator {
 public:
  int devices = 0;
  std::atomic<bool> is_recording = false;

  DataPtr allocate(size_t size) override {
    if (C10_UNLIKELY(!is_installed)) return native->allocate(size);
    DeviceIndex device = c10::cuda::current_device();
    // The first call of a thread makes its device's context current, as `cudaMalloc` does: PyTorch warns without one.
    static thread_local bool has_context = false;
    if (C10_UNLIKELY(!has_context)) has_context = CurrentContext::is_of(device) || cudaSetDevice(device) == cudaSuccess;
    Memory memory{0, 0};
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device);
    int status = library.allocate(size, device, stream, &memory);
    if (C10_UNLIKELY(status != DONE)) fail(status, device);
    if (C10_UNLIKELY(seldom.load(std::memory_order_relaxed) > 0)) complete(memory);
    if (C10_UNLIKELY(is_observed())) observe_allocation(memory.context, memory.address);
    return data_ptr(memory, device);
  }

  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    DeviceIndex device = c10::cuda::current_device();
    uint64_t address = 0;
    int status = library.raw_allocate(size, device, stream, &address);
    if (C10_UNLIKELY(status != DONE)) fail(status, device);
    if (C10_UNLIKELY(Thrown::any.load(std::memory_order_relaxed))) rethrow(address);
    if (C10_UNLIKELY(is_observed())) observe_allocation(address, address);
    return reinterpret_cast<void*>(address);
  }

  void* raw_alloc(size_t size) override {
    return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream());
  }

  void raw_delete(void* address) override {
    release(address);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  // PyTorch asks this before it copies a storage on write, and then needs the context to be the address.
  bool is_simple_data_ptr(const DataPtr& pointer) const override {
    if (pointer.get_deleter() != &release) return pointer.get() == pointer.get_context();
    if (pointer.get() != pointer.get_context()) {
      // The pointer is that of a storage, which is not constant.
      auto& own = const_cast<DataPtr&>(pointer);
      auto context = reinterpret_cast<uint64_t>(own.release_context());
      library.keep_address({reinterpret_cast<uint64_t>(own.get()), context});
      own = DataPtr(own.get(), own.get(), &release, own.device());
    }
    return true;
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }

  void recordStream(const DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    if (!pointer.get()) return;
    if (pointer.get_deleter() != &release) return native->recordStream(pointer, stream);
    TORCH_CHECK(stream.device() == pointer.device(), "accelerator: ", pointer.device(), " has the tensor, and ",
                stream.device(), " the stream: make a stream of the tensor's device wait for it, and record that one");
    auto context = reinterpret_cast<uint64_t>(pointer.get_context());
    check(library.record_use(context, stream.stream()));
  }

  void init(int count) override {
    devices = count;
    if (!native->initialized()) native->init(count);
  }

  bool initialized() override {
    return native->initialized();
  }

  std::string name() override {
    return "accelerator";
  }

  void enable(bool value) override {
    check(library.set_caching(value));
    native->enable(value);
  }

  bool isEnabled() const override {
    return native->isEnabled();
  }

  // Limits, cache, statistics.

  double getMemoryFraction(DeviceIndex device) override {
    return library.memory_fraction(device);
  }

  void setMemoryFraction(double fraction, DeviceIndex device) override {
    check(library.set_memory_fraction(device, fraction));
  }

  void emptyCache(MempoolId_t pool) override {
    ended_pools.release();
    check(library.empty_cache(number(pool)));
    // It counts as a wait for all streams, and would break a capture.
    if (native_has_free_memory() && !captures.any()) native->emptyCache(pool);
  }

  void cacheInfo(DeviceIndex device, size_t* largest) override {
    *largest = std::max<size_t>(*largest, library.largest(device));
  }

  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return native->getExpandableSegmentSizes(device);
  }

  // Ours and, for memory from before the installation, those of PyTorch's own allocator.
  DeviceStats getDeviceStats(DeviceIndex device) override {
    DeviceStats stats = native->getDeviceStats(device);
    int64_t numbers[STATISTICS];
    check(library.statistics(device, numbers));
    const int64_t* next = numbers;
    for (StatArray* pools : {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split,
                             &stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                             &stats.inactive_split_bytes, &stats.requested_bytes}) {
      next = add_pools(*pools, next);
    }
    next = add(stats.oversize_allocations, next);
    next = add(stats.oversize_segments, next);
    for (int64_t* count : {&stats.num_alloc_retries, &stats.num_ooms, &stats.num_sync_all_streams,
                           &stats.num_device_alloc, &stats.num_device_free}) {
      *count += *next++;
    }
    add_rejections(stats, *next++);
    stats.max_split_size = *next;
    add_private_pools(stats, device);
    return stats;
  }

  void resetAccumulatedStats(DeviceIndex device) override {
    check(library.reset_accumulated(device));
    native->resetAccumulatedStats(device);
  }

  void resetPeakStats(DeviceIndex device) override {
    check(library.reset_peaks(device));
    native->resetPeakStats(device);
  }

  // Segments, blocks and history.

  void* getBaseAllocation(void* address, size_t* size) override {
    Range segment = library.segment_at(reinterpret_cast<uint64_t>(address));
    if (!segment.size) return native->getBaseAllocation(address, size);
    if (size) *size = segment.size;
    return reinterpret_cast<void*>(segment.start);
  }

  SnapshotInfo snapshot(MempoolId_t pool, bool with_traces) override {
    SnapshotInfo info = native->snapshot(pool, with_traces);
    describe(library.settings(), info.config_metadata);
    info.device_traces.resize(std::max<size_t>(info.device_traces.size(), devices));
    auto skipped = skipped_actions();
    for (int device = 0; device < devices; device++) {
      auto& trace = info.device_traces[device];
      // A snapshot is an event of our history, too.
      std::erase_if(trace, [](const TraceEntry& entry) { return entry.action_ == TraceEntry::SNAPSHOT; });
      Records records{info.segments, with_traces ? &trace : nullptr, skipped, DeviceIndex(device)};
      check(library.snapshot(device, number(pool), &Records::segment, &Records::entry, &records));
    }
    return info;
  }

  bool isHistoryEnabled() override {
    return is_recording;
  }

  void recordHistory(bool on, CreateContextFn create, size_t entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    native->recordHistory(on, create, entries, when, clear, skipped); // for its annotations; checks the arguments
    if (create) Context::create = create;
    {
      std::lock_guard lock(mutex);
      skip.clear();
      for (const auto& action : skipped) skip.push_back(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
    }
    check(library.record_history(on, entries, int(when), clear, &Context::capture, &Context::release));
    is_recording = on;
  }

#if TORCH_VERSION_MINOR >= 12
  std::shared_ptr<GatheredContext> getContextForPointer(const void* address) override {
    std::shared_ptr<GatheredContext> found;
    auto keep = [](void* to, void* context) noexcept {
      *static_cast<std::shared_ptr<GatheredContext>*>(to) = Context::gathered_by(context);
    };
    check(library.context_at(reinterpret_cast<uint64_t>(address), keep, &found));
    return found ? found : native->getContextForPointer(address);
  }

  void attachOomRejectionObserver(OomRejectionObserver observer) override {
    {
      std::lock_guard lock(mutex);
      rejection_observers.push_back(observer);
    }
    native->attachOomRejectionObserver(std::move(observer));
  }
#endif

  void pushCompileContext(std::string& context) override {
    Context::compiling.push_back(context);
  }

  void popCompileContext() override {
    if (!Context::compiling.empty()) Context::compiling.pop_back();
  }

  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native->recordAnnotation(annotation);
  }

  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    {
      std::lock_guard lock(mutex);
      observers.push_back(observer);
    }
    native->attachOutOfMemoryObserver(std::move(observer));
  }

  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    native->attachAllocatorTraceTracker(std::move(tracker));
  }

  // Private pools. PyTorch's own allocator keeps those from before the installation.

  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> own) override {
    if (is_native(device, pool)) return native->createOrIncrefPool(device, pool, std::move(own));
    if (!own) return check(library.pool_retain(device, number(pool)));
    auto* source = new Source::Shared(std::move(own));
    check(library.pool_retain_with_source(device, number(pool), &Source::allocate, &Source::free, &Source::drop, source));
  }

  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    TORCH_CHECK(!is_native(device, pool), "accelerator: this pool is from before the installation: make a new one");
    native_captures.may_begin(device);
    auto* function = new Filter::Function(std::move(filter));
    if (library.pool_begin(device, number(pool), &Filter::call, &Filter::drop, function) != DONE) {
      native_captures.ended(device);
      TORCH_CHECK(false, library.last_error());
    }
    ended_pools.note_settings();
    captures.may_begin(device, pool);
    routes++;
    seldom++;
  }

  // PyTorch 2.11 does not have these functions, so they cannot be marked as overriding.
  void markCaptureBegin(DeviceIndex device) {
    mark_native_capture(native, device, true);
  }

  void markCaptureEnd(DeviceIndex device) {
    mark_native_capture(native, device, false);
  }

  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    if (is_native(device, pool)) return native->endAllocateToPool(device, pool);
    check(library.pool_end(device, number(pool)));
    ended_pools.note_settings();
    captures.ended(device, pool);
    native_captures.ended(device);
    routes--;
    seldom--;
  }

  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    if (is_native(device, pool)) return native->releasePool(device, pool);
    if (!ended_pools.take_over(device, pool)) check(library.pool_release(device, number(pool)));
  }

  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    if (is_native(device, pool)) return native->getPoolUseCount(device, pool);
    return library.pool_uses(device, number(pool)) - ended_pools.uses(device, pool);
  }

  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use_on_oom) override {
    if (is_native(device, pool)) return native->setUseOnOOM(device, pool, use_on_oom);
    check(library.pool_use_on_oom(device, number(pool), use_on_oom));
  }

  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    if (is_native(device, pool)) return native->setNoSplit(device, pool);
    check(library.pool_no_split(device, number(pool)));
  }

  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    if (is_native(device, pool)) return native->checkPoolLiveAllocations(device, pool, expected);
    std::unordered_set<void*> live;
    auto add = [](void* to, uint64_t address, uint64_t) noexcept {
      static_cast<std::unordered_set<void*>*>(to)->insert(reinterpret_cast<void*>(address));
    };
    check(library.pool_allocations(device, number(pool), add, &live));
    return live == expected;
  }

  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool) override {
    if (is_native(device, pool)) return native->getCheckpointState(device, pool);
    void* state = nullptr;
    check(library.checkpoint(device, number(pool), &state));
    auto checkpoint = std::make_shared<Checkpoint>();
    checkpoint->state = state;
    return checkpoint;
  }

  CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override {
    struct Change {
      CheckpointDelta delta;
      DeviceIndex device;
    } change{{}, device};
    auto note = [](void* to, uint64_t address, uint64_t context) noexcept {
      auto& [delta, device] = *static_cast<Change*>(to);
      if (context) {
        delta.dataptrs_allocd.push_back(data_ptr({address, context}, device));
      } else {
        delta.ptrs_freed.push_back(reinterpret_cast<void*>(address));
      }
    };
    auto* checkpoint = dynamic_cast<Checkpoint*>(state.get());
    if (!checkpoint) return native->setCheckpointPoolState(device, std::move(state));
    check(library.checkpoint_restore(device, checkpoint->state, note, &change));
    return std::move(change.delta);
  }

  // Other processes and devices.

  // The library's handles begin with these letters, and those of PyTorch's own allocator with other ones.
  static constexpr const char* OUR_HANDLES = "AMH";

  ShareableHandle shareIpcHandle(void* address) override {
    auto number = reinterpret_cast<uint64_t>(address);
    if (!library.owns(number)) return native->shareIpcHandle(address);
    Handle handle;
    check(library.share(number, &handle));
    return {0, std::string(reinterpret_cast<const char*>(handle.bytes), handle.size)};
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    if (handle.rfind(OUR_HANDLES, 0) != 0) return native->getIpcDevPtr(std::move(handle));
    Import import{0, nullptr};
    auto* bytes = reinterpret_cast<const uint8_t*>(handle.data());
    check(library.import(bytes, handle.size(), c10::cuda::current_device(), &import));
    auto drop = [owner = import.owner](void*) {
      if (!captures.any()) finish_all_work();
      library.import_drop(owner);
    };
    return {reinterpret_cast<void*>(import.address), drop};
  }

  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override {
    native->enablePeerAccess(device, peer);
    check(library.enable_peer_access(device, peer));
  }

  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool) override {
    if (to_device == from_device) return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    // It works also for mapped memory to which the other device has no access.
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }

 private:
  std::mutex mutex; // of the lists
  std::vector<OutOfMemoryObserver> observers;
  // PyTorch 2.11 has no type for them.
  std::vector<std::function<void(int64_t, size_t, size_t, size_t)>> rejection_observers;
  std::vector<TraceEntry::Action> skip;

  std::vector<TraceEntry::Action> skipped_actions() {
    std::lock_guard lock(mutex);
    return skip;
  }

  // Whether a pool is one of PyTorch's own allocator.
  static bool is_native(DeviceIndex device, MempoolId_t pool) {
    if (C10_LIKELY(!is_late) || library.pool_uses(device, number(pool)) > 0) return false;
    try {
      return native->getPoolUseCount(device, pool) > 0;
    } catch (const c10::Error&) {
      return false; // It does not know the pool.
    }
  }

  static DataPtr data_ptr(Memory memory, DeviceIndex device) {
    return {reinterpret_cast<void*>(memory.address), reinterpret_cast<void*>(memory.context), &release,
            c10::Device(c10::DeviceType::CUDA, device)};
  }

  static const int64_t* add(Stat& stat, const int64_t* numbers) {
    stat.current += *numbers++;
    stat.peak += *numbers++;
    stat.allocated += *numbers++;
    stat.freed += *numbers++;
    return numbers;
  }

  // The library has the pools in the order of PyTorch's StatType.
  static const int64_t* add_pools(StatArray& stats, const int64_t* numbers) {
    for (Stat& stat : stats) numbers = add(stat, numbers);
    return numbers;
  }

  // A template, because PyTorch 2.11 does not have this statistic.
  template <class Stats>
  static void add_rejections(Stats& stats, int64_t count) {
    if constexpr (requires { stats.num_oom_rejections; }) stats.num_oom_rejections += count;
  }

  // A template, because PyTorch 2.12 does not have these statistics.
  template <class Stats>
  static void add_private_pools(Stats& stats, DeviceIndex device) {
    if constexpr (requires { stats.reserved_bytes_by_private_pools; }) {
      auto add_pool = [](void* to, Pool pool, const int64_t* numbers) noexcept {
        add_pools(static_cast<Stats*>(to)->reserved_bytes_by_private_pools[number(pool)], numbers);
      };
      check(library.reserved_by_pools(device, add_pool, &stats));
    }
  }

  [[noreturn]] void fail(int status, DeviceIndex device) {
    rethrow(0);
    std::string text = library.last_error(); // before another call fails
    TORCH_CHECK(status == OUT_OF_MEMORY, text);
    Shortage shortage = library.last_shortage();
    c10::reportOutOfMemoryToProfiler(shortage.segment, shortage.allocated, shortage.reserved, cuda(device));
    auto [ours, of_rejections] = [&] {
      std::lock_guard lock(mutex);
      return std::pair(observers, rejection_observers);
    }();
    if (shortage.is_rejected) {
      for (const auto& observer : of_rejections) observer(device, shortage.segment, shortage.allocated, shortage.total);
    } else {
      for (const auto& observer : ours) observer(device, shortage.segment, shortage.limit, shortage.free);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  }

  // Throws, or prepares memory that may be a pool's. A checkpoint gives it another context, while PyTorch leaves the
  // `DataPtr` of a tensor that lives on as it is. So it has its address there, for which the library has the context.
  C10_NOINLINE void complete(Memory& memory) {
    rethrow(memory.context);
    if (routes == 0 || !memory.context) return;
    library.keep_address(memory);
    memory.context = memory.address;
  }

  // Throws what PyTorch threw on this thread, after it has freed the memory that the request got nevertheless.
  C10_NOINLINE void rethrow(uint64_t context) {
    if (!Thrown::last) return;
    release(reinterpret_cast<void*>(context));
    std::rethrow_exception(std::exchange(Thrown::last, nullptr));
  }
};

}  // namespace
}  // namespace accelerator

// The only one. It is never destroyed, since tensors may outlive everything else.
accelerator::Allocator* installed() {
  static auto* allocator = new accelerator::Allocator;
  return allocator;
}

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Puts the library's allocator in the place of PyTorch's, with these settings or those of the environment. Returns
// null, or what went wrong; nothing has changed then. The caller holds a lock.
EXPORTED const char* accelerator_torch_install(const char* path, const char* settings) {
  using namespace accelerator;
  static std::string problem;
  problem.clear();
  auto* own = c10::cuda::CUDACachingAllocator::allocator.load();
  try {
    if (auto name = own->name(); name != "native") problem = "PyTorch uses the allocator " + name + ", not its own";
  } catch (const std::exception&) {
    problem = "PyTorch uses another allocator than its own";
  }
  if (!problem.empty()) return problem.c_str();
  void* handle = dlopen(path, RTLD_NOW);
  if (!handle) return dlerror();
  ACCELERATOR_TORCH_FUNCTIONS(ACCELERATOR_TORCH_FIND)
  ACCELERATOR_TORCH_CUDA_FUNCTIONS(ACCELERATOR_TORCH_FIND)
  if (library.start(settings, &free_memory) != DONE) return library.last_error();
  static const bool is_uncached = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  if ((is_uncached || !own->isEnabled()) && library.set_caching(false) != DONE) return library.last_error();
  is_late = own->initialized();
  if (is_late) {
    installed()->devices = c10::cuda::device_count();
    for (int device = 0; device < installed()->devices; device++) {
      double fraction = own->getMemoryFraction(device);
      if (fraction < 1.0 && library.set_memory_fraction(device, fraction) != DONE) return library.last_error();
      // PyTorch asks for each pair of devices once, which may have been before.
      for (int peer = 0; peer < installed()->devices; peer++) {
        int can = 0;
        if (peer == device) continue;
        if (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess) cudaGetLastError(); // not one of PyTorch's own
        if (can && library.enable_peer_access(device, peer) != DONE) return library.last_error();
      }
    }
  }
  native = own;
  c10::cuda::CUDACachingAllocator::allocator.store(installed());
  c10::SetAllocator(c10::DeviceType::CUDA, installed(), 255); // PyTorch's own has priority 1
  is_installed = true;
  return nullptr;
}

// Puts PyTorch's own allocator back. Returns null, or what went wrong; nothing has changed then. No other thread may
// allocate meanwhile.
EXPORTED const char* accelerator_torch_uninstall() {
  using namespace accelerator;
  ended_pools.release();
  if (library.empty_cache({0, 0}) != DONE) return library.last_error();
  int64_t numbers[STATISTICS];
  for (int device = 0; device < installed()->devices; device++) {
    if (library.statistics(device, numbers) != DONE) return library.last_error();
    if (library.pools_in_use(device)) return "graphs and pools of it still exist: delete them first";
    constexpr int RESERVED = 5 * 3 * 4; // the place of `reserved_bytes.all.current`
    if (numbers[RESERVED]) return "some of its memory is still in use: delete all tensors first";
  }
  if (library.record_history(false, 0, 0, true, &Context::capture, &Context::release) != DONE) {
    return library.last_error();
  }
  installed()->is_recording = false;
  for (int device = 0; device < installed()->devices; device++) {
    double fraction = library.memory_fraction(device);
    if (fraction == native->getMemoryFraction(device)) continue;
    native->setMemoryFraction(fraction, device);
    if (library.set_memory_fraction(device, 1.0) != DONE) return library.last_error();
  }
  is_installed = false;
  c10::cuda::CUDACachingAllocator::allocator.store(native);
  c10::SetAllocator(c10::DeviceType::CUDA, native, 255);
  return nullptr;
}
