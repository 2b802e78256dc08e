// The C functions of the library accelerator-torch, which its Rust sources document.
#pragma once
#include <cstddef>
#include <cstdint>

namespace accelerator {

struct Memory { uint64_t address, context; };
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

constexpr int DONE = 0, OUT_OF_MEMORY = 1;
constexpr int STATISTICS = 9 * 3 * 4 + 2 * 4 + 7;

// The functions by their names without `accelerator_torch_`.
#define ACCELERATOR_TORCH_FUNCTIONS(F)                                                                 \
  F(const char*, last_error, ())                                                                       \
  F(int, allocate, (size_t, int, void*, Memory*))                                                      \
  F(void, free, (uint64_t))                                                                            \
  F(int, record_use, (uint64_t, void*))                                                                \
  F(int, raw_allocate, (size_t, int, void*, uint64_t*))                                                \
  F(bool, raw_free, (uint64_t))                                                                        \
  F(bool, owns, (uint64_t))                                                                            \
  F(int, empty_cache, (Pool))                                                                          \
  F(int, statistics, (int, int64_t*))                                                                  \
  F(int, reserved_by_pools, (int, void (*)(void*, Pool, const int64_t*), void*))                       \
  F(int, reset_peaks, (int))                                                                           \
  F(int, reset_accumulated, (int))                                                                     \
  F(int, set_memory_fraction, (int, double))                                                           \
  F(double, memory_fraction, (int))                                                                    \
  F(uint64_t, largest, (int))                                                                          \
  F(int, snapshot, (int, Pool, void (*)(void*, const Segment*, const Block*, size_t), void*))          \
  F(int, record_history, (int, bool, size_t, int, void* (*)(), void (*)(void*)))                       \
  F(int, history, (int, void (*)(void*, const Entry*), void*))                                         \
  F(int, pool_retain, (int, Pool))                                                                     \
  F(int, pool_release, (int, Pool))                                                                    \
  F(int, pool_uses, (int, Pool))                                                                       \
  F(int, pool_use_on_oom, (int, Pool, bool))                                                           \
  F(int, pool_no_split, (int, Pool))                                                                   \
  F(int, pool_begin, (int, Pool, bool (*)(void*, void*), void (*)(void*), void*))                      \
  F(int, pool_end, (int, Pool))                                                                        \
  F(int, pool_allocations, (int, Pool, void (*)(void*, uint64_t, uint64_t), void*))                    \
  F(int, checkpoint, (int, Pool, void**))                                                              \
  F(void, checkpoint_drop, (void*))                                                                    \
  F(int, checkpoint_restore, (int, const void*, void (*)(void*, uint64_t, uint64_t), void*))

struct Library {
#define DECLARE(result, name, arguments) result(*name) arguments;
  ACCELERATOR_TORCH_FUNCTIONS(DECLARE)
#undef DECLARE
};

}  // namespace accelerator
