// Single operations of the backend on a model's own weights, as JSON lines: products with weights
// and attention in multiply-accumulates and seconds, sampling in seconds. Every layer is used in
// turn, so weights and keys come from memory as they do in a step.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "benchmarks/materialised_attention.h"
#include "common/decoder_state.h"
#include "common/status_macros.h"
#include "kernels/backend.h"
#include "kernels/cpu/tiers.h"
#include "kv/arena.h"
#include "model/load.h"
#include "sampling/token_request.h"

ABSL_FLAG(std::string, model, "", "GGUF file");
ABSL_FLAG(std::string, backend, "cpu", "cpu or cpu-TIER");
ABSL_FLAG(uint32_t, threads, 2, "threads");
ABSL_FLAG(uint32_t, rounds, 5, "how often each is measured");
ABSL_FLAG(bool, claims, false, "attention beside what it replaces, and nothing else");

namespace baton::benchmarks {
namespace {

using kernels::Activation;
using nlohmann::json;

constexpr size_t kFlashScoreBytes = 12 * 256 * sizeof(float);  // of a thread (decision 0005)
constexpr double kLeastSeconds = 0.05;                         // of a round

struct Shape {
  const char* name;
  uint32_t sequences;
  uint32_t rows;     // of each
  uint32_t context;  // of each, before these rows
};

// The tier of the backend that --backend names, which has been created: so there is one.
const kernels::cpu::Tier& TierOfBackend() {
  constexpr size_t kPrefix = std::string_view("cpu-").size();
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend.size() <= kPrefix) return kernels::cpu::BestTier();
  return *kernels::cpu::FindTier(backend.substr(kPrefix))->tier;
}

class Operations {
 public:
  static absl::StatusOr<std::unique_ptr<Operations>> Create(uint32_t threads, uint32_t max_rows,
                                                            uint32_t positions);

  void PrintGemm(uint32_t rows);
  void PrintAttention(const Shape& shape);
  void PrintMaterialised(uint32_t rows);
  absl::Status PrintSampling(const char* name, const SamplingParams& params);

 private:
  Operations(model::LoadedModel model, std::unique_ptr<kv::KvArena> arena, uint32_t max_rows);

  uint32_t layers() const { return model_.config.num_layers; }
  const model::LayerWeights& weights(uint32_t layer) { return model_.weights.layers[layer]; }
  kernels::NormCall FfnNorm(uint32_t layer) {
    return {*weights(layer).ffn_norm, static_cast<float>(model_.config.norm_epsilon),
            *weights(layer).gate_up};
  }
  void Prepare(uint32_t rows);
  void PrepareQueries(const kernels::Batch& batch, uint32_t num_layers);
  void Print(json row, double macs, const std::function<void()>& work);

