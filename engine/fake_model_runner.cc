#include "engine/fake_model_runner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"
#include "sampling/logit_edits.h"
#include "text/stop.h"

namespace baton::engine {

namespace {

constexpr uint32_t kArenas = 2;

// splitmix64's finalizer.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Slot {
  uint64_t low = 0;
  uint64_t high = 0;
};

// Differs by layer, group, arena, position and token.
Slot SlotOf(uint32_t layer, uint32_t group, uint32_t arena, uint32_t position, TokenId token) {
  const uint64_t place =
      (uint64_t{position} << 32) ^ (uint64_t{layer} << 16) ^ (group << 8) ^ arena;
  const uint64_t low = Mix(place * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(token) + 1);
  return {low, Mix(low)};
}

uint64_t Absorb(uint64_t hash, const Slot& slot) {
  return (hash ^ slot.low) * 0x9e3779b97f4a7c15 + slot.high;
}

uint64_t Absorb(uint64_t hash, const sampling::LogitEdit& edit) {
  const uint64_t bits = (uint64_t{std::bit_cast<uint32_t>(edit.bias)} << 32) |
                        std::bit_cast<uint32_t>(edit.repetition);
  return Absorb(hash, Slot{bits ^ static_cast<uint64_t>(edit.token),
                           Mix(std::bit_cast<uint64_t>(edit.penalty)) + (edit.forbidden ? 1 : 0)});
}

// The first position that the one at `position` sees.
uint32_t FirstSeen(const kv::KvLayout& layout, uint32_t group, uint32_t position) {
  const uint32_t window = layout.groups[group].window;
  return window == 0 || position < window ? 0 : position + 1 - window;
}

// Every row of the item finds a block wherever it looks.
void CheckTables(const kv::KvLayout& layout, const StepItem& item) {
  const auto end = item.start_position + static_cast<uint32_t>(item.tokens.size());
  for (uint32_t group = 0; group < layout.groups.size(); ++group) {
    const uint32_t first = FirstSeen(layout, group, item.start_position);
    for (uint32_t i = first / layout.block_size; i * layout.block_size < end; ++i) {
      BATON_CHECK(item.block_tables[group].at(i) != kv::kNoBlock);
    }
  }
}

TokenId Draw(uint64_t hash, int32_t vocab_size, uint64_t seed, const ChoiceSample& sample) {
  for (const sampling::LogitEdit& edit : sample.edits) hash = Absorb(hash, edit);
  const uint64_t drawn = Mix(hash ^ Mix(seed ^ (uint64_t{sample.choice} << 32)));
  auto token = static_cast<TokenId>(drawn % static_cast<uint64_t>(vocab_size));
  const auto forbidden = [&sample](TokenId id) {
    return std::any_of(
        sample.edits.begin(), sample.edits.end(),
        [id](const sampling::LogitEdit& edit) { return edit.forbidden && edit.token == id; });
  };
  while (forbidden(token)) token = (token + 1) % vocab_size;
  return token;
}

}  // namespace

kv::KvLayout FakeLayout(uint32_t block_size, uint32_t window) {
  const kv::KvArenaSpec arena{kv::KvDtype::kF32, kv::KvOrder::kHeadSlotDim, 1, 4};
  kv::KvLayout layout;
  layout.block_size = block_size;
  layout.groups = {{0}, {window}};
  for (const uint32_t group : {0u, 1u, 0u}) layout.layers.push_back({group, {arena, arena}});
  return layout;
}

TokenId FakeNextToken(const kv::KvLayout& layout, int32_t vocab_size,
                      std::span<const TokenId> tokens, uint64_t seed, const ChoiceSample& sample) {
  uint64_t hash = 0;
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    const uint32_t group = layout.layers[layer].group;
    for (uint32_t arena = 0; arena < kArenas; ++arena) {
      const auto end = static_cast<uint32_t>(tokens.size());
      for (uint32_t p = FirstSeen(layout, group, end - 1); p < end; ++p) {
        hash = Absorb(hash, SlotOf(layer, group, arena, p, tokens[p]));
      }
    }
  }
  return Draw(hash, vocab_size, seed, sample);
}

TokenLogprobs FakeLogprobs(TokenId token, uint32_t top) {
  const auto of = [](TokenId id) { return -static_cast<float>(id + 1) / 64; };
  TokenLogprobs out{of(token), {}};
  for (TokenId id = 0; id < static_cast<TokenId>(top); ++id) out.top.push_back({id, of(id)});
  return out;
}

std::vector<TokenId> FakeContinuation(const kv::KvLayout& layout, const Vocab& vocab,
                                      uint32_t context_length, const DecoderState& state,
                                      uint32_t choice) {
  const size_t prompt = state.prompt.size();
  std::vector<TokenId> all = state.prompt;
  const std::vector<TokenId>& had = state.choices.at(choice).tokens;
  StopMatcher stop(vocab, state.stop);
  sampling::LogitEditor editor(state.sampling, state.prompt);
  ChoiceSample sample{.choice = choice};
  while (all.size() < context_length && all.size() - prompt < state.stop.max_tokens) {
    const size_t index = all.size() - prompt;
    sample.edits = editor.Edits(stop.ForbiddenNext());
    all.push_back(index < had.size()
                      ? had[index]
                      : FakeNextToken(layout, vocab.size(), all, state.sampling.seed, sample));
    editor.Accept(all.back());
    if (stop.Accept(all.back()) != StopReason::kNone) break;
  }
  return std::vector<TokenId>(all.begin() + static_cast<ptrdiff_t>(prompt), all.end());
}

