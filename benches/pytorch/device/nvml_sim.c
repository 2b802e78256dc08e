// A stand-in for libnvidia-ml.so.1: libc10_cuda.so opens it for expandable segments (which devices share
// a fabric) and for the processes in out-of-memory messages. nvmlDeviceGetGpuFabricInfoV is left out on
// purpose: the library then takes the device as one without a fabric.
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** dev) {
  (void)id;
  *dev = (void*)0x10;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void* dev, unsigned* n, void* infos) {
  (void)dev; (void)infos;
  *n = 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void* d, unsigned l, void* t) {
  (void)d; (void)l; (void)t;
  return 3; // not supported
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* d, unsigned l, void* p) {
  (void)d; (void)l; (void)p;
  return 3;
}
int nvmlSystemGetCudaDriverVersion_v2(int* v) {
  *v = 13020;
  return 0;
}
