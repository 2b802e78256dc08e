// CUDA's runtime over whatever driver the process has loaded: memory, streams, events, copies and captures go to it.
// Kernels do nothing. Written from the public headers.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>

#define API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int MOST_DEVICES = 8;
constexpr int VERSION = 13020;
thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

void* symbol(const char* name) {
  return dlsym(RTLD_DEFAULT, name);
}

template <class... Arguments>
CUresult call(void* function, Arguments... arguments) {
  return function ? reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...) : CUDA_ERROR_NOT_SUPPORTED;
}

// Calls a function of the driver by its name.
#define DRIVER(name, ...) ([&] { static void* const function = symbol(name); return call(function, ##__VA_ARGS__); }())

cudaError_t result(CUresult code) {
  auto error = static_cast<cudaError_t>(code);
  if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY) last = error;
  return error;
}

std::atomic<CUcontext> contexts[MOST_DEVICES];

CUcontext context(int device) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (!contexts[device]) {
    DRIVER("cuInit", 0u);
    CUcontext retained = nullptr;
    DRIVER("cuDevicePrimaryCtxRetain", &retained, CUdevice(device));
    contexts[device] = retained;
  }
  return contexts[device];
}

// The current context decides, whoever has set it. CUDA's runtime knows it without a call of the driver.
int current_device() {
  static void* const function = symbol("cuda_sim_current_context");
  auto set = reinterpret_cast<CUcontext>(reinterpret_cast<uintptr_t (*)()>(function)());
  for (int device = 0; set && device < MOST_DEVICES; device++) {
    if (contexts[device].load(std::memory_order_relaxed) == set) return device;
  }
  return current;
}

void enter() {
  DRIVER("cuCtxSetCurrent", context(current_device()));
}

// The same on the current device.
#define ON_DEVICE(name, ...) (enter(), result(DRIVER(name, ##__VA_ARGS__)))

CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

void* new_handle() {
  static std::atomic<uintptr_t> next{0x10000};
  return reinterpret_cast<void*>(next += 64);
}

long unsupported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

// Devices.

API cudaError_t cudaGetDeviceCount(int* count) {
  DRIVER("cuInit", 0u);
  return result(DRIVER("cuDeviceGetCount", count));
}
API cudaError_t cudaGetDevice(int* device) { *device = current_device(); return cudaSuccess; }
std::atomic<unsigned> devices_set; // how often, for tests
API unsigned standin_devices_set() { return devices_set; }
API cudaError_t cudaSetDevice(int device) {
  devices_set++;
  current = device;
  return result(DRIVER("cuCtxSetCurrent", context(device)));
}
API cudaError_t cudaDriverGetVersion(int* version) { *version = VERSION; return cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int* version) { *version = VERSION; return cudaSuccess; }
API cudaError_t cudaGetLastError() { auto error = last; last = cudaSuccess; return error; }
API cudaError_t cudaPeekAtLastError() { return last; }
API const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  DRIVER("cuGetErrorString", CUresult(error), &text);
  return text ? text : "unknown error";
}
API const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  DRIVER("cuGetErrorName", CUresult(error), &text);
  return text ? text : "unknown error";
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  memset(properties, 0, sizeof *properties);
  DRIVER("cuInit", 0u);
  DRIVER("cuDeviceTotalMem_v2", &properties->totalGlobalMem, CUdevice(device));
  strcpy(properties->name, "simulated GPU without kernels");
  properties->major = 9;
  properties->warpSize = 32;
  properties->multiProcessorCount = 132;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 2147483647;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->maxBlocksPerMultiProcessor = 32;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->sharedMemPerMultiprocessor = 228 << 10;
  properties->reservedSharedMemPerBlock = 1 << 10;
  properties->l2CacheSize = 50 << 20;
  properties->totalConstMem = 64 << 10;
  properties->textureAlignment = 512;
  properties->unifiedAddressing = properties->canMapHostMemory = properties->concurrentKernels = 1;
  properties->streamPrioritiesSupported = properties->cooperativeLaunch = 1;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1 << 10; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
    default: *value = 1; // it is supported
  }
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char* id, int room, int device) {
  return ON_DEVICE("cuDeviceGetPCIBusId", id, room, CUdevice(device));
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return ON_DEVICE("cuCtxGetStreamPriorityRange", least, greatest);
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return result(DRIVER("cuDeviceCanAccessPeer", can, CUdevice(device), CUdevice(peer)));
}
API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return ON_DEVICE("cuCtxEnablePeerAccess", context(peer), flags);
}
API cudaError_t cudaDeviceSynchronize() { return ON_DEVICE("cuCtxSynchronize"); }
API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return ON_DEVICE("cuMemGetInfo_v2", free, total); }

// Memory.

API cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return ON_DEVICE("cuMemAlloc_v2", reinterpret_cast<CUdeviceptr*>(pointer), bytes);
}
API cudaError_t cudaFree(void* pointer) {
  enter(); // programs create the context by freeing nothing
  return pointer ? ON_DEVICE("cuMemFree_v2", address(pointer)) : cudaSuccess;
}
API cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return ON_DEVICE("cuMemHostAlloc", pointer, bytes, flags);
}
API cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
API cudaError_t cudaFreeHost(void* pointer) { return ON_DEVICE("cuMemFreeHost", pointer); }
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return bytes ? ON_DEVICE("cuMemcpyAsync", address(to), address(from), bytes, CUstream(stream)) : cudaSuccess;
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  auto error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error ? error : ON_DEVICE("cuStreamSynchronize", CUstream(nullptr));
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                    cudaStream_t stream) {
  return ON_DEVICE("cuMemcpyPeerAsync", address(to), context(to_device), address(from), context(from_device), bytes,
                   CUstream(stream));
}
API cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return bytes ? ON_DEVICE("cuMemsetD8Async", address(to), static_cast<unsigned char>(value), bytes, CUstream(stream))
               : cudaSuccess;
}
API cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  memset(attributes, 0, sizeof *attributes);
  attributes->hostPointer = const_cast<void*>(pointer);
  unsigned kind = 0;
  void* to = &kind;
  if (DRIVER("cuPointerGetAttribute", to, int(CU_POINTER_ATTRIBUTE_MEMORY_TYPE), address(pointer)) != CUDA_SUCCESS) {
    return cudaSuccess; // ordinary memory
  }
  attributes->type = kind == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  attributes->devicePointer = const_cast<void*>(pointer);
  to = &attributes->device;
  DRIVER("cuPointerGetAttribute", to, int(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), address(pointer));
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = static_cast<cudaMemPool_t>(new_handle());
  return cudaSuccess;
}

