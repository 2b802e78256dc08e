#include "calls.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "api.h"
#include "cudart_sim.h"

__thread Counts* t_counts __attribute__((tls_model("initial-exec")));

namespace {

const char* const kNames[] = {
#define X(name) #name,
    SIM_FUNCTIONS(X)
#undef X
};

std::mutex g_mutex;

std::vector<Counts*>& all_counts() {
  static auto* all = new std::vector<Counts*>(); // never destroyed: used at exit, too
  return *all;
}

uint64_t sum(int f) { // g_mutex held
  uint64_t n = 0;
  for (auto* c : all_counts()) n += c->n[f];
  return n;
}

} // namespace

__attribute__((noinline)) Counts* register_counts() {
  std::lock_guard<std::mutex> l(g_mutex);
  auto* c = new Counts(); // kept after the thread ends, so that sums stay complete
  all_counts().push_back(c);
  return t_counts = c;
}

API uint64_t sim_call_count(const char* name) {
  std::lock_guard<std::mutex> l(g_mutex);
  for (int f = 0; f < F_COUNT; f++)
    if (!strcmp(kNames[f], name)) return sum(f);
  return 0;
}

API void sim_dump_counts(FILE* out) {
  std::map<std::string, uint64_t> by_name;
  {
    std::lock_guard<std::mutex> l(g_mutex);
    for (int f = 0; f < F_COUNT; f++) by_name[kNames[f]] = sum(f);
  }
  for (auto& [name, n] : by_name)
    if (n) fprintf(out, "calls.%s %llu\n", name.c_str(), (unsigned long long)n);
}
