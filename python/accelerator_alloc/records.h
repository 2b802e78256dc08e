// Snapshots and histories in PyTorch's form.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerator_torch.h"

namespace accelerator {

inline Pool number(c10::MempoolId_t pool) {
  return {pool.first, pool.second};
}

inline c10::MempoolId_t number(Pool pool) {
  return {pool.graph, pool.user};
}

// What a recorded event has as its context.
struct Context {
  std::shared_ptr<c10::GatheredContext> gathered;
  std::string compiled; // what torch.compile said last on the thread

  static inline std::atomic<c10::CachingDeviceAllocator::CreateContextFn> create = nullptr;
  static inline thread_local std::vector<std::string> compiling;

  // Captures the context of this thread; null if that fails.
  static void* capture() noexcept {
    try {
      auto gather = create.load();
      return new Context{gather ? gather() : nullptr, compiling.empty() ? "" : compiling.back()};
    } catch (...) {
      return nullptr;
    }
  }

  static void release(void* context) noexcept {
    delete static_cast<Context*>(context);
  }

  static std::shared_ptr<c10::GatheredContext> gathered_by(void* context) {
    return context ? static_cast<Context*>(context)->gathered : nullptr;
  }
};

// Collects what the library shows of a device.
struct Records {
  using TraceEntry = c10::CachingDeviceAllocator::TraceEntry;

  std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments;
  std::vector<TraceEntry>* trace; // null if it is not wanted
  const std::vector<TraceEntry::Action>& skipped;
  c10::DeviceIndex device;

  static void segment(void* to, const Segment* from, const Block* blocks, size_t count) noexcept {
    auto& records = *static_cast<Records*>(to);
    auto& segment = records.segments.emplace_back();
    segment.device = records.device;
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
    segment.context_when_allocated = Context::gathered_by(from->context);
    for (const Block* block = blocks; block != blocks + count; block++) {
      auto& info = segment.blocks.emplace_back();
      info.size = block->size;
      info.requested_size = block->requested;
      info.allocated = block->is_allocated;
      info.active = block->is_active;
      info.context_when_allocated = Context::gathered_by(block->context);
    }
  }

  static void entry(void* to, const Entry* from) noexcept {
    auto& records = *static_cast<Records*>(to);
    auto action = TraceEntry::Action(from->action);
    const auto& skipped = records.skipped;
    if (!records.trace || std::find(skipped.begin(), skipped.end(), action) != skipped.end()) return;
    TraceEntry& entry = records.trace->emplace_back(
        action, records.device, from->address, from->size, reinterpret_cast<void*>(from->stream), number(from->pool), 0,
        Context::gathered_by(from->context));
    if (from->context) entry.compile_context_ = static_cast<Context*>(from->context)->compiled;
    entry.time_.t_ = time_t(from->time / 1000); // microseconds, as in PyTorch's snapshots
  }
};

// Puts the library's settings into a snapshot.
inline void describe(const Settings& from, c10::cuda::CUDACachingAllocator::AllocatorConfigInfo& to) {
  to.garbage_collection_threshold = from.garbage_collection_threshold;
  to.max_split_size = from.max_split_size;
  to.expandable_segments = from.expandable_segments;
  to.graph_capture_record_stream_reuse = from.graph_capture_record_stream_reuse;
  to.last_allocator_settings = from.text;
  to.roundup_power2_divisions.assign(std::begin(from.roundup_power2_divisions), std::end(from.roundup_power2_divisions));
}

}  // namespace accelerator
