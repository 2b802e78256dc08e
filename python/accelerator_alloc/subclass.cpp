// PyTorch's allocator interface over the library's C functions. It is compiled against the headers of one version of
// PyTorch, and is put in the place of PyTorch's own allocator, which stays for the memory that it has given out before.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerator_torch.h"

namespace accelerator {
namespace {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;
using namespace c10::cuda::CUDACachingAllocator;

Library library;
CUDAAllocator* native = nullptr;

// Throws the library's last error.
void check(int status) {
  TORCH_CHECK(status == DONE, library.last_error());
}

Pool number(MempoolId_t pool) {
  return {pool.first, pool.second};
}

MempoolId_t number(Pool pool) {
  return {pool.graph, pool.user};
}

// The deleter of all tensors. A context is odd. An address, which PyTorch passes if it frees memory by the deleter of
// the allocator, is not.
void release(void* context) {
  auto word = reinterpret_cast<uint64_t>(context);
  if (C10_LIKELY(word & 1)) {
    library.free(word);
  } else if (word && !library.raw_free(word)) {
    native->raw_delete(context);
  }
}

// What a recorded event has as its context.
using Context = std::shared_ptr<GatheredContext>;
CreateContextFn create_context = nullptr;

void* capture() {
  return create_context ? new Context(create_context()) : nullptr;
}

void release_context(void* context) {
  delete static_cast<Context*>(context);
}

Context context_of(void* context) {
  return context ? *static_cast<Context*>(context) : nullptr;
}

struct Checkpoint final : AllocatorState {
  void* state = nullptr;
  ~Checkpoint() override {
    library.checkpoint_drop(state);
  }
};

class Allocator final : public CUDAAllocator {
 public:
  int devices = 0;

  DataPtr allocate(size_t size) override {
    DeviceIndex device = -1;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    Memory memory{0, 0};
    int status = library.allocate(size, device, c10::cuda::getCurrentCUDAStream(device), &memory);
    if (C10_UNLIKELY(status != DONE)) fail(status, size, device);
    return data_ptr(memory, device);
  }

  void* raw_alloc_with_stream(size_t size, cudaStream_t stream) override {
    DeviceIndex device = -1;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    uint64_t address = 0;
    int status = library.raw_allocate(size, device, stream, &address);
    if (C10_UNLIKELY(status != DONE)) fail(status, size, device);
    return reinterpret_cast<void*>(address);
  }

  void* raw_alloc(size_t size) override {
    DeviceIndex device = -1;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream(device));
  }

  void raw_delete(void* address) override {
    release(address);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  // PyTorch asks this before it hands memory to a storage that is copied on write. The context need not be the address.
  bool is_simple_data_ptr(const DataPtr& pointer) const override {
    return pointer.get_deleter() == &release || pointer.get() == pointer.get_context();
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }

  void recordStream(const DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    if (!pointer.get()) return;
    if (pointer.get_deleter() != &release) return native->recordStream(pointer, stream);
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
    check(library.empty_cache(number(pool)));
    if (native_has_memory()) native->emptyCache(pool); // which counts as a wait for all streams
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
                           &stats.num_device_alloc, &stats.num_device_free, &stats.num_oom_rejections}) {
      *count += *next++;
    }
    stats.max_split_size = *next;
    auto add_pool = [](void* to, Pool pool, const int64_t* numbers) noexcept {
      add_pools(static_cast<DeviceStats*>(to)->reserved_bytes_by_private_pools[number(pool)], numbers);
    };
    check(library.reserved_by_pools(device, add_pool, &stats));
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
    struct Found {
      uint64_t address, start, size;
    } found{reinterpret_cast<uint64_t>(address), 0, 0};
    auto look = [](void* to, const Segment* segment, const Block*, size_t) noexcept {
      auto& found = *static_cast<Found*>(to);
      if (found.address - segment->address < segment->total) found = {found.address, segment->address, segment->total};
    };
    for (int device = 0; device < devices && !found.start; device++) {
      check(library.snapshot(device, {0, 0}, look, &found));
    }
    if (!found.start) return native->getBaseAllocation(address, size);
    if (size) *size = found.size;
    return reinterpret_cast<void*>(found.start);
  }

