#include "benchmarks/first_fit.h"

namespace baton::benchmarks {

std::optional<uint64_t> FirstFit::Take(uint64_t length) {
  uint64_t begin = 0;
  for (const auto& [taken, end] : taken_) {
    if (taken - begin >= length) break;
    begin = end;
  }
  if (slots_ < begin || slots_ - begin < length) return std::nullopt;
  taken_[begin] = begin + length;
  return begin;
}

}  // namespace baton::benchmarks
