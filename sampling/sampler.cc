#include "sampling/sampler.h"

#include <algorithm>
#include <limits>

#include "sampling/exponential.h"

namespace baton::sampling {
namespace {

constexpr float kGreedyBelow = 1e-5f;
// exp(-x) * 2^32 is below 1 from x = 32 ln 2 on.
constexpr double kNoMass = 22.180709777918249;
constexpr double kBucketsPerUnit = 128;
constexpr size_t kBuckets = static_cast<size_t>(kNoMass * kBucketsPerUnit) + 1;

// exp(-x) * 2^32, truncated, for x >= 0.
uint64_t MassOf(double x) {
  if (!(x < kNoMass)) return 0;
  return static_cast<uint64_t>(ExpOfMinus(x) * 0x1p32);
}

struct Candidate {
  double logit;
  TokenId id;
  // The order in which sets are defined: logit descending, id ascending.
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

// One row under one set of parameters.
template <typename Logit>
class Row {
 public:
  Row(std::span<const Logit> logits, const SamplingParams& params)
      : logits_(logits), params_(params), temperature_(params.temperature) {}

  // Everything but the draw.
  absl::Status Prepare() {
    if (auto status = FindMax(); !status.ok()) return status;
    // Tokens below take no part: their mass is 0 (a little room for rounding in `x`).
    lowest_ = max_ - (kNoMass + 1e-6) * temperature_;
    min_mass_ = std::max(1.0, static_cast<double>(params_.min_p) * 0x1p32);
    if (NeedsCut()) FindCut();
    return absl::OkStatus();
  }

  TokenId Greedy() const {
    size_t id = max_chunk_ * kChunk;
    while (static_cast<double>(logits_[id]) != max_) ++id;
    return static_cast<TokenId>(id);
  }

  // 0 outside the set.
  uint64_t Mass(size_t id) const {
    const double logit = logits_[id];
    if (logit < lowest_ || cut_ < Candidate{logit, static_cast<TokenId>(id)}) return 0;
    const uint64_t mass = MassOf((max_ - logit) / temperature_);
    return static_cast<double>(mass) >= min_mass_ ? mass : 0;
  }

  TokenId Draw(Uniform uniform) const {
    const size_t size = logits_.size();
    std::vector<uint64_t> chunk_mass((size + kChunk - 1) / kChunk);
    uint64_t total = 0;
    for (size_t id = 0; id < size; ++id) {
      const uint64_t mass = Mass(id);
      chunk_mass[id / kChunk] += mass;
      total += mass;
    }
    auto left = static_cast<uint64_t>((static_cast<unsigned __int128>(uniform) * total) >> 64);
    size_t chunk = 0;
    for (; left >= chunk_mass[chunk]; ++chunk) left -= chunk_mass[chunk];
    size_t id = chunk * kChunk;
    for (uint64_t mass = Mass(id); left >= mass; mass = Mass(++id)) left -= mass;
    return static_cast<TokenId>(id);
  }

 private:
  static constexpr size_t kChunk = 1024;

  struct Bucket {
    uint32_t count = 0;
    uint64_t mass = 0;
  };

  absl::Status FindMax() {
    constexpr Logit kInfinity = std::numeric_limits<Logit>::infinity();
    Logit max = -kInfinity;
    for (size_t at = 0; at < logits_.size(); at += kChunk) {
      const Logit chunk_max = MaxOf(logits_.subspan(at, std::min(kChunk, logits_.size() - at)));
      if (!(chunk_max < kInfinity)) return absl::InternalError("a logit is NaN or infinite");
      if (chunk_max > max) {
        max = chunk_max;
        max_chunk_ = at / kChunk;
      }
    }
    if (max == -kInfinity) return absl::InternalError("no token is allowed: all logits are -inf");
    max_ = max;
    return absl::OkStatus();
  }

  // Infinity when a logit is NaN. In lanes, so that the compiler can use vectors.
  static Logit MaxOf(std::span<const Logit> logits) {
    constexpr Logit kInfinity = std::numeric_limits<Logit>::infinity();
    constexpr size_t kLanes = 16;
    Logit lanes[kLanes];
    std::fill(lanes, lanes + kLanes, -kInfinity);
    size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const Logit logit = logits[i + lane];
        const Logit seen = logit < kInfinity ? logit : kInfinity;  // NaN becomes infinity
        lanes[lane] = lanes[lane] > seen ? lanes[lane] : seen;
      }
    }
    for (; i < logits.size(); ++i) {
      const Logit seen = logits[i] < kInfinity ? logits[i] : kInfinity;
      lanes[0] = std::max(lanes[0], seen);
    }
    return *std::max_element(lanes, lanes + kLanes);
  }

  bool NeedsCut() const {
    const bool top_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits_.size();
    return top_k || params_.top_p < 1.0f;
  }

  static size_t BucketOf(double x) { return static_cast<size_t>(x * kBucketsPerUnit); }

