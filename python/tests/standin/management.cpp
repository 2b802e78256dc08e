// NVIDIA's management library. PyTorch asks it whether devices have a fabric, and who else uses a device.
#define API extern "C" __attribute__((visibility("default")))

constexpr int NOT_SUPPORTED = 3;

API int nvmlInit_v2() { return 0; }
API int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) { *device = reinterpret_cast<void*>(16); return 0; }
API int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) { *count = 0; return 0; }
API int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) { return NOT_SUPPORTED; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return NOT_SUPPORTED; }
API int nvmlSystemGetCudaDriverVersion_v2(int* version) { *version = 13020; return 0; }
