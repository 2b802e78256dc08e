// Counts calls by function. The counters are each thread's own, so that counting costs no thread
// anything of another's.
#pragma once
#include <stdint.h>

// What libc10_cuda.so imports (nm -D --undefined-only), and the driver functions that are worth
// counting.
#define SIM_FUNCTIONS(X)                                                                                    \
  X(cudaDeviceCanAccessPeer) X(cudaDeviceEnablePeerAccess) X(cudaDeviceGetDefaultMemPool)                   \
  X(cudaDeviceGetGraphMemAttribute) X(cudaDeviceGetStreamPriorityRange) X(cudaDeviceSetGraphMemAttribute)   \
  X(cudaDeviceSynchronize) X(cudaDriverGetVersion) X(cudaEventCreateWithFlags) X(cudaEventDestroy)          \
  X(cudaEventElapsedTime) X(cudaEventQuery) X(cudaEventRecord) X(cudaEventSynchronize) X(cudaFree)          \
  X(cudaFreeAsync) X(cudaGetDevice) X(cudaGetDeviceCount) X(cudaGetDeviceProperties)                        \
  X(cudaGetDriverEntryPointByVersion) X(cudaGetErrorName) X(cudaGetErrorString) X(cudaGetLastError)         \
  X(cudaGraphNodeGetDependencies) X(cudaIpcCloseMemHandle) X(cudaIpcGetMemHandle) X(cudaIpcOpenMemHandle)   \
  X(cudaMalloc) X(cudaMallocAsync) X(cudaMemGetInfo) X(cudaMemPoolGetAttribute) X(cudaMemPoolSetAccess)     \
  X(cudaMemPoolSetAttribute) X(cudaMemPoolTrimTo) X(cudaMemcpy) X(cudaMemcpyAsync) X(cudaMemcpyPeerAsync)   \
  X(cudaPeekAtLastError) X(cudaRuntimeGetVersion) X(cudaSetDevice) X(cudaStreamCreate)                      \
  X(cudaStreamCreateWithPriority) X(cudaStreamDestroy) X(cudaStreamGetCaptureInfo) X(cudaStreamGetPriority) \
  X(cudaStreamIsCapturing) X(cudaStreamQuery) X(cudaStreamSynchronize) X(cudaStreamWaitEvent)               \
  X(cudaThreadExchangeStreamCaptureMode) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate)          \
  X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)

enum Function {
#define X(name) F_##name,
  SIM_FUNCTIONS(X)
#undef X
  F_COUNT
};

struct Counts {
  uint64_t n[F_COUNT] = {};
};

extern __thread Counts* t_counts __attribute__((tls_model("initial-exec")));
Counts* register_counts();

inline void count(Function f) {
  Counts* c = t_counts;
  if (__builtin_expect(!c, 0)) c = register_counts();
  c->n[f]++;
}

#define COUNT(name) count(F_##name)
