// The C functions of the library accelerator-torch, which its Rust sources document.
#pragma once
#include <cstddef>
#include <cstdint>

namespace accelerator {

struct Memory { uint64_t address, context; };
struct Range { uint64_t start, size; };
struct Pool { uint64_t graph, user; };
struct Segment {
  uint64_t address, total, requested, allocated, active;
  size_t stream;
  uint64_t created;
  Pool pool;
  void* context;
  bool is_large, is_expandable;
};
struct Block {
  uint64_t address, size, requested;
  void* context;
  bool is_allocated, is_active;
};
struct Entry {
  uint64_t address, size;
  size_t stream;
  uint64_t time;
  Pool pool;
  void* context;
  int action;
};

struct Shortage {
  uint64_t segment, total, limit, free, allocated, reserved;
  bool is_rejected;
};
struct Usage {
  uint64_t address, block;
  int64_t allocated, reserved;
  int device;
};
struct Handle {
  uint8_t bytes[64];
  size_t size;
};
struct Import {
  uint64_t address;
  void* owner;
};
struct Settings {
  uint64_t max_split_size;
  double garbage_collection_threshold;
  uint64_t roundup_power2_divisions[16];
  bool expandable_segments, graph_capture_record_stream_reuse;
  char text[512];
};

constexpr int DONE = 0, OUT_OF_MEMORY = 1;
constexpr int FREED = 0, FOREIGN = 1;
constexpr int STATISTICS = 9 * 3 * 4 + 2 * 4 + 7;

// The functions by their names without `accelerator_torch_`: those of all devices, and those of one kind.
#define ACCELERATOR_TORCH_FUNCTIONS(F)                                                                 \
  F(const char*, last_error, ())                                                                       \
  F(int, start, (const char*, bool (*)()))                                                             \
  F(Usage, usage, (uint64_t))                                                                          \
  F(int, raw_allocate, (size_t, int, void*, uint64_t*))                                                \
  F(int, raw_free, (uint64_t))

#define ACCELERATOR_TORCH_CPU_FUNCTIONS(F)                                                             \
  F(void, fork_begin, ())                                                                              \
  F(void, fork_end, ())                                                                                \
  F(bool, forget, (uint64_t))

#define ACCELERATOR_TORCH_CUDA_FUNCTIONS(F)                                                            \
  F(Shortage, last_shortage, ())                                                                       \
  F(int, set_caching, (bool))                                                                          \
  F(int, allocate, (size_t, int, void*, Memory*))                                                      \
  F(void, free, (uint64_t))                                                                            \
  F(int, record_use, (uint64_t, void*))                                                                \
  F(void, keep_address, (Memory))                                                                      \
  F(bool, owns, (uint64_t))                                                                            \
  F(Range, segment_at, (uint64_t))                                                                     \
  F(int, share, (uint64_t, Handle*))                                                                   \
  F(int, import, (const uint8_t*, size_t, int, Import*))                                               \
  F(void, import_drop, (void*))                                                                        \
  F(int, enable_peer_access, (int, int))                                                               \
  F(int, empty_cache, (Pool))                                                                          \
  F(int, statistics, (int, int64_t*))                                                                  \
  F(int, reserved_by_pools, (int, void (*)(void*, Pool, const int64_t*), void*))                       \
  F(int, reset_peaks, (int))                                                                           \
  F(int, reset_accumulated, (int))                                                                     \
  F(int, set_memory_fraction, (int, double))                                                           \
  F(double, memory_fraction, (int))                                                                    \
  F(uint64_t, largest, (int))                                                                          \
  F(Settings, settings, ())                                                                            \
  F(int, snapshot,                                                                                     \
    (int, Pool, void (*)(void*, const Segment*, const Block*, size_t), void (*)(void*, const Entry*), void*)) \
  F(int, context_at, (uint64_t, void (*)(void*, void*), void*))                                        \
  F(int, record_history, (bool, size_t, int, bool, void* (*)(), void (*)(void*)))                      \
  F(int, pool_retain, (int, Pool))                                                                     \
  F(int, pool_retain_with_source,                                                                      \
    (int, Pool, uint64_t (*)(void*, uint64_t), void (*)(void*, uint64_t), void (*)(void*), void*))     \
  F(int, pool_release, (int, Pool))                                                                    \
  F(int, pool_uses, (int, Pool))                                                                       \
  F(bool, pools_in_use, (int))                                                                         \
  F(int, pool_use_on_oom, (int, Pool, bool))                                                           \
  F(int, pool_no_split, (int, Pool))                                                                   \
  F(int, pool_begin, (int, Pool, bool (*)(void*, void*), void (*)(void*), void*))                      \
  F(int, pool_end, (int, Pool))                                                                        \
  F(int, pool_allocations, (int, Pool, void (*)(void*, uint64_t, uint64_t), void*))                    \
  F(int, checkpoint, (int, Pool, void**))                                                              \
  F(void, checkpoint_drop, (void*))                                                                    \
  F(int, checkpoint_restore, (int, const void*, void (*)(void*, uint64_t, uint64_t), void*))

#define DECLARE(result, name, arguments) result(*name) arguments;

struct Library {
  ACCELERATOR_TORCH_FUNCTIONS(DECLARE)
};

struct CpuLibrary : Library {
  ACCELERATOR_TORCH_CPU_FUNCTIONS(DECLARE)
};

struct CudaLibrary : Library {
  ACCELERATOR_TORCH_CUDA_FUNCTIONS(DECLARE)
};

#undef DECLARE

// Finds functions in an opened library. Returns from the caller with what is missing.
#define ACCELERATOR_TORCH_FIND(result, name, arguments)                                                \
  library.name = reinterpret_cast<result(*) arguments>(dlsym(handle, "accelerator_torch_" #name));     \
  if (!library.name) return "the library lacks accelerator_torch_" #name;

}  // namespace accelerator