FakeModelRunner::FakeModelRunner(Options options, Executor& executor, kv::KvArena& arena)
    : options_(std::move(options)), executor_(executor), arena_(arena) {
  for (const kv::KvLayerSpec& layer : arena_.layout().layers) {
    BATON_CHECK(layer.arenas.size() == kArenas);
  }
}

void FakeModelRunner::Submit(Step step) {
  BATON_CHECK(!step_.has_value());
  if (options_.on_step != nullptr) options_.on_step(step);
  for (const kv::BlockRef& ref : step.zero_blocks) arena_.ZeroBlock(ref.group, ref.block);
  for (const kv::BlockCopy& copy : step.copy_blocks) CopyBlock(copy);
  size_t tokens = 0;
  for (const StepItem& item : step.items) {
    CheckTables(arena_.layout(), item);
    tokens += item.tokens.size();
  }
  const auto layers = static_cast<int64_t>(arena_.layout().layers.size());
  layer_cost_ = (options_.step_cost + options_.token_cost * static_cast<int64_t>(tokens)) / layers;
  step_ = std::move(step);
  next_ = executor_.PostAfter(layer_cost_, [this] { RunLayer(0); });
}

void FakeModelRunner::RunLayer(uint32_t layer) {
  const uint32_t group = arena_.layout().layers[layer].group;
  const uint32_t block_size = arena_.layout().block_size;
  for (const StepItem& item : step_->items) {
    for (uint32_t i = 0; i < item.tokens.size(); ++i) {
      const uint32_t p = item.start_position + i;
      const kv::BlockId block = item.block_tables[group][p / block_size];
      for (uint32_t arena = 0; arena < kArenas; ++arena) {
        const Slot slot = SlotOf(layer, group, arena, p, item.tokens[i]);
        std::memcpy(arena_.Piece(layer, arena, block).data() + p % block_size * sizeof slot, &slot,
                    sizeof slot);
      }
    }
  }
  if (layer + 1 < arena_.layout().layers.size()) {
    next_ = executor_.PostAfter(layer_cost_, [this, layer] { RunLayer(layer + 1); });
    listener_->OnLayerReady(step_->id, layer);
    return;
  }
  listener_->OnLayerReady(step_->id, layer);
  const Step step = std::move(*step_);
  step_.reset();
  StepResult result{.id = step.id, .status = absl::OkStatus(), .items = {}};
  for (const StepItem& item : step.items) result.items.push_back(Finish(item));
  listener_->OnStepDone(std::move(result));
}

ItemResult FakeModelRunner::Finish(const StepItem& item) const {
  if (options_.nan != nullptr && options_.nan(item)) {
    return {.status = absl::InternalError("a logit is NaN")};
  }
  ItemResult result{.status = absl::OkStatus(), .sampled = Sample(item)};
  for (const TokenId token : item.scored) {
    result.scored.push_back(FakeLogprobs(token, item.scored_top));
  }
  return result;
}

void FakeModelRunner::CopyBlock(const kv::BlockCopy& copy) {
  for (const uint32_t layer : arena_.layout().LayersOf(copy.group)) {
    for (uint32_t arena = 0; arena < kArenas; ++arena) {
      const std::span<const std::byte> from = arena_.Piece(layer, arena, copy.from);
      std::memcpy(arena_.Piece(layer, arena, copy.to).data(), from.data(), from.size());
    }
  }
}

std::vector<SampledToken> FakeModelRunner::Sample(const StepItem& item) const {
  std::vector<SampledToken> sampled;
  if (item.samples.empty()) return sampled;
  const uint64_t hash = HashOfBlocks(item);
  for (const ChoiceSample& sample : item.samples) {
    sampled.push_back({.token = Draw(hash, options_.vocab_size, item.sampling.seed, sample)});
    if (!item.top_logprobs.has_value()) continue;
    sampled.back().logprobs = FakeLogprobs(sampled.back().token, *item.top_logprobs);
  }
  return sampled;
}

uint64_t FakeModelRunner::HashOfBlocks(const StepItem& item) const {
  const kv::KvLayout& layout = arena_.layout();
  const uint32_t end = item.start_position + static_cast<uint32_t>(item.tokens.size());
  uint64_t hash = 0;
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    const uint32_t group = layout.layers[layer].group;
    const std::vector<kv::BlockId>& table = item.block_tables[group];
    for (uint32_t arena = 0; arena < kArenas; ++arena) {
      for (uint32_t p = FirstSeen(layout, group, end - 1); p < end; ++p) {
        const std::byte* const piece =
            arena_.Piece(layer, arena, table[p / layout.block_size]).data();
        Slot slot;
        std::memcpy(&slot, piece + p % layout.block_size * sizeof slot, sizeof slot);
        hash = Absorb(hash, slot);
      }
    }
  }
  return hash;
}

}  // namespace baton::engine
