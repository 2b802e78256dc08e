// How fast PyTorch's own CUDA caching allocator (libc10_cuda.so) is on the simulated device.
//
//   torch_bench [-r REPS] [-m MS] [-t LIST] [SCENARIO...]
//     -r  measured repetitions a line, 7 unless told; the median is printed
//     -m  how long a repetition is to take, in milliseconds, 200 unless told
//     -t  numbers of threads, 1,2,4 unless told
//   torch_bench -c SCENARIO OPS   one thread; after the warm-up OPS ops in bench::counted(), for callgrind
//   torch_bench -g N              the first N values of the generator from seed 42, with S(9,17) and S(9,16)
//                                 of each
//
// A line for each scenario and number of threads:
//   scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops
// ns_per_op is wall time by ops of all threads (the inverse of the total throughput), the median of the
// repetitions, min and max are over the same; cpu_ns is the threads' CPU time an op (median), thread_ns
// is ns_per_op * threads: what an op takes as one thread sees it, waiting for a core included. cpu_ns /
// ns_per_op is the number of cores that were busy: near 1 with several threads, they took turns, and the
// line shows no contention. device_allocs counts the cudaMalloc calls of all measured repetitions (0: the
// cache was warm); ops is the number of ops a repetition.
//
// Scenarios, and what an op is:
//   small        alloc 512 B, free it                      the pair
//   large        alloc 4 MiB, free it                      the pair
//   lifo         64 allocs of random size, S(9,17), then 64 frees, last first;
//                the sizes are drawn anew each round       a pair
//   random       4096 live blocks; draw a slot, free it, draw a size, S(9,16),
//                alloc it into the slot                    a replacement
//   xstream      alloc 512 B on the thread's stream, recordStream on its second
//                stream, free; events are ready at once    the triple
//   shared       as small, all threads on one stream       the pair
//   stats        getDeviceStats(0)                         the call
// Each thread has a stream of its own, except in `shared`. The device has 1 TiB, so that nothing runs out.
//
// The generator is xorshift64*, on unsigned 64-bit words that wrap:
//   next(): x ^= x >> 12; x ^= x << 25; x ^= x >> 27; return x * 0x2545F4914F6CDD1D
// Thread t starts each scenario with x = 42 + t; repetitions go on from there. A size S(e, n) is one draw
// r = next():
//   k = e + (r >> 32) mod n;  size = 2^k + (r mod 2^k)
// so the octave is uniform over [2^e, 2^(e+n)) and the size uniform in its octave. S(9,17) is 512 B to 64
// MiB, S(9,16) to 32 MiB. `random`: slots 0 to 4095 in order get S(9,16) each; then a step draws slot =
// (next() >> 32) mod 4096, and the size.
//
// Warm-up, not measured: small, large, xstream, shared: 10000 ops; lifo: 2000 rounds of 64; random: the
// fill and 400000 steps; stats: 1000 ops. Runs of growing length follow, to set the length of a
// repetition; not with -c.

#include "torch_common.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <time.h>

namespace A = c10::cuda::CUDACachingAllocator;

namespace bench {

struct Rng {
  uint64_t x;
  uint64_t next() {
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    return x * 0x2545F4914F6CDD1Dull;
  }
  size_t size(unsigned e, unsigned n) {
    uint64_t r = next();
    unsigned k = e + static_cast<unsigned>((r >> 32) % n);
    return (size_t{1} << k) + (r & ((uint64_t{1} << k) - 1));
  }
};

enum Kind { Small, Large, Lifo, Random, XStream, Shared, Stats, N_KINDS };
const char* const kNames[] = {"small", "large", "lifo", "random", "xstream", "shared", "stats"};

A::CUDAAllocator* g_alloc;
c10::DeleterFnPtr g_deleter;
const c10::Device kDev(c10::DeviceType::CUDA, 0);

struct Worker {
  Kind kind;
  Rng rng;
  cudaStream_t stream;
  c10::cuda::CUDAStream other;
  std::vector<void*> live; // random

  Worker(Kind k, int t, cudaStream_t s, c10::cuda::CUDAStream o)
      : kind(k), rng{static_cast<uint64_t>(42 + t)}, stream(s), other(o) {}

