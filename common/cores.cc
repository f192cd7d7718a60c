#include "common/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace baton {

bool Contend(const Cores& a, const Cores& b) {
  if (a.machine.empty() || a.machine != b.machine) return false;
  std::set<uint32_t> either(a.cpus.begin(), a.cpus.end());
  const bool common = std::any_of(b.cpus.begin(), b.cpus.end(),
                                  [&](uint32_t cpu) { return either.count(cpu) != 0; });
  either.insert(b.cpus.begin(), b.cpus.end());
  return common && uint64_t{a.threads} + b.threads > either.size();
}

Cores OwnCores(uint32_t threads) {
  Cores cores;
  // Of the boot of the kernel: containers see the same one.
  std::ifstream("/proc/sys/kernel/random/boot_id") >> cores.machine;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &cpus)) cores.cpus.push_back(cpu);
    }
  }
  cores.threads = threads != 0 ? threads : static_cast<uint32_t>(cores.cpus.size());
  return cores;
}

}  // namespace baton
