// The simulated devices: memory that is only counted, and streams whose work is done at once unless they
// are held.
//
// Memory: a device hands out addresses upwards, each aligned to 2 MiB, never one a second time, so the
// order of the addresses is the order of the calls. An allocation is charged its exact size, and a free
// gives that back at once.
//
// Streams: an event recorded on a stream that is not held is ready at once. On a held stream the k-th
// record gets ticket k, and is ready when the stream's completed counter reaches it. Releasing the
// stream, or synchronising with it or with the device, completes all tickets given so far; synchronising
// with an event, those up to its own. A stream that is synchronised with stays held for later records.
// No order between streams is modelled.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

constexpr int kDevices = 2;
constexpr size_t kGranularity = size_t{2} << 20;
constexpr uintptr_t kMemoryBase = 0x100000000000ull; // cudaMalloc
constexpr uintptr_t kRangeBase = 0x500000000000ull;  // reserved ranges of the driver API
constexpr uintptr_t kDeviceStride = uintptr_t{1} << 42;

struct alignas(64) Stream {
  std::atomic<bool> held{false};
  std::atomic<uint64_t> submitted{0};
  std::atomic<uint64_t> completed{0};
  int priority = 0;
};

struct Event {
  Stream* stream = nullptr; // null: ready
  uint64_t ticket = 0;
};

struct Device {
  std::mutex mutex;
  size_t capacity = size_t{16} << 30;
  size_t used = 0;
  uintptr_t next = 0;       // address
  uintptr_t next_range = 0; // address
  std::unordered_map<uintptr_t, size_t> live; // address to size
  Stream default_stream;
  std::vector<Stream*> streams;
};

extern Device* const g_devices; // set at load time, so that no call checks for it
extern __thread int t_device __attribute__((tls_model("initial-exec")));
extern __thread cudaError_t t_last_error __attribute__((tls_model("initial-exec")));

inline bool is_device(int d) { return d >= 0 && d < kDevices; }
inline Device& current_device() { return g_devices[t_device]; }
inline cudaError_t failed(cudaError_t e) { return t_last_error = e; }
inline size_t granules(size_t bytes) { return (bytes + kGranularity - 1) / kGranularity * kGranularity; }

cudaError_t device_malloc(void** p, size_t bytes);
cudaError_t device_free(void* p);
bool fits(const Device& device, size_t bytes); // its mutex held
// Whether this allocation is one of those that are to fail.
bool must_fail();
extern std::atomic<int> g_failures_to_come;

Stream* new_stream();
void complete_all(Stream* s);
void complete(Stream* s, uint64_t ticket);

inline Stream* to_stream(cudaStream_t s) {
  if (__builtin_expect(reinterpret_cast<uintptr_t>(s) <= 2, 0))
    return &current_device().default_stream; // null, legacy, per-thread
  return reinterpret_cast<Stream*>(s);
}

inline bool is_ready(const Event* e) {
  return !e->stream || e->stream->completed.load(std::memory_order_acquire) >= e->ticket;
}
