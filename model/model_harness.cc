#include "model/model_harness.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace baton::model {
namespace {

constexpr uint32_t kMaxLogits = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<ModelHarness>> ModelHarness::Create(const Options& options) {
  BATON_ASSIGN_OR_RETURN(LoadedModel model, Load(options.load));
  std::unique_ptr<ModelHarness> harness(new ModelHarness(options, std::move(model)));
  BATON_RETURN_IF_ERROR(harness->Allocate());
  return harness;
}

absl::StatusOr<std::unique_ptr<ModelHarness>> ModelHarness::CreateForOneSequence(
    const LoadOptions& load, uint32_t chunk) {
  return Create({.load = load, .max_rows = chunk, .positions = load.context});
}

ModelHarness::ModelHarness(const Options& options, LoadedModel model)
    : options_(options), model_(std::move(model)), lengths_(options.sequences) {}

absl::Status ModelHarness::Allocate() {
  const uint32_t block_size = model_.layout.block_size;
  const uint32_t blocks = (options_.positions + block_size - 1) / block_size;
  kv::KvArena::Options arena_options;
  arena_options.blocks.assign(model_.layout.groups.size(), blocks * options_.sequences);
  BATON_ASSIGN_OR_RETURN(arena_, kv::KvArena::Create(model_.layout, arena_options));
  // Interleaved and descending, so that a kernel that ignores its table reads a wrong block.
  for (uint32_t sequence = 0; sequence < options_.sequences; ++sequence) {
    tables_.emplace_back();
    for (uint32_t i = blocks; i-- > 0;) {
      tables_.back().push_back(i * options_.sequences + sequence);
    }
  }
  transformer_ = std::make_unique<Transformer>(
      model_.config, model_.weights, *model_.rope, *model_.backend,
      Transformer::Limits{options_.max_rows, std::min(options_.max_rows, kMaxLogits)});
  return absl::OkStatus();
}

void ModelHarness::Restart() {
  for (uint32_t sequence = 0; sequence < tables_.size(); ++sequence) {
    for (const kv::BlockId block : tables_[sequence]) arena_->ZeroBlock(0, block);
    lengths_[sequence] = 0;
  }
}

void ModelHarness::Run(const std::vector<Chunk>& chunks,
                       const Transformer::LayerStored& layer_stored) {
  kernels::Batch batch;
  std::vector<TokenId> tokens;
  for (const Chunk& chunk : chunks) {
    kernels::SequenceRows rows;
    rows.first_row = batch.rows;
    rows.rows = static_cast<uint32_t>(chunk.tokens.size());
    rows.first_position = lengths_[chunk.sequence];
    rows.tables.emplace_back(tables_[chunk.sequence]);
    lengths_[chunk.sequence] += rows.rows;
    BATON_CHECK(lengths_[chunk.sequence] <= options_.positions);
    batch.rows += rows.rows;
    batch.sequences.push_back(std::move(rows));
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
  const auto ignore = [](uint32_t) {};
  transformer_->Forward(tokens, batch, arena_->view(),
                        layer_stored ? layer_stored : Transformer::LayerStored(ignore));
}

void ModelHarness::RunAll(const std::vector<TokenId>& tokens, uint32_t chunk, uint32_t first,
                          const ShowLogits& show) {
  for (uint32_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto end = std::min<uint32_t>(begin + chunk, static_cast<uint32_t>(tokens.size()));
    Run({{0, {tokens.begin() + begin, tokens.begin() + end}}});
    if (end <= first) continue;
    std::vector<uint32_t> rows(end - std::max(begin, first));
    std::iota(rows.begin(), rows.end(), std::max(begin, first) - begin);
    Logits(rows, show);
  }
}

void ModelHarness::Logits(const std::vector<uint32_t>& rows, const ShowLogits& show) {
  const size_t round = transformer_->limits().max_logits;
  for (size_t begin = 0; begin < rows.size(); begin += round) {
    const size_t count = std::min(round, rows.size() - begin);
    const auto& logits = transformer_->Logits(std::span(rows).subspan(begin, count));
    for (uint32_t i = 0; i < count; ++i) show(model_.backend->Read(logits, i));
  }
}

std::vector<double> ModelHarness::Residual(uint32_t row) {
  return model_.backend->Read(transformer_->residual(), row);
}

std::string ModelHarness::KvBytes(uint32_t sequence) const {
  std::string bytes;
  const kv::KvArena& arena = *arena_;
  for (const kv::BlockId block : tables_[sequence]) {
    for (uint32_t layer = 0; layer < model_.layout.layers.size(); ++layer) {
      for (const uint32_t which : {kv::kKeyArena, kv::kValueArena}) {
        const std::span<const std::byte> piece = arena.Piece(layer, which, block);
        bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
    }
  }
  return bytes;
}

}  // namespace baton::model
