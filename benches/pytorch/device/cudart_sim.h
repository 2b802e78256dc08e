// What a program may tell and ask the simulated device, beside CUDA's own functions.
// Our libcudart.so.13 exports it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// Holds (hold=1) or releases (hold=0) a cudaStream_t; null is the default stream of the thread's
// current device. Events recorded on a held stream stay "not ready" until it is released or
// synchronised. Releasing completes everything.
void sim_hold_stream(void* stream, int hold);

// The bytes that a device has; 16 GiB at first.
void sim_set_capacity(int device, size_t bytes);
// The first address that a device hands out. Addresses are never mapped.
uintptr_t sim_base_address(int device);

// Makes the next n device allocations fail for lack of memory.
void sim_fail_next_mallocs(int n);

// Calls of one function ("cudaMalloc"), and `calls.NAME COUNT` of all that were called, over all
// threads.
uint64_t sim_call_count(const char* name);
void sim_dump_counts(FILE* out);

#ifdef __cplusplus
}
#endif
