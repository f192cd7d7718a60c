// Percentiles and histograms of measured values.
#ifndef BATON_CLIENT_BENCH_STATISTICS_H_
#define BATON_CLIENT_BENCH_STATISTICS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace baton::client {

// The smallest value that at least `percent` of all are not above (nearest rank). `sorted`
// ascending and not empty; percent in (0, 100].
double Percentile(const std::vector<float>& sorted, double percent);

// All zero when there is no value.
struct Summary {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Summary Summarize(const std::vector<float>& sorted);

struct Bucket {
  double from = 0;
  double to = 0;  // excluded, except in the last bucket
  size_t count = 0;
};

// At most `buckets` of equal width on a logarithmic scale from the least value to the greatest; one
// when all are equal. Values of 0 and below count as 1e-6.
std::vector<Bucket> MakeHistogram(const std::vector<float>& sorted, size_t buckets);

// One line a bucket, in milliseconds of values in seconds, the longest bar `width` characters;
// a bucket with any value has a bar.
std::string DrawHistogram(const std::vector<Bucket>& histogram, size_t width);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_STATISTICS_H_
