#include "device.h"

#include <cstdlib>
#include <new>

#include <sys/mman.h>

#include "api.h"
#include "cudart_sim.h"

namespace {

Device* make_devices() {
  auto* devices = new Device[kDevices]; // never destroyed: static destructors of others still call us
  for (int d = 0; d < kDevices; d++) {
    devices[d].next = kMemoryBase + d * kDeviceStride;
    devices[d].next_range = kRangeBase + d * kDeviceStride;
  }
  return devices;
}

} // namespace

Device* const g_devices = make_devices();
__thread int t_device __attribute__((tls_model("initial-exec"))) = 0;
__thread cudaError_t t_last_error __attribute__((tls_model("initial-exec"))) = cudaSuccess;
std::atomic<int> g_failures_to_come{0};

bool must_fail() {
  if (__builtin_expect(g_failures_to_come.load(std::memory_order_relaxed) <= 0, 1)) return false;
  return g_failures_to_come.fetch_sub(1) > 0;
}

bool fits(const Device& device, size_t bytes) {
  return bytes <= device.capacity && device.used <= device.capacity - bytes;
}

cudaError_t device_malloc(void** p, size_t bytes) {
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (must_fail()) return failed(cudaErrorMemoryAllocation);
  Device& d = current_device();
  std::lock_guard<std::mutex> l(d.mutex);
  if (!fits(d, bytes)) return failed(cudaErrorMemoryAllocation);
  uintptr_t address = d.next;
  d.next += granules(bytes);
  d.used += bytes;
  d.live.emplace(address, bytes);
  *p = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t device_free(void* p) {
  if (!p) return cudaSuccess;
  uintptr_t address = reinterpret_cast<uintptr_t>(p);
  uintptr_t index = (address - kMemoryBase) / kDeviceStride;
  if (address < kMemoryBase || index >= kDevices) return failed(cudaErrorInvalidValue);
  Device& d = g_devices[index];
  std::lock_guard<std::mutex> l(d.mutex);
  auto it = d.live.find(address);
  if (it == d.live.end()) return failed(cudaErrorInvalidValue);
  d.used -= it->second;
  d.live.erase(it);
  return cudaSuccess;
}

// Streams lie at fixed addresses in the order in which they are made: libc10_cuda.so keeps hash tables
// by handle, and goes through them in their order. So runs are reproducible.
Stream* new_stream() {
  static std::mutex mutex;
  static char* at = nullptr;
  static char* end = nullptr;
  static char* want = reinterpret_cast<char*>(uintptr_t{0x200000000000});
  constexpr size_t kChunk = 1 << 20;
  constexpr size_t kStride = 256;
  std::lock_guard<std::mutex> l(mutex);
  if (at == end) {
    void* chunk =
        mmap(want, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (chunk == MAP_FAILED) abort();
    at = static_cast<char*>(chunk);
    end = want = at + kChunk;
  }
  auto* s = new (at) Stream();
  at += kStride;
  return s;
}

void complete(Stream* s, uint64_t ticket) {
  uint64_t done = s->completed.load(std::memory_order_relaxed);
  while (done < ticket && !s->completed.compare_exchange_weak(done, ticket)) {
  }
}

void complete_all(Stream* s) {
  complete(s, s->submitted.load(std::memory_order_acquire));
}

API void sim_hold_stream(void* stream, int hold) {
  Stream* s = to_stream(static_cast<cudaStream_t>(stream));
  s->held = hold != 0;
  if (!hold) complete_all(s);
}

API void sim_set_capacity(int device, size_t bytes) {
  std::lock_guard<std::mutex> l(g_devices[device].mutex);
  g_devices[device].capacity = bytes;
}

API uintptr_t sim_base_address(int device) {
  return kMemoryBase + device * kDeviceStride;
}

API void sim_fail_next_mallocs(int n) {
  g_failures_to_come = n;
}
