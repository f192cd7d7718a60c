// Memory as a contiguous cache gives it to sequences: one piece each, the first gap that is large
// enough. What paging replaces; only benchmarks have it.
#ifndef BATON_BENCHMARKS_FIRST_FIT_H_
#define BATON_BENCHMARKS_FIRST_FIT_H_

#include <cstdint>
#include <map>
#include <optional>

namespace baton::benchmarks {

class FirstFit {
 public:
  explicit FirstFit(uint64_t slots) : slots_(slots) {}

  // Where `length` slots (at least 1) begin now; nullopt: no gap is that long.
  std::optional<uint64_t> Take(uint64_t length);
  // What Take returned and was not freed.
  void Free(uint64_t begin) { taken_.erase(begin); }

 private:
  const uint64_t slots_;
  std::map<uint64_t, uint64_t> taken_;  // begin to end
};

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_FIRST_FIT_H_
