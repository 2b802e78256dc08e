// How long PyTorch's allocator interface takes to allocate and free.
#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>

#define API extern "C" __attribute__((visibility("default")))

API c10::Allocator* installed() {
  return c10::cuda::CUDACachingAllocator::get();
}

API double nanoseconds(c10::Allocator* allocator, size_t bytes, int count) {
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; i++) auto memory = allocator->allocate(bytes);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / count;
}
