#include "model/step_runner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sampling/token_request.h"

namespace baton::model {
namespace {

// Bounds the memory of logits; a step with more sampled rows takes several rounds.
constexpr uint32_t kLogitRows = 64;

kernels::Batch BatchOf(const engine::Step& step) {
  kernels::Batch batch;
  for (const engine::StepItem& item : step.items) {
    kernels::SequenceRows rows;
    rows.first_row = batch.rows;
    rows.rows = static_cast<uint32_t>(item.tokens.size());
    rows.first_position = item.start_position;
    for (const auto& table : item.block_tables) rows.tables.emplace_back(table);
    batch.rows += rows.rows;
    batch.sequences.push_back(std::move(rows));
  }
  return batch;
}

std::vector<TokenId> TokensOf(const engine::Step& step) {
  std::vector<TokenId> tokens;
  for (const engine::StepItem& item : step.items) {
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
  }
  return tokens;
}

// A row whose logits are wanted.
struct Asked {
  size_t item = 0;
  uint32_t row = 0;  // of the step
  sampling::TokenRequest request;
};

sampling::TokenRequest ToSample(const engine::StepItem& item, const engine::ChoiceSample& sample) {
  const uint64_t position = item.start_position + item.tokens.size();
  return {.params = item.sampling,
          .uniform = sampling::UniformAt(item.sampling.seed, sample.choice, position),
          .edits = sample.edits,
          .top_logprobs = item.top_logprobs};
}

std::vector<Asked> AskedRows(const engine::Step& step) {
  std::vector<Asked> asked;
  uint32_t first = 0;
  for (size_t i = 0; i < step.items.size(); ++i) {
    const engine::StepItem& item = step.items[i];
    for (size_t k = 0; k < item.scored.size(); ++k) {
      asked.push_back({i,
                       first + static_cast<uint32_t>(k),
                       {.given = item.scored[k], .top_logprobs = item.scored_top}});
    }
    first += static_cast<uint32_t>(item.tokens.size());
    for (const engine::ChoiceSample& sample : item.samples) {
      asked.push_back({i, first - 1, ToSample(item, sample)});
    }
  }
  return asked;
}

void Take(const Asked& asked, absl::StatusOr<sampling::TokenResult>& chosen,
          engine::ItemResult& result) {
  if (!chosen.ok()) {
    result.status = chosen.status();
  } else if (asked.request.given.has_value()) {
    result.scored.push_back(*std::move(chosen->logprobs));
  } else {
    result.sampled.push_back({chosen->token, std::move(chosen->logprobs)});
  }
}

}  // namespace

StepRunner::StepRunner(LoadedModel& model, const kv::KvView& kv, kv::PieceSeals* seals,
                       uint32_t max_rows)
    : model_(model),
      kv_(kv),
      seals_(seals),
      transformer_(model.config, model.weights, *model.rope, *model.backend,
                   {max_rows, std::min(max_rows, kLogitRows)}) {}

engine::StepResult StepRunner::Run(const engine::Step& step,
                                   const Transformer::LayerStored& layer_stored) {
  engine::StepResult result;
  result.id = step.id;
  result.status = Check(step);
  if (!result.status.ok()) return result;
  for (const kv::BlockRef& ref : step.zero_blocks) {
    model_.backend->ZeroBlock(kv_, ref.group, ref.block);
    if (seals_ != nullptr) seals_->BreakBlock(ref.group, ref.block);
  }
  for (const kv::BlockCopy& copy : step.copy_blocks) {
    model_.backend->CopyBlock(kv_, copy.group, copy.from, copy.to);
    if (seals_ != nullptr) seals_->BreakBlock(copy.group, copy.to);
  }
  transformer_.Forward(TokensOf(step), BatchOf(step), kv_, [&](uint32_t layer) {
    if (seals_ != nullptr) SealLayer(step, layer);
    layer_stored(layer);
  });
  result.items = SampleItems(step);
  return result;
}

void StepRunner::SealLayer(const engine::Step& step, uint32_t layer) {
  const uint32_t block_size = model_.layout.block_size;
  for (const engine::StepItem& item : step.items) {
    const auto& table = item.block_tables[model_.layout.layers[layer].group];
    const size_t end = item.start_position + item.tokens.size();
    // Where sampling begins the prompt ends, and its last block is shipped as it is. A single token
    // is a decode's, which would seal its block again at every step; in the rare case that it is a
    // prompt's, the block is read again when it is shipped.
    const bool ships_last = !item.samples.empty() && item.tokens.size() > 1;
    for (size_t i = item.start_position / block_size; i * block_size < end; ++i) {
      if ((i + 1) * block_size <= end || ships_last) {
        seals_->Seal(kv_, layer, table[i]);
      } else {
        seals_->Break(layer, table[i]);
      }
    }
  }
}

std::vector<engine::ItemResult> StepRunner::SampleItems(const engine::Step& step) {
  std::vector<engine::ItemResult> results(step.items.size());
  const std::vector<Asked> asked = AskedRows(step);
  const size_t round = transformer_.limits().max_logits;
  for (size_t begin = 0; begin < asked.size(); begin += round) {
    const auto some = std::span(asked).subspan(begin, std::min(round, asked.size() - begin));
    std::vector<uint32_t> rows;
    std::vector<kernels::SampleRow> requests;
    for (const Asked& one : some) {
      // Several choices of one row stand side by side: its logits are computed once.
      if (rows.empty() || rows.back() != one.row) rows.push_back(one.row);
      requests.push_back({static_cast<uint32_t>(rows.size()) - 1, one.request});
    }
    auto chosen = model_.backend->Sample(transformer_.Logits(rows), requests);
    for (size_t i = 0; i < some.size(); ++i) Take(some[i], chosen[i], results[some[i].item]);
  }
  return results;
}

absl::Status StepRunner::Check(const engine::Step& step) const {
  uint64_t rows = 0;
  for (const engine::StepItem& item : step.items) {
    absl::Status status = CheckItem(item);
    if (status.ok()) status = CheckTables(item);
    if (!status.ok()) {
      return absl::InternalError("step " + std::to_string(step.id) + ", sequence " +
                                 std::to_string(item.sequence) + ": " +
                                 std::string(status.message()));
    }
    rows += item.tokens.size();
  }
  if (rows == 0 || rows > transformer_.limits().max_rows) {
    return absl::InternalError("step " + std::to_string(step.id) + ": " + std::to_string(rows) +
                               " tokens, not in 1.." +
                               std::to_string(transformer_.limits().max_rows));
  }
  return absl::OkStatus();
}

absl::Status StepRunner::CheckItem(const engine::StepItem& item) const {
  const uint64_t end = uint64_t{item.start_position} + item.tokens.size();
  if (item.tokens.empty()) return absl::InternalError("no tokens");
  if (end > model_.config.context_length) {
    return absl::InternalError("position " + std::to_string(end - 1) + " is past the context");
  }
  for (const TokenId token : item.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= model_.config.vocab_size) {
      return absl::InternalError("token id " + std::to_string(token) + " is out of range");
    }
  }
  return CheckAsked(item);
}

// What is asked of its logits.
absl::Status StepRunner::CheckAsked(const engine::StepItem& item) const {
  const auto in_vocabulary = [this](TokenId token) {
    return token >= 0 && static_cast<uint32_t>(token) < model_.config.vocab_size;
  };
  if (item.scored.size() > item.tokens.size()) return absl::InternalError("scores too many tokens");
  for (const TokenId token : item.scored) {
    if (!in_vocabulary(token)) return absl::InternalError("a scored token id is out of range");
  }
  for (const engine::ChoiceSample& sample : item.samples) {
    for (const sampling::LogitEdit& edit : sample.edits) {
      if (!in_vocabulary(edit.token)) return absl::InternalError("an edited id is out of range");
    }
  }
  return absl::OkStatus();
}

absl::Status StepRunner::CheckTables(const engine::StepItem& item) const {
  const uint64_t end = uint64_t{item.start_position} + item.tokens.size();
  const uint64_t block_size = model_.layout.block_size;
  if (item.block_tables.size() != model_.layout.groups.size()) {
    return absl::InternalError("wrong number of block tables");
  }
  for (const auto& table : item.block_tables) {
    if (table.size() < (end + block_size - 1) / block_size) {
      return absl::InternalError("block table too short");
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::model
