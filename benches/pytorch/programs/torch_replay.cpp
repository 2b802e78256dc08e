// Replays an allocation trace through PyTorch's own CUDA caching allocator (libc10_cuda.so) on the simulated
// device.
//
//   torch_replay [-p] [-q] [-t] TRACE     ('-' reads standard input)
//     -p  print where each allocation lies: `at ID 0xOFFSET`, from the first address of the device
//     -q  do not print `oom` and `null` lines
//     -t  print `time_ns TOTAL ops N` to standard error at the end: the allocator's operations alone, a clock
//         around each
//
// Traces and output are those of docs/TRACE_FORMAT.md. The same trace gives the same output.

#include "torch_common.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace A = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::DeviceStats;

namespace {

constexpr c10::DeviceIndex kDevice = 0;

void add(std::map<std::string, int64_t>& m, const std::string& k, const c10::CachingAllocator::Stat& s) {
  m[k + ".current"] = s.current;
  m[k + ".peak"] = s.peak;
  m[k + ".allocated"] = s.allocated;
  m[k + ".freed"] = s.freed;
}
void add(std::map<std::string, int64_t>& m, const std::string& k, const c10::CachingAllocator::StatArray& a) {
  static const char* const pool[] = {"all", "small_pool", "large_pool"};
  static_assert(std::tuple_size_v<c10::CachingAllocator::StatArray> == 3);
  for (size_t i = 0; i < 3; i++) add(m, k + "." + pool[i], a[i]);
}

// All fields of DeviceStats under the key names of torch.cuda.memory_stats().
std::map<std::string, int64_t> flatten(const DeviceStats& s) {
  std::map<std::string, int64_t> m;
  add(m, "allocation", s.allocation);
  add(m, "segment", s.segment);
  add(m, "active", s.active);
  add(m, "inactive_split", s.inactive_split);
  add(m, "allocated_bytes", s.allocated_bytes);
  add(m, "reserved_bytes", s.reserved_bytes);
  add(m, "active_bytes", s.active_bytes);
  add(m, "inactive_split_bytes", s.inactive_split_bytes);
  add(m, "requested_bytes", s.requested_bytes);
  for (const auto& [id, a] : s.reserved_bytes_by_private_pools)
    add(m, "reserved_bytes_by_private_pools." + std::to_string(id.first) + "_" + std::to_string(id.second),
        a);
  add(m, "oversize_allocations", s.oversize_allocations);
  add(m, "oversize_segments", s.oversize_segments);
  m["num_alloc_retries"] = s.num_alloc_retries;
  m["num_ooms"] = s.num_ooms;
  m["num_sync_all_streams"] = s.num_sync_all_streams;
  m["num_device_alloc"] = s.num_device_alloc;
  m["num_device_free"] = s.num_device_free;
  m["num_oom_rejections"] = s.num_oom_rejections;
  m["max_split_size"] = s.max_split_size;
  return m;
}

struct Streams {
  std::map<int, cudaStream_t> by_id{{0, nullptr}};
  std::unordered_map<void*, int> id_of{{nullptr, 0}};
  cudaStream_t get(int id) {
    auto it = by_id.find(id);
    if (it != by_id.end()) return it->second;
    cudaStream_t s = nullptr;
    C10_CUDA_CHECK(cudaStreamCreate(&s));
    by_id[id] = s;
    id_of[s] = id;
    return s;
  }
  c10::cuda::CUDAStream wrap(int id) {
    cudaStream_t s = get(id);
    return s ? c10::cuda::getStreamFromExternal(s, kDevice)
             : c10::cuda::getDefaultCUDAStream(kDevice);
  }
};

void print_snapshot(size_t line, Streams& streams, uintptr_t base) {
  auto snap = A::snapshot({0, 0}, /*include_traces=*/false);
  auto& segs = snap.segments;
  std::sort(segs.begin(), segs.end(), [](auto& a, auto& b) { return a.address < b.address; });
  printf("@%zu snapshot\n", line);
  size_t i = 0;
  for (auto& s : segs) {
    if (s.device != kDevice) continue;
    printf("segment %zu at 0x%zx size %zu stream %d pool %s%s "
           "allocated %zu active %zu requested %zu blocks %zu counter %d\n",
           i++, s.address - base, s.total_size, streams.id_of[s.stream],
           s.is_large ? "large" : "small", s.is_expandable ? " expandable" : "",
           s.allocated_size, s.active_size, s.requested_size, s.blocks.size(), s.registration_counter);
    size_t off = 0;
    for (auto& b : s.blocks) {
      printf("  block +%zu size %zu requested %zu %s\n", off, b.size, b.requested_size,
             b.allocated ? "active_allocated" : b.active ? "active_pending_free" : "inactive");
      off += b.size;
    }
  }
  printf("end\n");
}

} // namespace

