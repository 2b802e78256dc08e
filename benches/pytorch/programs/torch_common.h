// What both programs do first: what PyTorch does before its first allocation, without the rest of PyTorch.
#pragma once
#include <cuda_runtime_api.h>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>

#include "cudart_sim.h"

namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*func)(DeviceIndex));
}

inline bool torch_sim_has_context(c10::DeviceIndex) { return true; }

inline int torch_sim_init() {
  int n = c10::cuda::device_count();
  if (n < 1) {
    fprintf(stderr, "no device\n");
    exit(2);
  }
  c10::cuda::_internal::setHasPrimaryContext(torch_sim_has_context);
  c10::cuda::detail::init_p2p_access_cache(n);
  c10::cuda::CUDACachingAllocator::init(n);
  return n;
}
