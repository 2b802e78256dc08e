// A CUDA runtime with one device, for PyTorch to believe in: nothing is computed, and nothing is stored.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define F(name, args, ...) cudaError_t name args { __VA_ARGS__; return cudaSuccess; }
static long handles = 1 << 20;
F(cudaGetDeviceCount, (int *n), *n = 1)
F(cudaGetDevice, (int *d), *d = 0)
F(cudaSetDevice, (int d), )
F(cudaGetDeviceProperties, (struct cudaDeviceProp *p, int d),
  memset(p, 0, sizeof *p); strcpy(p->name, "no device"); p->major = 9; p->minor = 0;
  p->totalGlobalMem = 80ull << 30; p->multiProcessorCount = 132; p->warpSize = 32;
  p->maxThreadsPerBlock = 1024; p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = 48 << 10; p->sharedMemPerBlockOptin = 227 << 10)
F(cudaDeviceGetAttribute, (int *v, enum cudaDeviceAttr a, int d), *v = 0)
F(cudaDriverGetVersion, (int *v), *v = CUDART_VERSION)
F(cudaRuntimeGetVersion, (int *v), *v = CUDART_VERSION)
F(cudaGetDriverEntryPointByVersion, (const char *s, void **f, unsigned v, unsigned long long o,
  enum cudaDriverEntryPointQueryResult *r),
  *f = 0; if (r) *r = cudaDriverEntryPointSymbolNotFound)
F(cudaDeviceCanAccessPeer, (int *c, int a, int b), *c = 0)
F(cudaGetLastError, (void), )
F(cudaPeekAtLastError, (void), )
F(cudaMalloc, (void **p, size_t n), handles += n; *p = (void *)(handles << 9))
F(cudaFree, (void *p), )
F(cudaMemGetInfo, (size_t *f, size_t *t), *f = *t = 80ull << 30)
F(cudaMemcpyAsync, (void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t t), )
F(cudaMemsetAsync, (void *d, int v, size_t n, cudaStream_t t), )
F(cudaLaunchKernel, (const void *f, dim3 g, dim3 b, void **a, size_t m, cudaStream_t t), )
F(cudaDeviceSynchronize, (void), )
F(cudaDeviceGetStreamPriorityRange, (int *l, int *g), *l = 0; *g = -5)
F(cudaStreamCreateWithPriority, (cudaStream_t *s, unsigned f, int p), *s = (cudaStream_t)(handles += 16))
F(cudaStreamGetPriority, (cudaStream_t s, int *p), *p = 0)
F(cudaStreamQuery, (cudaStream_t s), )
F(cudaStreamSynchronize, (cudaStream_t s), )
F(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned f), )
F(cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus *c), *c = cudaStreamCaptureStatusNone)
F(cudaStreamGetCaptureInfo, (cudaStream_t s, enum cudaStreamCaptureStatus *c, unsigned long long *i, cudaGraph_t *g,
  const cudaGraphNode_t **d, const cudaGraphEdgeData **e, size_t *n), *c = cudaStreamCaptureStatusNone)
F(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode *m), )
F(cudaEventCreateWithFlags, (cudaEvent_t *e, unsigned f), *e = (cudaEvent_t)(handles += 16))
F(cudaEventDestroy, (cudaEvent_t e), )
F(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), )
F(cudaEventRecordWithFlags, (cudaEvent_t e, cudaStream_t s, unsigned f), )
F(cudaEventQuery, (cudaEvent_t e), )
F(cudaEventSynchronize, (cudaEvent_t e), )
int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *a) { *f = 0; *a = 1; return 0; }
