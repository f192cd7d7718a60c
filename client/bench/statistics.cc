#include "client/bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace baton::client {
namespace {

constexpr double kLeast = 1e-6;

}  // namespace

double Percentile(const std::vector<float>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  const size_t index = std::clamp<size_t>(static_cast<size_t>(rank), 1, sorted.size()) - 1;
  return sorted[index];
}

Summary Summarize(const std::vector<float>& sorted) {
  Summary out;
  if (sorted.empty()) return out;
  out.count = sorted.size();
  double sum = 0;
  for (const float value : sorted) sum += value;
  out.mean = sum / static_cast<double>(sorted.size());
  out.p50 = Percentile(sorted, 50);
  out.p90 = Percentile(sorted, 90);
  out.p99 = Percentile(sorted, 99);
  out.max = sorted.back();
  return out;
}

std::vector<Bucket> MakeHistogram(const std::vector<float>& sorted, size_t buckets) {
  if (sorted.empty() || buckets == 0) return {};
  const double least = std::max<double>(sorted.front(), kLeast);
  const double most = std::max<double>(sorted.back(), kLeast);
  if (least == most) return {{least, most, sorted.size()}};
  const double step = std::log(most / least) / static_cast<double>(buckets);
  std::vector<Bucket> out(buckets);
  for (size_t i = 0; i < buckets; ++i) {
    out[i].from = i == 0 ? least : out[i - 1].to;
    out[i].to = i + 1 == buckets ? most : least * std::exp(step * static_cast<double>(i + 1));
  }
  size_t bucket = 0;
  for (const float value : sorted) {
    while (bucket + 1 < buckets && std::max<double>(value, kLeast) >= out[bucket].to) ++bucket;
    ++out[bucket].count;
  }
  return out;
}

std::string DrawHistogram(const std::vector<Bucket>& histogram, size_t width) {
  size_t most = 1;
  for (const Bucket& bucket : histogram) most = std::max(most, bucket.count);
  std::string out;
  for (const Bucket& bucket : histogram) {
    char label[96];
    std::snprintf(label, sizeof label, "  %10.2f .. %10.2f ms %8zu ", bucket.from * 1e3,
                  bucket.to * 1e3, bucket.count);
    const size_t bar = (bucket.count * width + most - 1) / most;
    out += label + std::string(bar, '#') + "\n";
  }
  return out;
}

}  // namespace baton::client
