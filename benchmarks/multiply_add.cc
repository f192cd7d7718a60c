#include "benchmarks/multiply_add.h"

#include <cpuid.h>

#include <cstddef>

namespace baton::benchmarks {
namespace {

// clang 14 cannot be asked for "avxvnni" by name. The system's consent comes with "avx2".
bool HasAvxVnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

template <size_t kCount>
void Append(const MultiplyAdd (&more)[kCount], std::vector<MultiplyAdd>& all) {
  all.insert(all.end(), more, more + kCount);
}

}  // namespace

std::vector<MultiplyAdd> MultiplyAdds() {
  std::vector<MultiplyAdd> all;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return all;
  Append(kAvx2MultiplyAdds, all);
  if (HasAvxVnni()) Append(kAvxVnniMultiplyAdds, all);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) {
    Append(kAvx512MultiplyAdds, all);
  }
  return all;
}

}  // namespace baton::benchmarks
