// Attention alone in GMAC/s, and a model's layers with fused operations beside the same layers with
// a pass of the threads for every operation. One JSON row a line.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv_append.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/testing.h"
#include "kernels/cpu/tiers.h"
#include "kernels/cpu/weight.h"
#include "kv/arena.h"

ABSL_FLAG(std::string, suite, "all", "decode_attention, prefill_attention, fused or all");
ABSL_FLAG(std::string, tier, "", "a tier by name; empty: the best of this processor");
ABSL_FLAG(uint32_t, threads, 2, "of the fused and unfused layers");
ABSL_FLAG(uint32_t, attention_threads, 1, "of attention alone");
ABSL_FLAG(uint32_t, context, 0, "of attention alone; 0: 512, 1024, 2048 and 4096");
ABSL_FLAG(uint32_t, rounds, 9, "turns of each");
ABSL_FLAG(uint32_t, layers, 30, "whose keys and values attention reads; 1: they stay in cache");

namespace baton::kernels::cpu {
namespace {

// SmolLM2-135M.
constexpr HeadShape kHeads = {9, 3, 64};
constexpr uint32_t kWidth = 576;
constexpr uint32_t kHidden = 1536;
constexpr uint32_t kBlockSize = 16;

const Tier& ChosenTier() {
  const std::string name = absl::GetFlag(FLAGS_tier);
  return name.empty() ? BestTier() : *FindTier(name)->tier;
}

// Of this thread, which other processes do not lengthen; of the wall where threads work together.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Sequences of one length whose blocks lie interleaved in an arena.
class Sequences {
 public:
  Sequences(uint32_t count, uint32_t context, uint32_t layers, kv::KvDtype dtype) : tables_(count) {
    const uint32_t blocks = (context + kBlockSize - 1) / kBlockSize;
    const kv::KvLayout layout =
        kv::MakeUniformLayout({layers, kHeads.kv_heads, kHeads.head_dim, kBlockSize}, dtype,
                              kv::KvOrder::kHeadDimSlot, kv::KvOrder::kHeadSlotDim);
    arena_ = *kv::KvArena::Create(layout, {.blocks = {blocks * count}});
    for (uint32_t i = 0; i < blocks * count; ++i) tables_[i % count].push_back(i);
    Fill(layers, blocks * count);
  }

  // Every sequence's last `rows` positions.
  Batch LastRows(uint32_t rows, uint32_t context) const {
    Batch batch;
    for (const auto& table : tables_) {
      batch.sequences.push_back({batch.rows, rows, context - rows, {table}});
      batch.rows += rows;
    }
    return batch;
  }
  const kv::KvView& view() const { return arena_->view(); }

 private:
  // Halves between 0.5 and 1, or any bytes and small scales.
  void Fill(uint32_t layers, uint32_t blocks) {
    std::mt19937_64 random(1);
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (uint32_t arena : {kv::kKeyArena, kv::kValueArena}) {
        for (uint32_t block = 0; block < blocks; ++block) {
          const auto piece = arena_->Piece(layer, arena, block);
          for (size_t i = 0; i < piece.size(); i += sizeof(uint64_t)) {
            const uint64_t numbers = (random() & 0x00ff00ff00ff00ff) | 0x3800380038003800;
            std::memcpy(&piece[i], &numbers, sizeof numbers);
          }
        }
      }
    }
  }

  std::vector<std::vector<kv::BlockId>> tables_;
  std::unique_ptr<kv::KvArena> arena_;
};

struct AttentionCase {
  kv::KvDtype dtype;
  uint32_t sequences;
  uint32_t rows;  // of each
  uint32_t context;
};

// As many layers as the model has, so that decode finds keys and values where a step finds them; of
// large cases as many as make 256 MB.
void MeasureAttention(const AttentionCase& one) {
  const bool int8 = one.dtype == kv::KvDtype::kInt8;
  const uint64_t layer_bytes =
      uint64_t{2} * one.sequences * one.context * kHeads.kv_heads * (int8 ? 64 + 4 : 2 * 64);
  const auto layers = static_cast<uint32_t>(
      std::clamp<uint64_t>((uint64_t{256} << 20) / layer_bytes, 1, absl::GetFlag(FLAGS_layers)));
  const Sequences sequences(one.sequences, one.context, layers, one.dtype);
  const Batch batch = sequences.LastRows(one.rows, one.context);
  const uint32_t threads = absl::GetFlag(FLAGS_attention_threads);
  const auto now = threads > 1 ? WallSeconds : ThreadSeconds;
  ThreadPool pool(threads);
  Attention attention(ChosenTier(), pool);
  CpuActivation qkv(batch.rows, kHeads.qkv_cols());
  CpuActivation out(batch.rows, kHeads.heads * kHeads.head_dim);
  qkv.SetForms(kFloat);
  out.SetForms(kFloat | kInt8);
  std::mt19937_64 random(2);
  const auto values = RandomFloats(random, size_t{batch.rows} * qkv.cols());
  std::copy(values.begin(), values.end(), qkv.values(0));
  double best = 1e9;
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const double begin = now();
    for (uint32_t layer = 0; layer < layers; ++layer) {
      attention.Run({kHeads, layer, batch, sequences.view()}, qkv, out);
    }
    best = std::min(best, now() - begin);
  }
  double keys = 0;
  for (uint32_t row = 0; row < one.rows; ++row) keys += one.context - row;
  const double macs = keys * one.sequences * layers * kHeads.heads * kHeads.head_dim * 2;
  std::printf(
      "{\"name\": \"attention_%s_%u_at_%u%s\", \"value\": %.1f, \"unit\": \"GMAC/s\", "
      "\"threads\": %u, \"kv_read_gb_per_s\": %.1f}\n",
      one.rows == 1 ? "decode" : "prefill", one.rows == 1 ? one.sequences : one.rows, one.context,
      int8 ? "_kv_int8" : "", macs / best * 1e-9, threads,
      static_cast<double>(layer_bytes) * layers / best * 1e-9);
  std::fflush(stdout);
}

