// What PyTorch needs of cuBLAS and cuDNN to go on: handles that are not null, and versions. Nothing is computed.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define API extern "C" __attribute__((visibility("default")))

static void* new_handle() {
  static std::atomic<uintptr_t> next{0x1000000};
  return reinterpret_cast<void*>(next += 64);
}

#ifdef CUBLAS
API int cublasCreate_v2(void** handle) { *handle = new_handle(); return 0; }
API int cublasGetMathMode(void*, int* mode) { *mode = 0; return 0; }
API int cublasGetPointerMode_v2(void*, int* mode) { *mode = 0; return 0; }
#endif

#ifdef CUBLASLT
API int cublasLtMatmulDescCreate(void** descriptor, int, int) { *descriptor = new_handle(); return 0; }
API int cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) { *layout = new_handle(); return 0; }
API int cublasLtMatmulPreferenceCreate(void** preference) { *preference = new_handle(); return 0; }
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* algorithm, int* found) {
  constexpr size_t SIZE = 96; // of cublasLtMatmulHeuristicResult_t
  memset(algorithm, 0, SIZE);
  *found = 1;
  return 0;
}
#endif

#ifdef CUDNN
API size_t cudnnGetVersion() { return 92600; }
API size_t cudnnGetCudartVersion() { return 13020; }
API const char* cudnnGetErrorString(int) { return "an error of the stand-in for cuDNN"; }
#endif