  // Calls visit(candidate, x, mass) for every token with mass, ascending id.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t id = 0; id < logits_.size(); ++id) {
      const double logit = logits_[id];
      if (logit < lowest_) continue;
      const double x = (max_ - logit) / temperature_;
      const uint64_t mass = MassOf(x);
      if (mass != 0) visit(Candidate{logit, static_cast<TokenId>(id)}, x, mass);
    }
  }

  // Buckets of x partition the order into runs, so the last member of a set is found by walking
  // bucket totals and then sorting one bucket; the vocabulary is never sorted.
  void FindCut() {
    std::vector<Bucket> buckets(kBuckets);
    uint64_t total = 0;
    ForEach([&](const Candidate&, double x, uint64_t mass) {
      Bucket& bucket = buckets[BucketOf(x)];
      ++bucket.count;
      bucket.mass += mass;
      total += mass;
    });
    if (params_.top_k > 0) {
      const auto k = static_cast<uint64_t>(params_.top_k);
      total = CutWhere(
          buckets, [&](uint64_t count, uint64_t) { return count >= k; }, total);
    }
    if (params_.top_p < 1.0f) {
      const double wanted = static_cast<double>(params_.top_p) * static_cast<double>(total);
      CutWhere(
          buckets, [&](uint64_t, uint64_t mass) { return static_cast<double>(mass) >= wanted; },
          total);
    }
  }

  // Shortens the set to the shortest prefix of the order for which reached(count, mass) holds and
  // returns its mass; leaves the set and returns `total` when none does.
  template <typename Reached>
  uint64_t CutWhere(const std::vector<Bucket>& buckets, Reached reached, uint64_t total) {
    uint64_t count = 0;
    uint64_t mass = 0;
    size_t at = 0;
    while (!reached(count + buckets[at].count, mass + buckets[at].mass)) {
      count += buckets[at].count;
      mass += buckets[at].mass;
      if (++at == kBuckets) return total;
    }
    for (const Candidate& candidate : SortedBucket(at)) {
      mass += MassOf((max_ - candidate.logit) / temperature_);
      cut_ = candidate;
      if (reached(++count, mass)) break;
    }
    return mass;
  }

  std::vector<Candidate> SortedBucket(size_t wanted) const {
    std::vector<Candidate> members;
    ForEach([&](const Candidate& candidate, double x, uint64_t) {
      if (BucketOf(x) == wanted) members.push_back(candidate);
    });
    std::sort(members.begin(), members.end());
    return members;
  }

  const std::span<const Logit> logits_;
  const SamplingParams& params_;
  const double temperature_;
  double max_ = 0;
  size_t max_chunk_ = 0;  // the first with the largest logit
  double lowest_ = 0;
  double min_mass_ = 1;
  // Last member of the set left by top-k and top-p.
  Candidate cut_{-std::numeric_limits<double>::infinity(), std::numeric_limits<TokenId>::max()};
};

template <typename Logit>
absl::StatusOr<TokenId> Sample(std::span<const Logit> logits, const SamplingParams& params,
                               Uniform uniform) {
  Row<Logit> row(logits, params);
  if (auto status = row.Prepare(); !status.ok()) return status;
  return params.temperature < kGreedyBelow ? row.Greedy() : row.Draw(uniform);
}

template <typename Logit>
absl::StatusOr<std::vector<uint64_t>> Masses(std::span<const Logit> logits,
                                             const SamplingParams& params) {
  Row<Logit> row(logits, params);
  if (auto status = row.Prepare(); !status.ok()) return status;
  std::vector<uint64_t> masses(logits.size());
  if (params.temperature < kGreedyBelow) {
    masses[row.Greedy()] = uint64_t{1} << 32;
  } else {
    for (size_t id = 0; id < masses.size(); ++id) masses[id] = row.Mass(id);
  }
  return masses;
}

}  // namespace

Uniform UniformAt(uint64_t seed, uint32_t choice, uint64_t position) {
  constexpr uint32_t kTag = 0x4e544142;  // "BATN"
  uint32_t c[4] = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice,
                   kTag};
  uint32_t k[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * c[0];
    const uint64_t b = uint64_t{0xcd9e8d57} * c[2];
    const uint32_t next0 = static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0];
    const uint32_t next2 = static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1];
    c[0] = next0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = next2;
    c[3] = static_cast<uint32_t>(a);
    k[0] += 0x9e3779b9;
    k[1] += 0xbb67ae85;
  }
  return (uint64_t{c[1]} << 32) | c[0];
}

absl::StatusOr<TokenId> SampleToken(std::span<const float> logits, const SamplingParams& params,
                                    Uniform uniform) {
  return Sample(logits, params, uniform);
}
absl::StatusOr<TokenId> SampleToken(std::span<const double> logits, const SamplingParams& params,
                                    Uniform uniform) {
  return Sample(logits, params, uniform);
}

absl::StatusOr<std::vector<uint64_t>> SamplingMasses(std::span<const float> logits,
                                                     const SamplingParams& params) {
  return Masses(logits, params);
}
absl::StatusOr<std::vector<uint64_t>> SamplingMasses(std::span<const double> logits,
                                                     const SamplingParams& params) {
  return Masses(logits, params);
}

}  // namespace baton::sampling