constexpr uint32_t kLayers = 30;

// Weights and activations of kLayers layers, and both ways to run them.
class Layers {
 public:
  Layers(uint32_t threads, uint32_t rows)
      : pool_(threads),
        attention_(ChosenTier(), pool_),
        sequences_(rows, kBlockSize, kLayers, kv::KvDtype::kF16),
        batch_(sequences_.LastRows(1, kBlockSize)),
        rope_({.dims = kHeads.head_dim, .context = 64}),
        x_(rows, kWidth),
        normed_(rows, kWidth),
        qkv_(rows, kHeads.qkv_cols()),
        attended_(rows, kWidth),
        gated_(rows, kHidden),
        gain_(kWidth, 1) {
    x_.SetForms(kFloat);
    qkv_.SetForms(kFloat);
    normed_.SetForms(kFloat | kInt8 | kResidual);
    attended_.SetForms(kFloat | kInt8);
    gated_.SetForms(kInt8);
    const uint32_t kv = kHeads.kv_heads * kHeads.head_dim;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      qkv_weights_.push_back(
          Pack({{kWidth, kWidth}, {kv, kWidth}, {kv, kWidth}}, PartOrder::kQueryKeyValue));
      o_weights_.push_back(Pack({{kWidth, kWidth}}, PartOrder::kConcatenated));
      gate_up_weights_.push_back(Pack({{kHidden, kWidth}, {kHidden, kWidth}}, PartOrder::kGateUp));
      down_weights_.push_back(Pack({{kWidth, kHidden}}, PartOrder::kConcatenated));
    }
  }

  void Restart() {
    std::mt19937_64 random(4);
    const auto values = RandomFloats(random, size_t{x_.rows()} * kWidth);
    std::copy(values.begin(), values.end(), x_.values(0));
    NormRows(kInt8 | kResidual);
  }

  void RunFused() {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const LayerCall call{kHeads, layer, batch_, sequences_.view()};
      const KvAppend append(ChosenTier(), call, rope_, qkv_);
      AppendEpilogue append_epilogue(append, countdowns_);
      Linear(*qkv_weights_[layer], normed_, {qkv_, false, &append_epilogue});
      attended_.SetForms(kFloat | kInt8);
      attention_.Run(call, qkv_, attended_);
      normed_.SetForms(kFloat | kInt8 | kResidualOfFew);
      AddNorm(*o_weights_[layer], attended_);
      RunGatedLinear(ChosenTier(), pool_, *gate_up_weights_[layer], normed_, gated_);
      normed_.SetForms(kFloat | kInt8 | kResidual);
      AddNorm(*down_weights_[layer], gated_);
    }
  }

  void RunUnfused() {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const LayerCall call{kHeads, layer, batch_, sequences_.view()};
      Linear(*qkv_weights_[layer], normed_, {qkv_});
      const KvAppend append(ChosenTier(), call, rope_, qkv_);
      ForRows([&](uint32_t begin, uint32_t end) {
        for (uint32_t head = 0; head < append.heads(); ++head) append.Run(head, begin, end);
      });
      attended_.SetForms(kFloat);
      attention_.Run(call, qkv_, attended_);
      attended_.SetForms(kFloat | kInt8);
      ForRows([&](uint32_t begin, uint32_t end) {
        attended_.Quantize(ChosenTier(), attended_.values(begin), kWidth, begin, end - begin, 0,
                           attended_.blocks());
      });
      Linear(*o_weights_[layer], attended_, {x_, true});
      NormRows(kInt8 | kResidualOfFew);
      RunGatedLinear(ChosenTier(), pool_, *gate_up_weights_[layer], normed_, gated_);
      Linear(*down_weights_[layer], gated_, {x_, true});
      NormRows(kInt8 | kResidual);
    }
  }

  uint64_t synchronisations() const { return pool_.synchronisations(); }

 private:
  struct Shape {
    uint32_t outputs;
    uint32_t inputs;
  };

  std::unique_ptr<CpuWeight> Pack(const std::vector<Shape>& shapes, PartOrder order) {
    std::vector<OwnedTensor> tensors;
    std::vector<RawTensor> raw;
    for (const Shape& shape : shapes) {
      tensors.push_back(RandomTensor(random_, TensorType::kQ4_1, shape.outputs, shape.inputs));
    }
    for (const OwnedTensor& tensor : tensors) raw.push_back(tensor.raw());
    return *CpuWeight::Pack(raw, order, memory_, pool_);
  }

  void Linear(const CpuWeight& w, const CpuActivation& in, const LinearOutput& out) {
    RunLinear(ChosenTier(), pool_, w, in, out);
  }
  RowNorm Norm() { return {ChosenTier(), gain_.data(), 1e-5f, x_, normed_}; }
  void AddNorm(const CpuWeight& w, const CpuActivation& in) {
    const RowNorm norm = Norm();
    NormEpilogue epilogue(norm, pool_, countdowns_);
    Linear(w, in, {x_, true, &epilogue});
    epilogue.Finish();
  }
  template <typename Body>
  void ForRows(const Body& body) {
    pool_.ForRange(x_.rows(), 4, body);
  }
  void NormRows(Forms forms) {
    normed_.SetForms(kFloat | forms);
    ForRows([&](uint32_t begin, uint32_t end) { Norm().Run(begin, end); });
    Norm().Finish(0);
  }

  ThreadPool pool_;
  HugeMemory memory_;
  Attention attention_;
  Countdowns countdowns_;
  std::mt19937_64 random_{3};
  const Sequences sequences_;
  const Batch batch_;
  const CpuRope rope_;
  CpuActivation x_, normed_, qkv_, attended_, gated_;
  const std::vector<float> gain_;
  using Weights = std::vector<std::unique_ptr<CpuWeight>>;
  Weights qkv_weights_, o_weights_, gate_up_weights_, down_weights_;
};

