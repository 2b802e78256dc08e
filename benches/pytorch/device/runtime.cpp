// The functions of CUDA's runtime that the allocator calls: devices, errors, memory, streams, events.
// They are written from the public headers.
#include <cstdio>
#include <cstring>

#include "api.h"
#include "calls.h"
#include "device.h"
#include "driver.h"

namespace {

inline Event* to_event(cudaEvent_t e) { return reinterpret_cast<Event*>(e); }

} // namespace

// devices

API cudaError_t cudaGetDeviceCount(int* n) {
  COUNT(cudaGetDeviceCount);
  *n = kDevices;
  return cudaSuccess;
}

API cudaError_t cudaGetDevice(int* d) {
  COUNT(cudaGetDevice);
  *d = t_device;
  return cudaSuccess;
}

API cudaError_t cudaSetDevice(int d) {
  COUNT(cudaSetDevice);
  if (!is_device(d)) return failed(cudaErrorInvalidDevice);
  t_device = d;
  return cudaSuccess;
}

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int d) {
  COUNT(cudaGetDeviceProperties);
  if (!is_device(d)) return failed(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Simulated device %d", d);
  p->totalGlobalMem = g_devices[d].capacity;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = 65536;
  p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->totalConstMem = 65536;
  p->major = 9;
  p->minor = 0;
  p->multiProcessorCount = 132;
  p->l2CacheSize = 50 << 20;
  p->memoryBusWidth = 5120;
  p->asyncEngineCount = 3;
  p->concurrentKernels = 1;
  p->unifiedAddressing = 1;
  p->managedMemory = 1;
  p->memoryPoolsSupported = 1;
  p->streamPrioritiesSupported = 1;
  p->textureAlignment = 512;
  p->pciDeviceID = d;
  return cudaSuccess;
}

API cudaError_t cudaDriverGetVersion(int* v) {
  COUNT(cudaDriverGetVersion);
  *v = CUDART_VERSION;
  return cudaSuccess;
}

API cudaError_t cudaRuntimeGetVersion(int* v) {
  COUNT(cudaRuntimeGetVersion);
  *v = CUDART_VERSION;
  return cudaSuccess;
}

API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** fn, unsigned int, unsigned long long,
    enum cudaDriverEntryPointQueryResult* status) {
  COUNT(cudaGetDriverEntryPointByVersion);
  *fn = driver_function(symbol);
  if (status) *status = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

API cudaError_t cudaGetLastError(void) {
  COUNT(cudaGetLastError);
  cudaError_t e = t_last_error;
  t_last_error = cudaSuccess;
  return e;
}

API cudaError_t cudaPeekAtLastError(void) {
  COUNT(cudaPeekAtLastError);
  return t_last_error;
}

API const char* cudaGetErrorName(cudaError_t e) {
  COUNT(cudaGetErrorName);
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    default: return "cudaErrorUnknown";
  }
}

API const char* cudaGetErrorString(cudaError_t e) {
  COUNT(cudaGetErrorString);
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorNotSupported: return "operation not supported";
    default: return "unknown error";
  }
}

// memory
API cudaError_t cudaMalloc(void** p, size_t n) {
  COUNT(cudaMalloc);
  return device_malloc(p, n);
}

API cudaError_t cudaFree(void* p) {
  COUNT(cudaFree);
  return device_free(p);
}

API cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) {
  COUNT(cudaMallocAsync);
  return device_malloc(p, n);
}

API cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  COUNT(cudaFreeAsync);
  return device_free(p);
}

API cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  COUNT(cudaMemGetInfo);
  Device& d = current_device();
  std::lock_guard<std::mutex> l(d.mutex);
  *f = d.capacity > d.used ? d.capacity - d.used : 0;
  *t = d.capacity;
  return cudaSuccess;
}
// streams
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  COUNT(cudaDeviceGetStreamPriorityRange);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned int, int priority) {
  COUNT(cudaStreamCreateWithPriority);
  auto* x = new_stream();
  x->priority = priority;
  Device& d = current_device();
  std::lock_guard<std::mutex> l(d.mutex);
  d.streams.push_back(x);
  *s = reinterpret_cast<cudaStream_t>(x);
  return cudaSuccess;
}

API cudaError_t cudaStreamCreate(cudaStream_t* s) {
  COUNT(cudaStreamCreate);
  return cudaStreamCreateWithPriority(s, 0, 0);
}

API cudaError_t cudaStreamDestroy(cudaStream_t s) {
  COUNT(cudaStreamDestroy);
  complete_all(to_stream(s)); // the object is kept: events may still name it
  to_stream(s)->held = false;
  return cudaSuccess;
}

API cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) {
  COUNT(cudaStreamGetPriority);
  *p = to_stream(s)->priority;
  return cudaSuccess;
}

API cudaError_t cudaStreamQuery(cudaStream_t s) {
  COUNT(cudaStreamQuery);
  return to_stream(s)->held.load(std::memory_order_relaxed) ? cudaErrorNotReady : cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  COUNT(cudaStreamSynchronize);
  complete_all(to_stream(s));
  return cudaSuccess;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) {
  COUNT(cudaStreamWaitEvent);
  return cudaSuccess;
}

API cudaError_t cudaDeviceSynchronize(void) {
  COUNT(cudaDeviceSynchronize);
  Device& d = current_device();
  std::lock_guard<std::mutex> l(d.mutex);
  complete_all(&d.default_stream);
  for (Stream* s : d.streams) complete_all(s);
  return cudaSuccess;
}

// events
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned int) {
  COUNT(cudaEventCreateWithFlags);
  *e = reinterpret_cast<cudaEvent_t>(new Event());
  return cudaSuccess;
}

API cudaError_t cudaEventDestroy(cudaEvent_t e) {
  COUNT(cudaEventDestroy);
  delete to_event(e);
  return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t st) {
  COUNT(cudaEventRecord);
  Event* ev = to_event(e);
  Stream* s = to_stream(st);
  if (__builtin_expect(!s->held.load(std::memory_order_relaxed), 1)) {
    ev->stream = nullptr;
  } else {
    ev->ticket = s->submitted.fetch_add(1) + 1;
    ev->stream = s;
  }
  return cudaSuccess;
}

API cudaError_t cudaEventQuery(cudaEvent_t e) {
  COUNT(cudaEventQuery);
  return is_ready(to_event(e)) ? cudaSuccess : failed(cudaErrorNotReady);
}

API cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  COUNT(cudaEventSynchronize);
  Event* ev = to_event(e);
  if (ev->stream) complete(ev->stream, ev->ticket);
  return cudaSuccess;
}

API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  COUNT(cudaEventElapsedTime);
  *ms = 0.f;
  return cudaSuccess;
}