  model::LoadedModel model_;
  const std::unique_ptr<kv::KvArena> arena_;
  kernels::Backend& backend_;
  const kernels::HeadShape heads_;
  std::unique_ptr<Activation> x_, normed_, qkv_, attended_, gated_, logits_;
};

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of this thread, which other processes do not lengthen: for what it does alone.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double SecondsPerCall(double (*clock)(), const std::function<void()>& work) {
  const double start = clock();
  double seconds = 0;
  int calls = 0;
  do {
    work();
    ++calls;
    seconds = clock() - start;
  } while (seconds < kLeastSeconds);
  return seconds / calls;
}

absl::StatusOr<std::unique_ptr<Operations>> Operations::Create(uint32_t threads, uint32_t max_rows,
                                                               uint32_t positions) {
  model::LoadOptions options;
  options.path = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.threads = threads;
  BATON_ASSIGN_OR_RETURN(model::LoadedModel model, model::Load(options));
  kv::KvArena::Options arena_options;
  arena_options.blocks.assign(model.layout.groups.size(), positions / model.layout.block_size);
  BATON_ASSIGN_OR_RETURN(auto arena, kv::KvArena::Create(model.layout, arena_options));
  return std::unique_ptr<Operations>(new Operations(std::move(model), std::move(arena), max_rows));
}

Operations::Operations(model::LoadedModel model, std::unique_ptr<kv::KvArena> arena,
                       uint32_t max_rows)
    : model_(std::move(model)),
      arena_(std::move(arena)),
      backend_(*model_.backend),
      heads_{model_.config.num_heads, model_.config.num_kv_heads, model_.config.head_dim},
      x_(backend_.NewActivation(max_rows, model_.config.width)),
      normed_(backend_.NewActivation(max_rows, model_.config.width)),
      qkv_(backend_.NewActivation(max_rows, heads_.qkv_cols())),
      attended_(backend_.NewActivation(max_rows, model_.config.QueryWidth())),
      gated_(backend_.NewActivation(max_rows, model_.config.feed_forward)),
      logits_(backend_.NewActivation(16, model_.config.vocab_size)) {}

void Operations::Prepare(uint32_t rows) {
  std::vector<TokenId> tokens(rows);
  for (uint32_t i = 0; i < rows; ++i) {
    tokens[i] = static_cast<TokenId>(i * 7919u % model_.config.vocab_size);
  }
  backend_.Embed(*model_.weights.embedding, tokens, *x_);
  backend_.Norm(*x_, FfnNorm(0), *normed_);
  backend_.GatedLinear(*weights(0).gate_up, *normed_, *weights(0).ffn_down, *gated_);
}

void Operations::Print(json row, double macs, const std::function<void()>& work) {
  work();
  std::vector<double> seconds;
  for (uint32_t round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    seconds.push_back(SecondsPerCall(WallSeconds, work));
  }
  row["macs"] = macs;
  row["seconds"] = seconds;
  std::cout << row.dump() << std::endl;
}

// Gate and up, the largest product of a layer.
void Operations::PrintGemm(uint32_t rows) {
  Prepare(rows);
  const auto& one = *weights(0).gate_up;
  const double macs = 2.0 * one.outputs() * one.inputs() * rows * layers();
  Print({{"name", "gemm_" + std::to_string(rows)}}, macs, [&] {
    for (uint32_t layer = 0; layer < layers(); ++layer) {
      backend_.GatedLinear(*weights(layer).gate_up, *normed_, *weights(layer).ffn_down, *gated_);
    }
  });
}

// Queries, and keys and values in the blocks of the first layers.
void Operations::PrepareQueries(const kernels::Batch& batch, uint32_t num_layers) {
  Prepare(batch.rows);
  const float epsilon = static_cast<float>(model_.config.norm_epsilon);
  backend_.Norm(*x_, {*weights(0).attn_norm, epsilon, *weights(0).qkv}, *normed_);
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    backend_.QkvLinear(*weights(layer).qkv, *normed_, *model_.rope,
                       {heads_, layer, batch, arena_->view()}, *qkv_);
  }
}

void Operations::PrintAttention(const Shape& shape) {
  const uint32_t per_sequence =
      (shape.context + shape.rows + model_.layout.block_size - 1) / model_.layout.block_size;
  std::vector<kv::BlockId> blocks(per_sequence * shape.sequences);
  std::iota(blocks.begin(), blocks.end(), 0);
  kernels::Batch batch;
  for (uint32_t i = 0; i < shape.sequences; ++i) {
    kernels::SequenceRows rows{i * shape.rows, shape.rows, shape.context, {}};
    rows.tables.emplace_back(blocks.data() + i * per_sequence, per_sequence);
    batch.sequences.push_back(std::move(rows));
  }
  batch.rows = shape.sequences * shape.rows;
  PrepareQueries(batch, layers());
  const double keys =
      shape.rows * (shape.context + (shape.rows + 1) / 2.0) * shape.sequences * layers();
  const double macs = keys * 2 * model_.config.QueryWidth();
  Print({{"name", std::string("attention_") + shape.name}}, macs, [&] {
    for (uint32_t layer = 0; layer < layers(); ++layer) {
      backend_.Attention({heads_, layer, batch, arena_->view()}, *qkv_, *weights(layer).attn_output,
                         *attended_);
    }
  });
}

