#include "sampling/sampler.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "sampling/masses.h"

namespace baton::sampling {
namespace {

constexpr float kGreedyBelow = 1e-5f;

struct Candidate {
  double logit;
  TokenId id;
  double mass;
  // The order in which sets are defined: logit descending, id ascending.
  bool operator<(const Candidate& other) const {
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

// One row under one set of parameters: the tokens that can be drawn with their masses. Without
// top-k and top-p that is the whole row, which is held as masses alone; otherwise a short list.
template <typename Logit>
class Row {
 public:
  Row(std::span<const Logit> logits, const SamplingParams& params)
      : logits_(logits), params_(params), temperature_(params.temperature) {}

  absl::Status FindMax() {
    constexpr Logit kInfinity = std::numeric_limits<Logit>::infinity();
    chunk_max_.resize((logits_.size() + kChunk - 1) / kChunk);
    MaximaOf(logits_, chunk_max_);
    Logit max = -kInfinity;
    for (const Logit chunk_max : chunk_max_) max = std::max(max, chunk_max);
    if (!(max < kInfinity)) return absl::InternalError("a logit is NaN or infinite");
    if (max == -kInfinity) return absl::InternalError("no token is allowed: all logits are -inf");
    max_ = max;
    return absl::OkStatus();
  }

  TokenId Greedy() const {
    const auto chunk = std::find(chunk_max_.begin(), chunk_max_.end(), static_cast<Logit>(max_));
    size_t id = static_cast<size_t>(chunk - chunk_max_.begin()) * kChunk;
    while (static_cast<double>(logits_[id]) != max_) ++id;
    return static_cast<TokenId>(id);
  }

  // Everything but the draw, after FindMax.
  void Prepare() {
    min_mass_ = std::max(1.0, static_cast<double>(params_.min_p) * 0x1p32);
    const bool top_k = params_.top_k > 0 && static_cast<size_t>(params_.top_k) < logits_.size();
    if (top_k && static_cast<size_t>(params_.top_k) <= chunk_max_.size()) {
      ListLargest();
    } else {
      TakeMasses();
      if (top_k || params_.top_p < 1.0f) ListMassive(top_k);
    }
    if (top_k) KeepFirst(static_cast<size_t>(params_.top_k));
    if (params_.top_p < 1.0f) KeepTopP();
  }

  TokenId Draw(Uniform uniform) const { return masses_ ? DrawOfAll(uniform) : DrawListed(uniform); }

  // Calls visit(id, mass) for every token that can be drawn.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Candidate& candidate : list_) {
      if (candidate.mass >= min_mass_) visit(static_cast<size_t>(candidate.id), candidate.mass);
    }
    for (size_t id = 0; masses_ && id < logits_.size(); ++id) {
      if (masses_[id] >= min_mass_) visit(id, masses_[id]);
    }
  }

 private:
  template <typename T>
  static std::span<T> ChunkOf(std::span<T> row, size_t chunk) {
    const size_t at = chunk * kChunk;
    return row.subspan(at, std::min(kChunk, row.size() - at));
  }

  void TakeMasses() {
    masses_ = std::make_unique_for_overwrite<double[]>(logits_.size());
    MassesOf(logits_, max_, temperature_, {masses_.get(), logits_.size()});
  }