// Streams and events.

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return ON_DEVICE("cuStreamCreateWithPriority", reinterpret_cast<CUstream*>(stream), flags, priority);
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
API cudaError_t cudaStreamDestroy(cudaStream_t stream) { return ON_DEVICE("cuStreamDestroy_v2", CUstream(stream)); }
API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return ON_DEVICE("cuStreamGetPriority", CUstream(stream), priority);
}
API cudaError_t cudaStreamQuery(cudaStream_t stream) { return ON_DEVICE("cuStreamQuery", CUstream(stream)); }
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return ON_DEVICE("cuStreamSynchronize", CUstream(stream)); }
API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return ON_DEVICE("cuStreamWaitEvent", CUstream(stream), CUevent(event), 0u);
}
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return ON_DEVICE("cuEventCreate", reinterpret_cast<CUevent*>(event), flags);
}
API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) { return ON_DEVICE("cuEventDestroy_v2", CUevent(event)); }
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return ON_DEVICE("cuEventRecord", CUevent(event), CUstream(stream));
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
API cudaError_t cudaEventQuery(cudaEvent_t event) { return ON_DEVICE("cuEventQuery", CUevent(event)); }
API cudaError_t cudaEventSynchronize(cudaEvent_t event) { return ON_DEVICE("cuEventSynchronize", CUevent(event)); }
API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return ON_DEVICE("cuEventElapsedTime", milliseconds, CUevent(from), CUevent(to));
}

// Memory and events of other processes.

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle) && sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));
API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return ON_DEVICE("cuIpcGetMemHandle", reinterpret_cast<CUipcMemHandle*>(handle), address(pointer));
}
API cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
  CUipcMemHandle own;
  memcpy(&own, &handle, sizeof own);
  return ON_DEVICE("cuIpcOpenMemHandle_v2", reinterpret_cast<CUdeviceptr*>(pointer), own, flags);
}
API cudaError_t cudaIpcCloseMemHandle(void* pointer) { return ON_DEVICE("cuIpcCloseMemHandle", address(pointer)); }
API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return ON_DEVICE("cuIpcGetEventHandle", reinterpret_cast<CUipcEventHandle*>(handle), CUevent(event));
}
API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  CUipcEventHandle own;
  memcpy(&own, &handle, sizeof own);
  return ON_DEVICE("cuIpcOpenEventHandle", reinterpret_cast<CUevent*>(event), own);
}

// Captures and graphs. Kernels are not captured, so a graph has nothing to launch.

API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return ON_DEVICE("cuStreamBeginCapture_v2", CUstream(stream), CUstreamCaptureMode(mode));
}
API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return ON_DEVICE("cuStreamEndCapture", CUstream(stream), reinterpret_cast<CUgraph*>(graph));
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return ON_DEVICE("cuStreamIsCapturing", CUstream(stream), reinterpret_cast<CUstreamCaptureStatus*>(status));
}
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                         cudaGraph_t* graph, const cudaGraphNode_t** nodes,
                                         const cudaGraphEdgeData** edges, size_t* count) {
  if (graph) *graph = nullptr;
  if (nodes) *nodes = nullptr;
  if (edges) *edges = nullptr;
  if (count) *count = 0;
  cuuint64_t number = 0;
  auto error = ON_DEVICE("cuStreamGetCaptureInfo_v2", CUstream(stream), reinterpret_cast<CUstreamCaptureStatus*>(status),
                         &number, static_cast<CUgraph*>(nullptr), static_cast<const CUgraphNode**>(nullptr),
                         static_cast<size_t*>(nullptr));
  if (id) *id = number;
  return error;
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return ON_DEVICE("cuThreadExchangeStreamCaptureMode", reinterpret_cast<CUstreamCaptureMode*>(mode));
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return ON_DEVICE("cuGraphDestroy", CUgraph(graph)); }
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t, unsigned long long) {
  *executable = static_cast<cudaGraphExec_t>(new_handle());
  return cudaSuccess;
}
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

// Functions of the driver by name. The newest variant that the driver has comes first.
API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                 cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  char variant[128];
  for (const char* suffix : {"_v2", ""}) {
    snprintf(variant, sizeof variant, "%s%s", name, suffix);
    if (!*function) *function = symbol(variant);
  }
  if (!*function) *function = reinterpret_cast<void*>(&unsupported);
  if (found) *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// Kernels do nothing.

API unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (grid) *grid = dim3{1, 1, 1};
  if (block) *block = dim3{1, 1, 1};
  if (shared) *shared = 0;
  if (stream) *static_cast<void**>(stream) = nullptr;
  return cudaSuccess;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = (cudaKernel_t)function;
  return cudaSuccess;
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 227 << 10;
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                       size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
API cudaError_t cudaGetSymbolAddress(void** pointer, const void*) { return cudaMalloc(pointer, 64 << 10); }
