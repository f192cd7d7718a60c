// Reading memory from one end to the other, as fast as one thread can.
#ifndef BATON_BENCHMARKS_STREAM_H_
#define BATON_BENCHMARKS_STREAM_H_

#include <cstddef>
#include <cstdint>

namespace baton::benchmarks {

// 256 MiB, far beyond the share of a last-level cache, in 2 MiB pages where the system gives them:
// as packed weights lie.
class StreamBuffer {
 public:
  explicit StreamBuffer(uint64_t value);  // of every word
  ~StreamBuffer();
  StreamBuffer(const StreamBuffer&) = delete;
  StreamBuffer& operator=(const StreamBuffer&) = delete;

  uint64_t* data() { return data_; }
  const uint64_t* data() const { return data_; }
  size_t words() const { return bytes() / sizeof(uint64_t); }
  size_t bytes() const { return size_t{256} << 20; }

 private:
  uint64_t* const data_;
};

// `words` is a multiple of 16. Thread-safe.
uint64_t Sum(const uint64_t* data, size_t words);

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_STREAM_H_
