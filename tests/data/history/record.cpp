// Replays a trace (docs/TRACE_FORMAT.md) through PyTorch's own CUDA caching allocator with its memory history on, and
// prints the history, the settings that it tells, and the segments at the end. make.py beside this says how to build it.
//
//     record [-n ENTRIES] [-s LINE] TRACE     as -n: max_entries; -s: history starts ahead of this line of the trace
//
// Addresses count from the device's first, streams are the trace's, times are left out: all is the same on every run.
#include <cuda_runtime_api.h>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>

// What the stand-in for the CUDA runtime adds to steer it.
extern "C" {
void sim_hold_stream(void* stream, int hold);
void sim_set_capacity(int device, size_t bytes);
uintptr_t sim_base_address(int device);
void sim_fail_next_mallocs(int n);
}

namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*func)(DeviceIndex));
}

namespace A = c10::cuda::CUDACachingAllocator;
using c10::CachingDeviceAllocator::TraceEntry;

namespace {

std::map<int, cudaStream_t> stream_of{{0, nullptr}};
std::unordered_map<void*, int> number_of{{nullptr, 0}};

cudaStream_t stream(int number) {
  auto [place, is_new] = stream_of.try_emplace(number, nullptr);
  if (is_new && number != 0) {
    C10_CUDA_CHECK(cudaStreamCreate(&place->second));
    number_of[place->second] = number;
  }
  return place->second;
}

void begin_history(size_t entries) {
  A::recordHistory(true, nullptr, entries, A::RecordContext::NEVER, /*clearHistory=*/false, {});
}

const char* name_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC: return "alloc";
    case TraceEntry::FREE_REQUESTED: return "free_requested";
    case TraceEntry::FREE_COMPLETED: return "free_completed";
    case TraceEntry::SEGMENT_ALLOC: return "segment_alloc";
    case TraceEntry::SEGMENT_FREE: return "segment_free";
    case TraceEntry::SEGMENT_MAP: return "segment_map";
    case TraceEntry::SEGMENT_UNMAP: return "segment_unmap";
    case TraceEntry::SNAPSHOT: return "snapshot";
    case TraceEntry::OOM: return "oom";
    default: return "other";
  }
}

void print_all() {
  const uintptr_t base = sim_base_address(0);
  auto all = A::snapshot({0, 0}, /*include_traces=*/true);
  for (const auto& entry : all.device_traces.at(0)) {
    // Of an `oom`, PyTorch keeps the bytes that the device had free in place of the address.
    const bool is_place = entry.action_ != TraceEntry::OOM && entry.action_ != TraceEntry::SNAPSHOT;
    printf("%s 0x%zx %zu %d\n", name_of(entry.action_), entry.addr_ - (is_place ? base : 0), entry.size_,
           number_of.at(entry.stream_));
  }
  const auto& settings = all.config_metadata;
  printf("setting max_split_size %lld\nsetting garbage_collection_threshold %g\nsetting roundup_power2_divisions",
         static_cast<long long>(settings.max_split_size), settings.garbage_collection_threshold);
  for (auto divisions : settings.roundup_power2_divisions) {
    printf(" %zu", divisions);
  }
  printf("%s\nsetting PYTORCH_CUDA_ALLOC_CONF %s\n", settings.expandable_segments ? "\nsetting expandable_segments 1" : "",
         settings.last_allocator_settings.c_str());
  auto& segments = all.segments;
  std::sort(segments.begin(), segments.end(), [](auto& a, auto& b) { return a.address < b.address; });
  for (size_t number = 0; number < segments.size(); number++) {
    const auto& segment = segments[number];
    printf("segment %zu at 0x%zx size %zu stream %d pool %s%s allocated %zu active %zu requested %zu blocks %zu counter %d\n",
           number, segment.address - base, segment.total_size, number_of.at(segment.stream),
           segment.is_large ? "large" : "small", segment.is_expandable ? " expandable" : "", segment.allocated_size, segment.active_size, segment.requested_size,
           segment.blocks.size(), segment.registration_counter);
    size_t offset = 0;
    for (const auto& block : segment.blocks) {
      printf("  block +%zu size %zu requested %zu %s\n", offset, block.size, block.requested_size,
             block.allocated ? "active_allocated" : block.active ? "active_pending_free" : "inactive");
      offset += block.size;
    }
  }
}

} // namespace

int main(int count, char** arguments) {
  size_t entries = SIZE_MAX, start = 0;
  std::ifstream file;
  for (int i = 1; i < count; i++) {
    const std::string argument = arguments[i];
    if (argument == "-n") {
      entries = std::stoull(arguments[++i]);
    } else if (argument == "-s") {
      start = std::stoull(arguments[++i]);
    } else {
      file.open(argument);
    }
  }
  std::istream& trace = file.is_open() ? file : std::cin;
  A::CUDAAllocator* allocator = nullptr;
  std::unordered_map<uint64_t, void*> live;
  std::string text;
  for (size_t line = 1; std::getline(trace, text); line++) {
    if (line == start && allocator) {
      begin_history(entries);
    }
    std::istringstream words(text.substr(0, text.find('#')));
    std::string op, word;
    uint64_t id = 0, bytes = 0;
    int number = 0;
    if (!(words >> op)) {
      continue;
    }
    // Settings ahead of all else act before the allocator is made.
    if (!allocator && op != "capacity" && op != "conf") {
      c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
      c10::cuda::detail::init_p2p_access_cache(c10::cuda::device_count());
      A::init(c10::cuda::device_count());
      allocator = A::get();
      if (start <= line) {
        begin_history(entries);
      }
    }
    if (op == "alloc") {
      words >> id >> bytes >> number;
      try {
        live[id] = allocator->raw_alloc_with_stream(bytes, stream(number));
      } catch (const c10::OutOfMemoryError&) {
        live.erase(id);
      }
    } else if (op == "free") {
      words >> id;
      if (auto found = live.extract(id)) {
        allocator->raw_delete(found.mapped());
      }
    } else if (op == "record") {
      words >> id >> number;
      cudaStream_t user = stream(number);
      if (auto found = live.find(id); found != live.end()) {
        const c10::Device device(c10::DeviceType::CUDA, 0);
        c10::DataPtr pointer(found->second, found->second, allocator->raw_deleter(), device);
        allocator->recordStream(
            pointer,
            user ? c10::cuda::getStreamFromExternal(user, 0) : c10::cuda::getDefaultCUDAStream(0));
        pointer.release_context();
      }
    } else if (op == "hold" || op == "release") {
      words >> number;
      sim_hold_stream(stream(number), op == "hold");
    } else if (op == "sync") {
      C10_CUDA_CHECK(cudaDeviceSynchronize());
    } else if (op == "empty_cache") {
      A::emptyCache();
    } else if (op == "conf") {
      words >> word;
      c10::CachingAllocator::setAllocatorSettings(word);
    } else if (op == "capacity") {
      words >> bytes;
      sim_set_capacity(0, bytes);
    } else if (op == "fraction") {
      words >> word;
      A::setMemoryFraction(std::stod(word), 0);
    } else if (op == "fail_mallocs") {
      words >> number;
      sim_fail_next_mallocs(number);
    } else if (op == "cacheinfo") {
      A::cacheInfo(0, &bytes);
    } else if (op == "snapshot") {
      A::snapshot({0, 0}, /*include_traces=*/false);
    }
  }
  if (allocator) {
    print_all();
  }
  fflush(stdout);
  _Exit(0); // without the destructors of half a PyTorch
}