int main(int argc, char** argv) {
  bool place = false, quiet = false, timing = false;
  const char* path = nullptr;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-p")) place = true;
    else if (!strcmp(argv[i], "-q")) quiet = true;
    else if (!strcmp(argv[i], "-t")) timing = true;
    else path = argv[i];
  }
  if (!path) {
    fprintf(stderr, "usage: torch_replay [-p] [-q] [-t] TRACE\n");
    return 2;
  }
  std::ifstream file;
  if (strcmp(path, "-")) {
    file.open(path);
    if (!file) {
      fprintf(stderr, "cannot open %s\n", path);
      return 2;
    }
  }
  std::istream& in = strcmp(path, "-") ? static_cast<std::istream&>(file) : std::cin;

  // `capacity` and `conf` ahead of all other ops apply before the allocator is
  // made, which reads the device size (for the memory fraction) and
  // max_split_size (for its stat) only then.
  std::string text, op;
  size_t line = 0, n_ops = 0;
  bool have_line = false;
  while (!have_line && std::getline(in, text)) {
    line++;
    std::istringstream is(text.substr(0, text.find('#')));
    std::string value;
    if (!(is >> op)) continue;
    if (op == "capacity" && is >> value) sim_set_capacity(kDevice, std::stoull(value));
    else if (op == "conf" && is >> value) {
      try {
        c10::CachingAllocator::setAllocatorSettings(value);
      } catch (const std::exception& e) {
        fprintf(stderr, "%s:%zu: exception: %s\n", path, line, e.what());
        return 1;
      }
    } else have_line = true;
  }
  torch_sim_init();
  auto* alloc = A::get();
  const auto deleter = alloc->raw_deleter();
  const c10::Device device(c10::DeviceType::CUDA, kDevice);
  const uintptr_t base = sim_base_address(kDevice);
  static char outbuf[1 << 16];
  setvbuf(stdout, outbuf, _IOFBF, sizeof outbuf);

  Streams streams;
  std::unordered_map<uint64_t, void*> live;
  std::chrono::nanoseconds spent{0};
  using clk = std::chrono::steady_clock;

  while (have_line || std::getline(in, text)) {
    if (have_line) have_line = false;
    else line++;
    if (auto h = text.find('#'); h != std::string::npos) text.resize(h);
    std::istringstream is(text);
    if (!(is >> op)) continue;
    auto bad = [&](const char* why) {
      fprintf(stderr, "%s:%zu: %s: %s\n", path, line, why, text.c_str());
      fflush(stdout);
      exit(2);
    };
    auto num = [&]() {
      uint64_t v = 0;
      if (!(is >> v)) bad("number expected");
      return v;
    };
    try {
      if (op == "alloc") {
        uint64_t id = num(), bytes = num();
        int stream = static_cast<int>(num());
        if (live.count(id)) bad("id is live");
        cudaStream_t s = streams.get(stream);
        void* p = nullptr;
        bool oom = false;
        auto t0 = clk::now();
        try {
          p = alloc->raw_alloc_with_stream(bytes, s);
        } catch (const c10::OutOfMemoryError&) {
          oom = true;
        }
        spent += clk::now() - t0;
        n_ops++;
        if (oom) {
          if (!quiet) printf("oom %llu\n", (unsigned long long)id);
        } else {
          live[id] = p;
          if (!p && !quiet) printf("null %llu\n", (unsigned long long)id);
          if (place && p)
            printf("at %llu 0x%zx\n", (unsigned long long)id, reinterpret_cast<uintptr_t>(p) - base);
        }
      } else if (op == "free") {
        auto it = live.find(num());
        if (it == live.end()) continue; // an OOM'd id
        void* p = it->second;
        live.erase(it);
        auto t0 = clk::now();
        alloc->raw_delete(p);
        spent += clk::now() - t0;
        n_ops++;
      } else if (op == "record") {
        auto it = live.find(num());
        int stream = static_cast<int>(num());
        auto s = streams.wrap(stream);
        if (it == live.end()) continue;
        auto t0 = clk::now();
        c10::DataPtr dp(it->second, it->second, deleter, device);
        alloc->recordStream(dp, s);
        dp.release_context();
        spent += clk::now() - t0;
        n_ops++;
      } else if (op == "hold") {
        sim_hold_stream(streams.get(static_cast<int>(num())), 1);
      } else if (op == "release") {
        sim_hold_stream(streams.get(static_cast<int>(num())), 0);
      } else if (op == "sync") {
        C10_CUDA_CHECK(cudaDeviceSynchronize());
      } else if (op == "empty_cache") {
        A::emptyCache();
      } else if (op == "reset_peak") {
        A::resetPeakStats(kDevice);
      } else if (op == "reset_accumulated") {
        A::resetAccumulatedStats(kDevice);
      } else if (op == "conf") { // as PYTORCH_CUDA_ALLOC_CONF, at run time
        std::string conf;
        is >> conf;
        c10::CachingAllocator::setAllocatorSettings(conf);
      } else if (op == "fraction") { // set_per_process_memory_fraction
        double f = 1;
        is >> f;
        A::setMemoryFraction(f, kDevice);
      } else if (op == "capacity") { // later: changes what is left, not the fraction
        sim_set_capacity(kDevice, num());
      } else if (op == "fail_mallocs") { // next N device allocations fail
        sim_fail_next_mallocs(static_cast<int>(num()));
      } else if (op == "stats") {
        printf("@%zu stats\n", line);
        for (auto& [k, v] : flatten(A::getDeviceStats(kDevice)))
          printf("%s %lld\n", k.c_str(), (long long)v);
        printf("end\n");
      } else if (op == "snapshot") {
        print_snapshot(line, streams, base);
      } else if (op == "meminfo") {
        size_t f = 0, t = 0;
        C10_CUDA_CHECK(cudaMemGetInfo(&f, &t));
        printf("@%zu meminfo free %zu total %zu\n", line, f, t);
      } else if (op == "cacheinfo") { // largest block the cache or device can give
        size_t largest = 0;
        A::cacheInfo(kDevice, &largest);
        printf("@%zu cacheinfo largest %zu\n", line, largest);
      } else if (op == "calls") {
        printf("@%zu calls\n", line);
        sim_dump_counts(stdout);
        printf("end\n");
      } else {
        bad("unknown op");
      }
    } catch (const std::exception& e) {
      fprintf(stderr, "%s:%zu: exception: %s\n", path, line, e.what());
      fflush(stdout);
      return 1;
    }
  }
  fflush(stdout);
  if (timing)
    fprintf(stderr, "time_ns %lld ops %zu\n", (long long)spent.count(), n_ops);
  // Leave without running static destructors of half a PyTorch.
  _Exit(0);
}
