// Replays an allocation trace through PyTorch's own CUDA caching allocator (libc10_cuda.so) on the simulated
// device.
//
//   torch_replay [-p] [-q] [-t | -T] TRACE     ('-' reads standard input)
//     -p  print where each allocation lies: `at ID 0xOFFSET`, from the first address of the device
//     -q  do not print `oom` and `null` lines
//     -t  print `time_ns TOTAL ops N` to standard error at the end: the allocator's operations alone, a clock
//         around each
//     -T  print `loop_ns TOTAL ops N` to standard error and nothing else: one clock around the loop over all
//         operations that do more than print
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
#include <utility>
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

enum class Kind : uint8_t {
  Alloc, Free, Record, Hold, Release, Sync, EmptyCache, ResetPeak, ResetAccumulated, Conf, Fraction, Capacity,
  FailMallocs,
  // These only print.
  Stats, Snapshot, MemInfo, CacheInfo, Calls,
};

const std::unordered_map<std::string, Kind> kKinds = {
    {"alloc", Kind::Alloc}, {"free", Kind::Free}, {"record", Kind::Record}, {"hold", Kind::Hold},
    {"release", Kind::Release}, {"sync", Kind::Sync}, {"empty_cache", Kind::EmptyCache},
    {"reset_peak", Kind::ResetPeak}, {"reset_accumulated", Kind::ResetAccumulated}, {"conf", Kind::Conf},
    {"fraction", Kind::Fraction}, {"capacity", Kind::Capacity}, {"fail_mallocs", Kind::FailMallocs},
    {"stats", Kind::Stats}, {"snapshot", Kind::Snapshot}, {"meminfo", Kind::MemInfo},
    {"cacheinfo", Kind::CacheInfo}, {"calls", Kind::Calls},
};

// Small, so that the loop reads little.
struct Op {
  Kind kind;
  uint32_t slot = 0; // of the allocation
  int stream = 0;
  uint32_t line = 0;
  uint64_t n = 0; // bytes, or a count
  uint64_t id = 0; // of what `alloc` makes
};

struct Trace {
  std::vector<Op> ops;
  // The word that a few operations have, by line.
  std::unordered_map<uint32_t, std::string> words;
  // How many allocations are live at once, at most. Slots are used again, so that they stay in the processor's caches.
  uint32_t slots = 0;
};

Trace parse(std::istream& in, const char* path) {
  Trace trace;
  std::unordered_map<uint64_t, uint32_t> live;
  std::vector<uint32_t> vacant;
  std::string text, word;
  for (uint32_t line = 1; std::getline(in, text); line++) {
    if (auto h = text.find('#'); h != std::string::npos) text.resize(h);
    std::istringstream is(text);
    if (!(is >> word)) continue;
    auto bad = [&](const char* why) {
      fprintf(stderr, "%s:%u: %s: %s\n", path, line, why, text.c_str());
      exit(2);
    };
    auto num = [&] {
      uint64_t v = 0;
      if (!(is >> v)) bad("number expected");
      return v;
    };
    auto slot_of = [&](uint64_t id) {
      auto it = live.find(id);
      if (it == live.end()) bad("id is not live");
      return it->second;
    };
    auto kind = kKinds.find(word);
    if (kind == kKinds.end()) bad("unknown op");
    Op op{kind->second};
    op.line = line;
    switch (op.kind) {
      case Kind::Alloc: {
        uint64_t id = num();
        if (vacant.empty()) vacant.push_back(trace.slots++);
        op.slot = vacant.back();
        vacant.pop_back();
        op.id = id;
        if (!live.emplace(id, op.slot).second) bad("id is live");
        op.n = num();
        op.stream = static_cast<int>(num());
        break;
      }
      case Kind::Free: {
        uint64_t id = num();
        op.slot = slot_of(id);
        live.erase(id);
        vacant.push_back(op.slot);
        break;
      }
      case Kind::Record:
        op.slot = slot_of(num());
        op.stream = static_cast<int>(num());
        break;
      case Kind::Hold:
      case Kind::Release: op.stream = static_cast<int>(num()); break;
      case Kind::Capacity:
      case Kind::FailMallocs: op.n = num(); break;
      case Kind::Conf:
      case Kind::Fraction: is >> trace.words[line]; break;
      default: break;
    }
    trace.ops.push_back(op);
  }
  return trace;
}

class Replay {
 public:
  Replay(Trace trace, bool place, bool quiet)
      : trace_(std::move(trace)), place_(place), quiet_(quiet), live_(trace_.slots) {}

  // Line by line, if `timing` with a clock around each operation of the allocator.
  void run(bool timing) {
    timing_ = timing;
    for (const Op& op : trace_.ops) step(op);
    fflush(stdout);
    if (timing) fprintf(stderr, "time_ns %lld ops %zu\n", (long long)spent_.count(), n_ops_);
  }

  // In one loop, with a clock around it.
  void run_loop() {
    std::erase_if(trace_.ops, [](const Op& op) { return op.kind >= Kind::Stats; });
    quiet_ = true;
    place_ = false;
    auto start = Clock::now();
    for (const Op& op : trace_.ops) step(op);
    auto ns = std::chrono::nanoseconds(Clock::now() - start);
    fprintf(stderr, "loop_ns %lld ops %zu\n", (long long)ns.count(), n_ops_);
  }