  SnapshotInfo snapshot(MempoolId_t pool, bool with_traces) override {
    SnapshotInfo info = native->snapshot(pool, with_traces);
    info.device_traces.resize(std::max<size_t>(info.device_traces.size(), devices));
    for (int device = 0; device < devices; device++) {
      auto& trace = info.device_traces[device];
      // A snapshot is an event of our history, too.
      std::erase_if(trace, [](const TraceEntry& entry) { return entry.action_ == TraceEntry::SNAPSHOT; });
      Shown shown{info.segments, trace, DeviceIndex(device)};
      check(library.snapshot(device, number(pool), &Shown::segment, &shown));
      if (with_traces) check(library.history(device, &Shown::entry, &shown));
    }
    return info;
  }

  bool isHistoryEnabled() override {
    return is_recording;
  }

  void recordHistory(bool on, CreateContextFn create, size_t entries, RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    if (create) create_context = create;
    for (int device = 0; device < devices; device++) {
      if (clear && is_recording) check(library.record_history(device, false, 0, 0, &capture, &release_context));
      check(library.record_history(device, on, entries, int(when), &capture, &release_context));
    }
    is_recording = on;
    native->recordHistory(on, create, entries, when, clear, skipped); // for its annotations
  }

  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native->recordAnnotation(annotation);
  }

  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    observers.push_back(observer);
    native->attachOutOfMemoryObserver(std::move(observer));
  }

  void attachOomRejectionObserver(OomRejectionObserver observer) override {
    native->attachOomRejectionObserver(std::move(observer));
  }

  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    native->attachAllocatorTraceTracker(std::move(tracker));
  }

  // Private pools.

  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, std::shared_ptr<CUDAAllocator> own) override {
    TORCH_CHECK_NOT_IMPLEMENTED(!own, "accelerator: a MemPool cannot have an allocator of its own yet");
    check(library.pool_retain(device, number(pool)));
  }

  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter) override {
    using Filter = std::function<bool(cudaStream_t)>;
    auto call = [](void* filter, void* stream) noexcept {
      return (*static_cast<Filter*>(filter))(static_cast<cudaStream_t>(stream));
    };
    auto drop = [](void* filter) { delete static_cast<Filter*>(filter); };
    check(library.pool_begin(device, number(pool), call, drop, new Filter(std::move(filter))));
  }

  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    check(library.pool_end(device, number(pool)));
  }

  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    check(library.pool_release(device, number(pool)));
  }

  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return library.pool_uses(device, number(pool));
  }

  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use_on_oom) override {
    check(library.pool_use_on_oom(device, number(pool), use_on_oom));
  }

  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    check(library.pool_no_split(device, number(pool)));
  }

  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    std::unordered_set<void*> live;
    auto add = [](void* to, uint64_t address, uint64_t) noexcept {
      static_cast<std::unordered_set<void*>*>(to)->insert(reinterpret_cast<void*>(address));
    };
    check(library.pool_allocations(device, number(pool), add, &live));
    return live == expected;
  }

  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool) override {
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
    TORCH_CHECK(checkpoint, "accelerator: this checkpoint is of another allocator");
    check(library.checkpoint_restore(device, checkpoint->state, note, &change));
    return std::move(change.delta);
  }

  // Other processes and devices.

  ShareableHandle shareIpcHandle(void* address) override {
    TORCH_CHECK_NOT_IMPLEMENTED(!library.owns(reinterpret_cast<uint64_t>(address)),
                                "accelerator: tensors cannot be shared with other processes yet");
    return native->shareIpcHandle(address);
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native->getIpcDevPtr(std::move(handle));
  }

  void enablePeerAccess(DeviceIndex device, DeviceIndex peer) override {
    native->enablePeerAccess(device, peer);
  }

  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool has_access) override {
    if (has_access || to_device == from_device) {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    }
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }

 private:
  std::vector<OutOfMemoryObserver> observers;
  bool is_recording = false;

  // Whether PyTorch's own allocator still has memory from before the installation.
  bool native_has_memory() {
    for (int device = 0; device < devices; device++) {
      if (native->getDeviceStats(device).reserved_bytes[0].current) return true;
    }
    return false;
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

  [[noreturn]] C10_NOINLINE void fail(int status, size_t size, DeviceIndex device) {
    std::string text = library.last_error(); // before another call fails
    TORCH_CHECK(status == OUT_OF_MEMORY, text);
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    for (const auto& observer : observers) observer(device, size, total, free);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. ", text);
  }

  // What the library shows of a device.
  struct Shown {
    std::vector<SegmentInfo>& segments;
    std::vector<TraceEntry>& trace;
    DeviceIndex device;

    static void segment(void* to, const Segment* from, const Block* blocks, size_t count) noexcept {
      auto& shown = *static_cast<Shown*>(to);
      SegmentInfo& segment = shown.segments.emplace_back();
      segment.device = shown.device;
      segment.registration_counter = int32_t(from->created);
      segment.address = from->address;
      segment.total_size = from->total;
      segment.requested_size = from->requested;
      segment.allocated_size = from->allocated;
      segment.active_size = from->active;
      segment.stream = reinterpret_cast<void*>(from->stream);
      segment.is_large = from->is_large;
      segment.is_expandable = from->is_expandable;
      segment.owner_private_pool_id = number(from->pool);
      segment.context_when_allocated = context_of(from->context);
      for (const Block* block = blocks; block != blocks + count; block++) {
        BlockInfo& info = segment.blocks.emplace_back();
        info.size = block->size;
        info.requested_size = block->requested;
        info.allocated = block->is_allocated;
        info.active = block->is_active;
        info.context_when_allocated = context_of(block->context);
      }
    }

    static void entry(void* to, const Entry* from) noexcept {
      auto& shown = *static_cast<Shown*>(to);
      TraceEntry& entry = shown.trace.emplace_back(
          TraceEntry::Action(from->action), shown.device, from->address, from->size,
          reinterpret_cast<void*>(from->stream), number(from->pool), 0, context_of(from->context));
      entry.time_.t_ = time_t(from->time / 1000); // microseconds, as in PyTorch's snapshots
    }
  };
};

}  // namespace
}  // namespace accelerator

// Puts the library's allocator in the place of PyTorch's. `device_count` is 0 before CUDA is initialized. Returns null,
// or what went wrong.
extern "C" __attribute__((visibility("default"))) const char* accelerator_torch_install(const char* path,
                                                                                        int device_count) {
  using namespace accelerator;
  static Allocator* allocator = nullptr; // never destroyed, since tensors may outlive everything else
  if (allocator) return "it is installed already";
  void* handle = dlopen(path, RTLD_NOW);
  if (!handle) return dlerror();
#define FIND(result, name, arguments)                                                                       \
  library.name = reinterpret_cast<result(*) arguments>(dlsym(handle, "accelerator_torch_" #name));          \
  if (!library.name) return "the library lacks accelerator_torch_" #name;
  ACCELERATOR_TORCH_FUNCTIONS(FIND)
#undef FIND
  allocator = new Allocator;
  allocator->devices = device_count;
  native = c10::cuda::CUDACachingAllocator::allocator.load();
  c10::cuda::CUDACachingAllocator::allocator.store(allocator);
  c10::SetAllocator(c10::DeviceType::CUDA, allocator, 255); // PyTorch's own has priority 1
  return nullptr;
}