  void set_thread() {
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(stream, 0));
  }

  void warm() {
    switch (kind) {
      case Lifo: run(2000 * 64); break;
      case Random:
        for (int i = 0; i < 4096; i++)
          live.push_back(g_alloc->raw_alloc_with_stream(rng.size(9, 16), stream));
        run(400000);
        break;
      case Stats: run(1000); break;
      default: run(10000);
    }
  }

  void finish() {
    for (void* p : live) g_alloc->raw_delete(p);
    live.clear();
  }

  // Runs n ops (lifo: rounded up to a multiple of 64). Returns the ops done.
  size_t run(size_t n) {
    auto* a = g_alloc;
    switch (kind) {
      case Small:
      case Shared:
        for (size_t i = 0; i < n; i++) a->raw_delete(a->raw_alloc_with_stream(512, stream));
        return n;
      case Large:
        for (size_t i = 0; i < n; i++) a->raw_delete(a->raw_alloc_with_stream(4 << 20, stream));
        return n;
      case Lifo: {
        void* p[64];
        size_t rounds = (n + 63) / 64;
        for (size_t i = 0; i < rounds; i++) {
          for (int j = 0; j < 64; j++) p[j] = a->raw_alloc_with_stream(rng.size(9, 17), stream);
          for (int j = 64; j-- > 0;) a->raw_delete(p[j]);
        }
        return rounds * 64;
      }
      case Random:
        for (size_t i = 0; i < n; i++) {
          size_t s = (rng.next() >> 32) % 4096;
          a->raw_delete(live[s]);
          live[s] = a->raw_alloc_with_stream(rng.size(9, 16), stream);
        }
        return n;
      case XStream:
        for (size_t i = 0; i < n; i++) {
          void* p = a->raw_alloc_with_stream(512, stream);
          c10::DataPtr d(p, p, g_deleter, kDev);
          a->recordStream(d, other);
          // the DataPtr's destructor is the free
        }
        return n;
      case Stats:
        for (size_t i = 0; i < n; i++) {
          auto s = a->getDeviceStats(0);
          asm volatile("" : : "r"(&s) : "memory");
        }
        return n;
      default: return 0;
    }
  }
};

// Instructions are counted in here and in what it calls: callgrind is told its name.
[[gnu::noinline]] size_t counted(Worker& w, size_t n) {
  size_t done = w.run(n);
  asm volatile("" : "+r"(done)); // or run() could be jumped to, which would leave this function first
  return done;
}

uint64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t cpu_ns() { // CPU time of this thread
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + t.tv_nsec;
}

std::vector<Worker> make_workers(Kind kind, int threads) {
  static std::vector<cudaStream_t> pool;
  auto stream = [&](size_t i) {
    while (pool.size() <= i) {
      cudaStream_t s;
      C10_CUDA_CHECK(cudaStreamCreate(&s));
      pool.push_back(s);
    }
    return pool[i];
  };
  std::vector<Worker> w;
  for (int t = 0; t < threads; t++)
    w.emplace_back(kind, t, stream(kind == Shared ? 0 : 2 * t),
                   c10::cuda::getStreamFromExternal(stream(2 * t + 1), 0));
  return w;
}

