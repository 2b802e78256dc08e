// The driver functions that libc10_cuda.so asks for by name: for ranges of memory (expandable segments),
// and for messages.
#include "driver.h"

#include <cstring>
#include <map>

#include "calls.h"
#include "device.h"

namespace {

struct Physical {
  size_t size;
  int device;
  int holders; // who made it, and each mapping
};

struct Ranges {
  std::mutex mutex;
  uint64_t next_handle = 1;
  std::map<uint64_t, Physical> physical;                 // by handle
  std::map<uintptr_t, std::pair<size_t, uint64_t>> maps; // address to size and handle
};
Ranges& g_ranges = *new Ranges(); // never destroyed, as the devices

CUresult drv_unsupported(...) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult drv_DeviceGet(CUdevice* out, int ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *out = ordinal;
  return CUDA_SUCCESS;
}

CUresult drv_DeviceGetAttribute(int* out, CUdevice_attribute a, CUdevice) {
  *out = 0;
  if (a == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
      a == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
    *out = 1;
  return CUDA_SUCCESS;
}

CUresult drv_MemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr p) {
  for (int i = 0; i < kDevices; i++) {
    Device& d = g_devices[i];
    std::lock_guard<std::mutex> l(d.mutex);
    for (auto& [a, n] : d.live)
      if (p >= a && p < a + n) {
        if (base) *base = a;
        if (size) *size = n;
        return CUDA_SUCCESS;
      }
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult drv_MemAddressReserve(CUdeviceptr* p, size_t size, size_t, CUdeviceptr, unsigned long long) {
  COUNT(cuMemAddressReserve);
  Device& d = current_device();
  std::lock_guard<std::mutex> l(d.mutex);
  *p = d.next_range;
  d.next_range += granules(size);
  return CUDA_SUCCESS;
}

CUresult drv_MemAddressFree(CUdeviceptr, size_t) {
  COUNT(cuMemAddressFree);
  return CUDA_SUCCESS;
}

void let_go(uint64_t h) { // g_ranges.mutex held
  auto it = g_ranges.physical.find(h);
  if (it == g_ranges.physical.end() || --it->second.holders > 0) return;
  Device& d = g_devices[it->second.device];
  {
    std::lock_guard<std::mutex> l(d.mutex);
    d.used -= it->second.size;
  }
  g_ranges.physical.erase(it);
}

CUresult drv_MemCreate(
    CUmemGenericAllocationHandle* h, size_t size, const CUmemAllocationProp* prop, unsigned long long) {
  COUNT(cuMemCreate);
  if (must_fail()) return CUDA_ERROR_OUT_OF_MEMORY;
  int device = prop->location.id;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard<std::mutex> ranges(g_ranges.mutex);
  Device& d = g_devices[device];
  {
    std::lock_guard<std::mutex> l(d.mutex);
    if (!fits(d, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    d.used += size;
  }
  uint64_t id = g_ranges.next_handle++;
  g_ranges.physical.emplace(id, Physical{size, device, 1});
  *h = id;
  return CUDA_SUCCESS;
}

CUresult drv_MemRelease(CUmemGenericAllocationHandle h) {
  COUNT(cuMemRelease);
  std::lock_guard<std::mutex> ranges(g_ranges.mutex);
  let_go(h);
  return CUDA_SUCCESS;
}

CUresult drv_MemMap(CUdeviceptr p, size_t size, size_t, CUmemGenericAllocationHandle h, unsigned long long) {
  COUNT(cuMemMap);
  std::lock_guard<std::mutex> ranges(g_ranges.mutex);
  auto it = g_ranges.physical.find(h);
  if (it == g_ranges.physical.end()) return CUDA_ERROR_INVALID_HANDLE;
  it->second.holders++;
  g_ranges.maps[p] = {size, h};
  return CUDA_SUCCESS;
}

CUresult drv_MemUnmap(CUdeviceptr p, size_t size) {
  COUNT(cuMemUnmap);
  std::lock_guard<std::mutex> ranges(g_ranges.mutex);
  auto it = g_ranges.maps.lower_bound(p);
  while (it != g_ranges.maps.end() && it->first < p + size) {
    let_go(it->second.second);
    it = g_ranges.maps.erase(it);
  }
  return CUDA_SUCCESS;
}

CUresult drv_MemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
  COUNT(cuMemSetAccess);
  return CUDA_SUCCESS;
}

CUresult drv_MemGetAllocationGranularity(
    size_t* g, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *g = kGranularity;
  return CUDA_SUCCESS;
}

CUresult drv_GetErrorString(CUresult, const char** s) {
  *s = "simulated driver error";
  return CUDA_SUCCESS;
}

CUresult drv_LogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* out) {
  if (out) *out = nullptr;
  return CUDA_SUCCESS;
}

CUresult drv_LogsUnregisterCallback(CUlogsCallbackHandle) { return CUDA_SUCCESS; }
CUresult drv_CtxGetCurrent(CUcontext* c) {
  *c = reinterpret_cast<CUcontext>(uintptr_t{0x1000} + t_device);
  return CUDA_SUCCESS;
}

const struct {
  const char* name;
  void* function;
} kDriver[] = {
    {"cuDeviceGet", reinterpret_cast<void*>(drv_DeviceGet)},
    {"cuDeviceGetAttribute", reinterpret_cast<void*>(drv_DeviceGetAttribute)},
    {"cuMemGetAddressRange", reinterpret_cast<void*>(drv_MemGetAddressRange)},
    {"cuMemAddressReserve", reinterpret_cast<void*>(drv_MemAddressReserve)},
    {"cuMemAddressFree", reinterpret_cast<void*>(drv_MemAddressFree)},
    {"cuMemCreate", reinterpret_cast<void*>(drv_MemCreate)},
    {"cuMemRelease", reinterpret_cast<void*>(drv_MemRelease)},
    {"cuMemMap", reinterpret_cast<void*>(drv_MemMap)},
    {"cuMemUnmap", reinterpret_cast<void*>(drv_MemUnmap)},
    {"cuMemSetAccess", reinterpret_cast<void*>(drv_MemSetAccess)},
    {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(drv_MemGetAllocationGranularity)},
    {"cuGetErrorString", reinterpret_cast<void*>(drv_GetErrorString)},
    {"cuLogsRegisterCallback", reinterpret_cast<void*>(drv_LogsRegisterCallback)},
    {"cuLogsUnregisterCallback", reinterpret_cast<void*>(drv_LogsUnregisterCallback)},
    {"cuCtxGetCurrent", reinterpret_cast<void*>(drv_CtxGetCurrent)},
};

} // namespace

void* driver_function(const char* name) {
  for (auto& known : kDriver)
    if (!strcmp(known.name, name)) return known.function;
  return reinterpret_cast<void*>(drv_unsupported);
}