void MeasureFused(uint32_t rows) {
  Layers layers(absl::GetFlag(FLAGS_threads), rows);
  uint64_t counted = 0;  // in the last run
  const auto seconds = [&](void (Layers::*run)()) {
    layers.Restart();
    counted = layers.synchronisations();
    const double begin = WallSeconds();
    (layers.*run)();
    const double taken = WallSeconds() - begin;
    counted = layers.synchronisations() - counted;
    return taken;
  };
  seconds(&Layers::RunUnfused);
  seconds(&Layers::RunFused);
  const double synchronisations = static_cast<double>(counted) / kLayers;
  std::vector<double> fused, unfused, ratios;
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    fused.push_back(seconds(&Layers::RunFused));
    unfused.push_back(seconds(&Layers::RunUnfused));
    ratios.push_back(unfused.back() / fused.back());
  }
  std::printf(
      "{\"name\": \"fused_layers_%u_rows\", \"value\": %.3f, \"unit\": \"ms\", \"peer\": \"unfused "
      "layers\", \"peer_value\": %.3f, \"ratio\": %.3f, \"ratio_min\": %.3f, \"ratio_max\": %.3f, "
      "\"synchronisations_per_layer\": %.2f}\n",
      rows, Median(fused) * 1e3, Median(unfused) * 1e3, Median(ratios),
      *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()), synchronisations);
  std::fflush(stdout);
}

}  // namespace
}  // namespace baton::kernels::cpu

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  using namespace baton::kernels::cpu;
  const std::string suite = absl::GetFlag(FLAGS_suite);
  using baton::kv::KvDtype;
  for (const KvDtype dtype : {KvDtype::kF16, KvDtype::kInt8}) {
    for (uint32_t context : {512u, 1024u, 2048u, 4096u}) {
      if (absl::GetFlag(FLAGS_context) != 0 && absl::GetFlag(FLAGS_context) != context) continue;
      if (suite == "decode_attention" || suite == "all") MeasureAttention({dtype, 1, 1, context});
      if (suite == "decode_attention" || suite == "all") MeasureAttention({dtype, 16, 1, context});
      if (suite == "prefill_attention" || suite == "all") {
        MeasureAttention({dtype, 1, 128, context});
      }
    }
  }
  if (suite == "fused" || suite == "all") {
    for (uint32_t rows : {1u, 4u, 16u, 64u, 512u}) MeasureFused(rows);
  }
  return 0;
}
