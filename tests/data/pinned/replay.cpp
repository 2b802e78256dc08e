// Replays a trace of pinned host memory (docs/TRACE_FORMAT.md) through PyTorch's own CachingHostAllocatorImpl, on a
// simulated driver: blocks are numbers, streams are held and released by hand. make.py beside this says how to build it.
#include <ATen/core/CachingHostAllocator.h>

#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

namespace {

// A stream runs at once unless held; an event is complete once its stream was free behind it.
struct Timeline {
  bool held = false;
  uint64_t recorded = 0;
  uint64_t completed = 0;
};

std::map<int64_t, Timeline> timelines;

struct Event {
  int64_t stream;
  uint64_t number;
};

class Allocator : public at::CachingHostAllocatorImpl<c10::Stream, Event> {
 public:
  // What the last allocation was served with, by the number of its driver allocation.
  size_t number_of(void* ptr) const { return reinterpret_cast<size_t>(ptr) / kStep - 1; }

 private:
  static constexpr size_t kStep = size_t{1} << 40;
  size_t driver_allocations_ = 0;

  void allocate_host_memory(size_t, void** ptr) override {
    *ptr = reinterpret_cast<void*>(++driver_allocations_ * kStep);
  }

  void free_block(at::HostBlock<c10::Stream>*) override {}

  void record_stream(std::optional<std::vector<Event>>& events, c10::Stream stream) override {
    auto& timeline = timelines[stream.id()];
    auto number = ++timeline.recorded;
    if (!timeline.held) {
      timeline.completed = number;
    }
    events->push_back(Event{stream.id(), number});
  }

  bool query_event(Event& event) override { return timelines[event.stream].completed >= event.number; }
};

c10::Stream stream_of(int64_t number) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, 0), number);
}

void print(const char* name, const at::Stat& stat) {
  std::cout << name << ".allocated " << stat.allocated << '\n'
            << name << ".current " << stat.current << '\n'
            << name << ".freed " << stat.freed << '\n'
            << name << ".peak " << stat.peak << '\n';
}

} // namespace

int main(int count, char** arguments) {
  std::ifstream file;
  if (count > 1) {
    file.open(arguments[1]);
  }
  std::istream& trace = count > 1 ? file : std::cin;
  Allocator allocator;
  struct Live {
    void* ptr;
    void* block;
  };
  std::map<uint64_t, Live> live;
  std::string text;
  for (int line = 1; std::getline(trace, text); ++line) {
    std::istringstream words(text.substr(0, text.find('#')));
    std::string op;
    if (!(words >> op)) {
      continue;
    }
    uint64_t id = 0, number = 0;
    if (op == "halloc") {
      words >> id >> number;
      auto [ptr, block] = allocator.allocate(number);
      live[id] = Live{ptr, block};
      if (ptr) {
        std::cout << "hat " << id << ' ' << allocator.number_of(ptr) << '\n';
      } else {
        std::cout << "hnull " << id << '\n';
      }
    } else if (op == "hfree") {
      words >> id;
      allocator.free(live.at(id).block);
      live.erase(id);
    } else if (op == "hrecord") {
      words >> id >> number;
      if (live.at(id).block) {
        allocator.record_event(live.at(id).ptr, live.at(id).block, stream_of(number));
      }
    } else if (op == "hold" || op == "release") {
      words >> number;
      auto& timeline = timelines[number];
      timeline.held = op == "hold";
      if (!timeline.held) {
        timeline.completed = timeline.recorded;
      }
    } else if (op == "empty_host_cache") {
      allocator.empty_cache();
    } else if (op == "reset_peak") {
      allocator.resetPeakStats();
    } else if (op == "reset_accumulated") {
      allocator.resetAccumulatedStats();
    } else if (op == "conf") {
      std::string settings;
      words >> settings;
      c10::CachingAllocator::setAllocatorSettings(settings);
    } else if (op == "hstats") {
      auto stats = allocator.getStats();
      std::cout << '@' << line << " hstats\n";
      print("active_bytes", stats.active_bytes);
      print("active_requests", stats.active_requests);
      print("allocated_bytes", stats.allocated_bytes);
      print("allocations", stats.allocations);
      std::cout << "num_host_alloc " << stats.num_host_alloc << '\n'
                << "num_host_free " << stats.num_host_free << '\n'
                << "end\n";
    } else {
      std::cerr << line << ": unknown operation " << op << '\n';
      return 1;
    }
  }
  std::cout.flush();
}