  // Lists the top-k tokens and perhaps some more: what reaches the k-th largest maximum of a chunk,
  // for k chunks have a token that does.
  void ListLargest() {
    std::vector<Logit> maxima = chunk_max_;
    const auto kth = maxima.begin() + (params_.top_k - 1);
    std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<>());
    for (size_t chunk = 0; chunk < chunk_max_.size(); ++chunk) {
      if (chunk_max_[chunk] < *kth) continue;
      const auto logits = ChunkOf(logits_, chunk);
      for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] < *kth) continue;
        list_.push_back({logits[i], static_cast<TokenId>(chunk * kChunk + i), 0});
      }
    }
    for (Candidate& candidate : list_) {
      MassesOf(std::span<const double>(&candidate.logit, 1), max_, temperature_,
               {&candidate.mass, 1});
    }
  }

  // Lists the tokens with mass; with top-p alone only those that it can keep: all that have less
  // than their share of 1 - p have less than 1 - p together. Half of it, for what is rounded.
  void ListMassive(bool all) {
    double least = 1;
    if (!all) {
      for (size_t chunk = 0; chunk < chunk_max_.size(); ++chunk) total_ += ChunkMass(chunk, 0);
      const double share = (1 - static_cast<double>(params_.top_p)) * total_;
      least = std::max(1.0, share / static_cast<double>(logits_.size()) / 2);
    }
    for (size_t id = 0; id < logits_.size(); ++id) {
      if (masses_[id] < least) continue;
      list_.push_back({static_cast<double>(logits_[id]), static_cast<TokenId>(id), masses_[id]});
    }
    masses_.reset();
  }

  void KeepFirst(size_t k) {
    if (k < list_.size()) {
      std::vector<Candidate> order = list_;
      const auto last = order.begin() + static_cast<ptrdiff_t>(k - 1);
      std::nth_element(order.begin(), last, order.end());
      KeepUpTo(*last);
    }
    total_ = 0;
    for (const Candidate& candidate : list_) total_ += candidate.mass;
  }

  // Leaves the shortest prefix of the order that has its share of total_: halves what may hold the
  // prefix's end until it is one token.
  void KeepTopP() {
    const double wanted = static_cast<double>(params_.top_p) * total_;
    std::vector<Candidate> order = list_;
    double before = 0;  // mass of what is known to be in the set
    auto begin = order.begin(), end = order.end();
    while (end - begin > 1) {
      const auto middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end);
      double half = 0;
      for (auto it = begin; it != middle; ++it) half += it->mass;
      if (before + half >= wanted) {
        end = middle;
      } else {
        before += half;
        begin = middle;
      }
    }
    KeepUpTo(*begin);
  }

  void KeepUpTo(const Candidate& last) {
    std::erase_if(list_, [&](const Candidate& candidate) { return last < candidate; });
  }

  static uint64_t DrawnOf(Uniform uniform, uint64_t total) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(uniform) * total) >> 64);
  }

  TokenId DrawListed(Uniform uniform) const {
    uint64_t total = 0;
    ForEach([&](size_t, double mass) { total += static_cast<uint64_t>(mass); });
    uint64_t left = DrawnOf(uniform, total);
    auto candidate = list_.begin();
    for (;; ++candidate) {
      if (candidate->mass < min_mass_) continue;
      const auto mass = static_cast<uint64_t>(candidate->mass);
      if (left < mass) return candidate->id;
      left -= mass;
    }
  }

  // Of the masses that are at least `least`. In lanes: the sum is exact in any order.
  double ChunkMass(size_t chunk, double least) const {
    constexpr size_t kLanes = 8;
    const auto masses = ChunkOf(std::span<const double>(masses_.get(), logits_.size()), chunk);
    double lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= masses.size(); i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const double mass = masses[i + lane];
        lanes[lane] += mass >= least ? mass : 0;
      }
    }
    for (; i < masses.size(); ++i) lanes[0] += masses[i] >= least ? masses[i] : 0;
    return std::accumulate(lanes, lanes + kLanes, 0.0);
  }

  TokenId DrawOfAll(Uniform uniform) const {
    std::vector<uint64_t> chunk_mass(chunk_max_.size());
    uint64_t total = 0;
    for (size_t chunk = 0; chunk < chunk_mass.size(); ++chunk) {
      chunk_mass[chunk] = static_cast<uint64_t>(ChunkMass(chunk, min_mass_));
      total += chunk_mass[chunk];
    }
    uint64_t left = DrawnOf(uniform, total);
    size_t chunk = 0;
    for (; left >= chunk_mass[chunk]; ++chunk) left -= chunk_mass[chunk];
    for (size_t id = chunk * kChunk;; ++id) {
      const auto mass = masses_[id] >= min_mass_ ? static_cast<uint64_t>(masses_[id]) : 0;
      if (left < mass) return static_cast<TokenId>(id);
      left -= mass;
    }
  }

  const std::span<const Logit> logits_;
  const SamplingParams& params_;
  const double temperature_;
  std::vector<Logit> chunk_max_;
  double max_ = 0;
  double min_mass_ = 1;
  std::unique_ptr<double[]> masses_;  // of all tokens, or null: list_ has the set
  std::vector<Candidate> list_;
  double total_ = 0;  // mass that top-k left
};

template <typename Logit>
absl::StatusOr<TokenId> Sample(std::span<const Logit> logits, const SamplingParams& params,
                               Uniform uniform) {
  Row<Logit> row(logits, params);
  if (auto status = row.FindMax(); !status.ok()) return status;
  if (params.temperature < kGreedyBelow) return row.Greedy();
  row.Prepare();
  return row.Draw(uniform);
}

template <typename Logit>
absl::StatusOr<std::vector<uint64_t>> Masses(std::span<const Logit> logits,
                                             const SamplingParams& params) {
  Row<Logit> row(logits, params);
  if (auto status = row.FindMax(); !status.ok()) return status;
  std::vector<uint64_t> masses(logits.size());
  if (params.temperature < kGreedyBelow) {
    masses[static_cast<size_t>(row.Greedy())] = uint64_t{1} << 32;
  } else {
    row.Prepare();
    row.ForEach([&](size_t id, double mass) { masses[id] = static_cast<uint64_t>(mass); });
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