  // The line that runs, or that failed.
  uint32_t line() const { return line_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Live {
    void* ptr = nullptr;
    bool is_live = false; // not if memory ran out
  };

  template <class F>
  void timed(F&& operation) {
    n_ops_++;
    if (!timing_) return operation();
    auto start = Clock::now();
    operation();
    spent_ += Clock::now() - start;
  }

  void step(const Op& op) {
    line_ = op.line;
    switch (op.kind) {
      case Kind::Alloc: return allocate(op);
      case Kind::Free:
        if (Live live = std::exchange(live_[op.slot], {}); live.is_live)
          timed([&] { alloc_->raw_delete(live.ptr); });
        return;
      case Kind::Record: {
        auto stream = streams_.wrap(op.stream);
        Live live = live_[op.slot];
        if (!live.is_live) return;
        return timed([&] {
          c10::DataPtr dp(live.ptr, live.ptr, deleter_, device_);
          alloc_->recordStream(dp, stream);
          dp.release_context();
        });
      }
      case Kind::Hold: return sim_hold_stream(streams_.get(op.stream), 1);
      case Kind::Release: return sim_hold_stream(streams_.get(op.stream), 0);
      case Kind::Sync: C10_CUDA_CHECK(cudaDeviceSynchronize()); return;
      case Kind::EmptyCache: return A::emptyCache();
      case Kind::ResetPeak: return A::resetPeakStats(kDevice);
      case Kind::ResetAccumulated: return A::resetAccumulatedStats(kDevice);
      // As PYTORCH_CUDA_ALLOC_CONF, at run time.
      case Kind::Conf: return c10::CachingAllocator::setAllocatorSettings(trace_.words[op.line]);
      // set_per_process_memory_fraction
      case Kind::Fraction: return A::setMemoryFraction(std::stod(trace_.words[op.line]), kDevice);
      case Kind::Capacity: return sim_set_capacity(kDevice, op.n); // changes what is left, not the fraction
      case Kind::FailMallocs: return sim_fail_next_mallocs(static_cast<int>(op.n));
      case Kind::Stats:
        printf("@%u stats\n", op.line);
        for (auto& [k, v] : flatten(A::getDeviceStats(kDevice))) printf("%s %lld\n", k.c_str(), (long long)v);
        printf("end\n");
        return;
      case Kind::Snapshot: return print_snapshot(op.line, streams_, base_);
      case Kind::MemInfo: {
        size_t free = 0, total = 0;
        C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
        printf("@%u meminfo free %zu total %zu\n", op.line, free, total);
        return;
      }
      case Kind::CacheInfo: { // the largest block that the cache or the device can give
        size_t largest = 0;
        A::cacheInfo(kDevice, &largest);
        printf("@%u cacheinfo largest %zu\n", op.line, largest);
        return;
      }
      case Kind::Calls:
        printf("@%u calls\n", op.line);
        sim_dump_counts(stdout);
        printf("end\n");
        return;
    }
  }

  void allocate(const Op& op) {
    cudaStream_t stream = streams_.get(op.stream);
    Live& live = live_[op.slot];
    live = {nullptr, true};
    timed([&] {
      try {
        live.ptr = alloc_->raw_alloc_with_stream(op.n, stream);
      } catch (const c10::OutOfMemoryError&) {
        live.is_live = false;
      }
    });
    auto id = static_cast<unsigned long long>(op.id);
    if (!quiet_ && !live.is_live) printf("oom %llu\n", id);
    else if (!quiet_ && !live.ptr) printf("null %llu\n", id);
    else if (place_ && live.ptr) printf("at %llu 0x%zx\n", id, reinterpret_cast<uintptr_t>(live.ptr) - base_);
  }

  Trace trace_;
  bool place_, quiet_, timing_ = false;
  std::vector<Live> live_;
  Streams streams_;
  size_t n_ops_ = 0;
  uint32_t line_ = 0;
  std::chrono::nanoseconds spent_{0};
  c10::cuda::CUDACachingAllocator::CUDAAllocator* alloc_ = A::get();
  const c10::DeleterFnPtr deleter_ = alloc_->raw_deleter();
  const c10::Device device_{c10::DeviceType::CUDA, kDevice};
  const uintptr_t base_ = sim_base_address(kDevice);
};

} // namespace

int main(int argc, char** argv) {
  bool place = false, quiet = false, timing = false, loop = false;
  const char* path = nullptr;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-p")) place = true;
    else if (!strcmp(argv[i], "-q")) quiet = true;
    else if (!strcmp(argv[i], "-t")) timing = true;
    else if (!strcmp(argv[i], "-T")) loop = true;
    else path = argv[i];
  }
  if (!path) {
    fprintf(stderr, "usage: torch_replay [-p] [-q] [-t | -T] TRACE\n");
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
  Trace trace = parse(strcmp(path, "-") ? static_cast<std::istream&>(file) : std::cin, path);

  // `capacity` and `conf` ahead of all other operations apply before the allocator is made, which reads the device's
  // size (for the memory fraction) and max_split_size (for its statistic) only then.
  uint32_t line = 0;
  try {
    auto op = trace.ops.begin();
    for (; op != trace.ops.end() && (op->kind == Kind::Capacity || op->kind == Kind::Conf); op++) {
      line = op->line;
      if (op->kind == Kind::Capacity) sim_set_capacity(kDevice, op->n);
      else c10::CachingAllocator::setAllocatorSettings(trace.words[line]);
    }
    trace.ops.erase(trace.ops.begin(), op);
  } catch (const std::exception& e) {
    fprintf(stderr, "%s:%u: exception: %s\n", path, line, e.what());
    return 1;
  }
  torch_sim_init();
  static char outbuf[1 << 16];
  setvbuf(stdout, outbuf, _IOFBF, sizeof outbuf);
  Replay replay(std::move(trace), place, quiet);
  try {
    if (loop) replay.run_loop();
    else replay.run(timing);
  } catch (const std::exception& e) {
    fflush(stdout);
    fprintf(stderr, "%s:%u: exception: %s\n", path, replay.line(), e.what());
    return 1;
  }
  // Leave without running static destructors of half a PyTorch.
  _Exit(0);
}