// A prompt's attention in the first layer, and the same by way of all scores in memory.
void Operations::PrintMaterialised(uint32_t rows) {
  std::vector<kv::BlockId> table(rows / model_.layout.block_size);
  std::iota(table.begin(), table.end(), 0);
  kernels::Batch batch;
  batch.rows = rows;
  batch.sequences.push_back({0, rows, 0, {table}});
  const kernels::LayerCall call{heads_, 0, batch, arena_->view()};
  PrepareQueries(batch, 1);
  const size_t width = model_.config.QueryWidth();
  std::vector<float> queries(rows * width), out(rows * width);
  for (uint32_t row = 0; row < rows; ++row) {
    const std::vector<double> values = backend_.Read(*qkv_, row);
    std::copy_n(values.begin(), width, queries.begin() + static_cast<ptrdiff_t>(row * width));
  }
  MaterialisedAttention materialised(heads_, arena_->view(), TierOfBackend(), rows);
  std::vector<double> flash_seconds, materialised_seconds;
  for (uint32_t round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    const double flash = SecondsPerCall(ThreadSeconds, [&] {
      backend_.Attention(call, *qkv_, *weights(0).attn_output, *attended_);
    });
    const double other = SecondsPerCall(
        ThreadSeconds, [&] { materialised.Run(0, table, rows, queries.data(), out.data()); });
    if (round == 0) continue;  // warms caches and pages
    flash_seconds.push_back(flash);
    materialised_seconds.push_back(other);
  }
  const std::string suffix = "_" + std::to_string(rows);
  std::cout << json{{"name", "flash" + suffix},
                    {"score_bytes", kFlashScoreBytes},
                    {"seconds", flash_seconds}}
                   .dump()
            << "\n"
            << json{{"name", "materialised" + suffix},
                    {"score_bytes", materialised.score_bytes()},
                    {"seconds", materialised_seconds}}
                   .dump()
            << std::endl;
}

// A token of each of 16 rows.
absl::Status Operations::PrintSampling(const char* name, const SamplingParams& params) {
  constexpr uint32_t kRows = 16;
  Prepare(kRows);
  const float epsilon = static_cast<float>(model_.config.norm_epsilon);
  backend_.Norm(*x_, {*model_.weights.output_norm, epsilon, model_.weights.head()}, *normed_);
  backend_.Linear(model_.weights.head(), *normed_, *logits_);
  std::vector<kernels::SampleRow> rows;
  for (uint32_t row = 0; row < kRows; ++row)
    rows.push_back({row, {.params = params, .uniform = row}});
  absl::Status status;
  Print({{"name", std::string("sampling_16_") + name}}, 0, [&] {
    for (const auto& result : backend_.Sample(*logits_, rows)) status.Update(result.status());
  });
  return status;
}

absl::Status RunAll() {
  BATON_ASSIGN_OR_RETURN(const auto operations,
                         Operations::Create(absl::GetFlag(FLAGS_threads), 512, 16384));
  for (const uint32_t rows : {1u, 4u, 16u, 64u, 512u}) operations->PrintGemm(rows);
  for (const Shape& shape : {Shape{"decode_1_at_1024", 1, 1, 1024},
                             {"decode_1_at_4096", 1, 1, 4096},
                             {"decode_16_at_512", 16, 1, 512},
                             {"prefill_512", 1, 512, 0},
                             {"prefill_512_at_2048", 1, 512, 2048}}) {
    operations->PrintAttention(shape);
  }
  BATON_RETURN_IF_ERROR(operations->PrintSampling("greedy", {}));
  SamplingParams top;
  top.temperature = 0.8f;
  top.top_k = 40;
  top.top_p = 0.95f;
  BATON_RETURN_IF_ERROR(operations->PrintSampling("top_k_40_top_p", top));
  SamplingParams nucleus = top;
  nucleus.top_k = 0;
  return operations->PrintSampling("top_p", nucleus);
}

absl::Status RunClaims() {
  BATON_ASSIGN_OR_RETURN(const auto one_thread, Operations::Create(1, 2048, 2048));
  for (const uint32_t rows : {512u, 2048u}) one_thread->PrintMaterialised(rows);
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::benchmarks

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status =
      absl::GetFlag(FLAGS_claims) ? baton::benchmarks::RunClaims() : baton::benchmarks::RunAll();
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