void measure(Kind kind, int threads, int reps, double target_ms) {
  auto w = make_workers(kind, threads);
  std::barrier<> bar(threads + 1); // blocks: the main thread uses no CPU
  size_t n_ops = 0;
  bool stop = false;
  struct alignas(64) Slot { uint64_t begin, end, cpu, done; };
  std::vector<Slot> slot(threads);
  std::vector<std::thread> th;
  for (int t = 0; t < threads; t++)
    th.emplace_back([&, t] {
      w[t].set_thread();
      w[t].warm();
      for (;;) {
        bar.arrive_and_wait(); // all start
        if (stop) break;
        uint64_t c0 = cpu_ns();
        slot[t].begin = now_ns();
        slot[t].done = w[t].run(n_ops);
        slot[t].end = now_ns();
        slot[t].cpu = cpu_ns() - c0;
        bar.arrive_and_wait(); // finish
      }
      w[t].finish();
    });
  struct Rep { double wall, cpu, ops; };
  auto rep = [&](size_t n) { // wall: first begin to last end
    n_ops = n;
    bar.arrive_and_wait();
    bar.arrive_and_wait();
    uint64_t b = ~uint64_t{0}, e = 0, cpu = 0, ops = 0;
    for (auto& s : slot) {
      b = std::min(b, s.begin);
      e = std::max(e, s.end);
      cpu += s.cpu;
      ops += s.done;
    }
    return Rep{double(e - b), double(cpu), double(ops)};
  };
  size_t n = 64;
  for (;;) { // until a run is long enough to tell the length
    double ns = rep(n).wall;
    if (ns >= target_ms * 1e6 * 0.5) {
      n = std::max<size_t>(64, static_cast<size_t>(n * target_ms * 1e6 / ns));
      n = (n + 63) / 64 * 64;
      break;
    }
    n *= 2;
  }
  uint64_t mallocs = sim_call_count("cudaMalloc");
  std::vector<double> per, cpu;
  for (int r = 0; r < reps; r++) {
    Rep x = rep(n);
    per.push_back(x.wall / x.ops);
    cpu.push_back(x.cpu / x.ops);
  }
  mallocs = sim_call_count("cudaMalloc") - mallocs;
  stop = true;
  bar.arrive_and_wait();
  for (auto& x : th) x.join();
  std::sort(per.begin(), per.end());
  std::sort(cpu.begin(), cpu.end());
  double med = per[per.size() / 2];
  printf("%-8s %d %9.1f  %9.1f %9.1f  %9.1f %9.1f  %llu %zu\n", kNames[kind], threads, med,
         per.front(), per.back(), cpu[cpu.size() / 2], med * threads,
         (unsigned long long)mallocs, n * threads);
  fflush(stdout);
  A::emptyCache();
}

void run_counted(Kind kind, size_t n) {
  auto w = make_workers(kind, 1);
  w[0].set_thread();
  w[0].warm();
  size_t done = counted(w[0], n);
  printf("%s ops %zu\n", kNames[kind], done);
  fflush(stdout);
  _Exit(0);
}

int find(const char* name) {
  for (int k = 0; k < N_KINDS; k++)
    if (!strcmp(kNames[k], name)) return k;
  fprintf(stderr, "unknown scenario %s\n", name);
  exit(2);
}

} // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  int reps = 7;
  double ms = 200;
  std::vector<int> threads{1, 2, 4}, kinds;
  const char* to_count = nullptr;
  size_t ops_to_count = 0;
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    auto val = [&]() -> const char* {
      if (++i >= argc) exit(2);
      return argv[i];
    };
    if (a == "-r") reps = atoi(val());
    else if (a == "-m") ms = atof(val());
    else if (a == "-t") {
      threads.clear();
      for (const char* s = val(); *s;) {
        threads.push_back(atoi(s));
        s += strcspn(s, ",");
        if (*s) s++;
      }
    } else if (a == "-c") {
      to_count = val();
      ops_to_count = strtoull(val(), nullptr, 10);
    } else if (a == "-g") {
      Rng r{42};
      for (int n = atoi(val()); n > 0; n--) {
        Rng a = r, b = r;
        size_t s17 = a.size(9, 17), s16 = b.size(9, 16);
        printf("0x%016llx %zu %zu\n", (unsigned long long)r.next(), s17, s16);
      }
      return 0;
    } else kinds.push_back(find(argv[i]));
  }
  torch_sim_init();
  sim_set_capacity(0, size_t{1} << 40);
  g_alloc = A::get();
  g_deleter = g_alloc->raw_deleter();
  if (to_count) run_counted(static_cast<Kind>(find(to_count)), ops_to_count);
  if (kinds.empty())
    for (int k = 0; k < N_KINDS; k++) kinds.push_back(k);
  printf("# scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops_per_rep  (%d reps)\n",
         reps);
  for (int k : kinds)
    for (int t : threads) measure(static_cast<Kind>(k), t, reps, ms);
  fflush(stdout);
  _Exit(0);
}
