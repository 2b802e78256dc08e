// Functions that libc10_cuda.so imports and that do nothing here: copies, sharing between processes, the
// driver's own pools, and graphs. No stream is ever being captured.
#include <cstring>

#include "api.h"
#include "calls.h"
#include "device.h"

API cudaError_t cudaMemcpy(void*, const void*, size_t, enum cudaMemcpyKind) {
  COUNT(cudaMemcpy);
  return cudaSuccess;
}

API cudaError_t cudaMemcpyAsync(void*, const void*, size_t, enum cudaMemcpyKind, cudaStream_t) {
  COUNT(cudaMemcpyAsync);
  return cudaSuccess;
}

API cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) {
  COUNT(cudaMemcpyPeerAsync);
  return cudaSuccess;
}

API cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  COUNT(cudaDeviceCanAccessPeer);
  *can = a != b;
  return cudaSuccess;
}

API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) {
  COUNT(cudaDeviceEnablePeerAccess);
  return cudaSuccess;
}

API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* h, void* p) {
  COUNT(cudaIpcGetMemHandle);
  memset(h, 0, sizeof *h);
  memcpy(h, &p, sizeof p);
  return cudaSuccess;
}

API cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t h, unsigned int) {
  COUNT(cudaIpcOpenMemHandle);
  memcpy(p, &h, sizeof *p);
  return cudaSuccess;
}

API cudaError_t cudaIpcCloseMemHandle(void*) {
  COUNT(cudaIpcCloseMemHandle);
  return cudaSuccess;
}

// pools and graphs

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int d) {
  COUNT(cudaDeviceGetDefaultMemPool);
  *p = reinterpret_cast<cudaMemPool_t>(&g_devices[d]);
  return cudaSuccess;
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void* v) {
  COUNT(cudaMemPoolGetAttribute);
  auto* d = reinterpret_cast<Device*>(p);
  *static_cast<uint64_t*>(v) =
      (a == cudaMemPoolAttrReservedMemCurrent || a == cudaMemPoolAttrUsedMemCurrent) ? d->used : 0;
  return cudaSuccess;
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void*) {
  COUNT(cudaMemPoolSetAttribute);
  return cudaSuccess;
}

API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const struct cudaMemAccessDesc*, size_t) {
  COUNT(cudaMemPoolSetAccess);
  return cudaSuccess;
}

API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  COUNT(cudaMemPoolTrimTo);
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetGraphMemAttribute(int, enum cudaGraphMemAttributeType, void* v) {
  COUNT(cudaDeviceGetGraphMemAttribute);
  *static_cast<uint64_t*>(v) = 0;
  return cudaSuccess;
}

API cudaError_t cudaDeviceSetGraphMemAttribute(int, enum cudaGraphMemAttributeType, void*) {
  COUNT(cudaDeviceSetGraphMemAttribute);
  return cudaSuccess;
}

API cudaError_t cudaGraphNodeGetDependencies(
    cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t* n) {
  COUNT(cudaGraphNodeGetDependencies);
  if (n) *n = 0;
  return cudaSuccess;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus* s) {
  COUNT(cudaStreamIsCapturing);
  *s = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

API cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t, enum cudaStreamCaptureStatus* s, unsigned long long* id,
    cudaGraph_t* g, const cudaGraphNode_t** deps,
    const cudaGraphEdgeData** edges, size_t* n) {
  COUNT(cudaStreamGetCaptureInfo);
  *s = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  if (g) *g = nullptr;
  if (deps) *deps = nullptr;
  if (edges) *edges = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* m) {
  COUNT(cudaThreadExchangeStreamCaptureMode);
  static __thread enum cudaStreamCaptureMode mode
      __attribute__((tls_model("initial-exec"))) = cudaStreamCaptureModeGlobal;
  auto old = mode;
  mode = *m;
  *m = old;
  return cudaSuccess;
}
