#include "engine/sequence.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kv/block_demand.h"
#include "kv/block_fork.h"
#include "sampling/logit_edits.h"
#include "text/stop.h"

namespace baton::engine {

namespace {

// Blocks of every group for these tokens, of which the first `most` may be found in the cache.
struct Wanted {
  std::vector<TokenId> tokens;
  uint32_t most = 0;
  kv::BlockPlaces places;
};

// Empty: not all of them fit.
using Taken = std::vector<kv::CachedLease>;

Taken TakeNew(const std::vector<Wanted>& wanted, const BlockSource& from) {
  const size_t groups = from.pool.num_groups();
  std::vector<uint32_t> all(groups, from.spare);
  std::vector<std::vector<uint32_t>> blocks;
  for (const Wanted& one : wanted) {
    blocks.push_back(from.windows.Needed(one.places, 0, groups));
    for (size_t g = 0; g < groups; ++g) all[g] += blocks.back()[g];
  }
  if (!from.pool.FitsNow(all)) return {};
  Taken taken;
  for (size_t i = 0; i < wanted.size(); ++i) {
    auto lease = from.pool.Take(blocks[i]);
    BATON_CHECK(lease.ok());
    from.windows.Place(wanted[i].places, 0, *lease);
    taken.push_back({*std::move(lease), {}});
  }
  return taken;
}

Taken TakeAll(const std::vector<Wanted>& wanted, const std::string& cache_namespace,
              const BlockSource& from) {
  if (cache_namespace.empty()) return TakeNew(wanted, from);
  std::vector<kv::PrefixQuery> queries;
  std::vector<std::vector<uint32_t>> blocks;
  for (const Wanted& one : wanted) {
    queries.push_back(*from.cache->Query(cache_namespace, one.tokens, one.most));
    blocks.emplace_back(from.pool.num_groups(), one.places.total());
  }
  std::vector<kv::PrefixCache::Want> wants;
  for (size_t i = 0; i < wanted.size(); ++i) wants.push_back({queries[i], blocks[i]});
  absl::StatusOr<Taken> taken = from.cache->TakeAll(wants, from.spare);
  return taken.ok() ? *std::move(taken) : Taken{};
}

}  // namespace

Sequence::Sequence(SequenceId id, SequenceMode mode, const DecoderState& state, Time admitted_at,
                   kv::BlockTable blocks, kv::CacheChain chain, const Vocab& vocab,
                   uint32_t context_length)
    : id_(id),
      mode_(mode),
      sampling_(state.sampling),
      logprobs_(state.logprobs),
      scores_prompt_(state.logprobs.prompt.has_value() && state.prompt_logprobs.empty()),
      admitted_at_(admitted_at),
      prompt_(state.prompt),
      block_size_(blocks.block_size()),
      cache_namespace_(chain.open ? chain.cache_namespace : ""),
      parts_(static_cast<uint32_t>(state.choices.size())),
      blocks_(std::move(blocks)),
      chain_(std::move(chain)) {
  StopMatcher stop(vocab, state.stop);
  sampling::LogitEditor editor(state.sampling, state.prompt);
  const auto n = static_cast<uint32_t>(state.choices.size());
  Choice::Place place{id, 0, static_cast<uint32_t>(prompt_.size()), state.stop.max_tokens,
                      context_length};
  choices_.reserve(n);
  for (; place.index + 1 < n; ++place.index) choices_.emplace_back(place, stop, editor);
  choices_.emplace_back(place, std::move(stop), std::move(editor));
}

bool Sequence::over() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.finished(); });
}

absl::StatusOr<std::vector<TokenEvent>> Sequence::Replay(const std::vector<ChoiceState>& came) {
  std::vector<TokenEvent> events;
  for (Choice& choice : choices_) {
    BATON_ASSIGN_OR_RETURN(std::vector<TokenEvent> more, choice.Replay(came[choice.index()]));
    std::move(more.begin(), more.end(), std::back_inserter(events));
  }
  if (!events.empty()) events.back().last = over();
  return events;
}

std::vector<TokenId> Sequence::Chunk(uint32_t length) const {
  BATON_CHECK(length <= pending());
  const auto begin = prompt_.begin() + computed();
  return std::vector<TokenId>(begin, begin + length);
}

std::vector<TokenId> Sequence::Chunk(const Choice& choice, uint32_t length) const {
  BATON_CHECK(length <= choice.pending());
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < length; ++i) tokens.push_back(TokenAt(choice, choice.computed() + i));
  return tokens;
}

TokenId Sequence::TokenAt(const Choice& choice, uint32_t position) const {
  return position < prompt_.size() ? prompt_[position] : choice.TokenAt(position);
}

std::vector<TokenId> Sequence::Scored(uint32_t length) const {
  const uint32_t end = std::min(computed() + length + 1, static_cast<uint32_t>(prompt_.size()));
  if (!scoring() || end <= computed() + 1) return {};
  return std::vector<TokenId>(prompt_.begin() + computed() + 1, prompt_.begin() + end);
}

std::vector<TokenLogprobs> Sequence::TakeScored(uint32_t position,
                                                std::vector<TokenLogprobs> scored) {
  const uint32_t again = std::min(scored_ + 1 - position, static_cast<uint32_t>(scored.size()));
  scored.erase(scored.begin(), scored.begin() + again);
  scored_ += static_cast<uint32_t>(scored.size());
  return scored;
}

std::vector<ChoiceSample> Sequence::FirstSamples() const {
  std::vector<ChoiceSample> samples;
  for (const Choice& choice : choices_) {
    if (choice.sampled() == 0) samples.push_back(choice.NextSample());
  }
  return samples;
}

void Sequence::CompletePrompt() {
  BATON_CHECK(in_prompt() && pending() == 0);
  blocks_.SetState(kv::BlockState::kLive);
  if (mode_ == SequenceMode::kPrefillOnly) {
    phase_ = Phase::kHeld;
  } else {
    Fork();
  }
}

void Sequence::StoreFullBlocks(kv::PrefixCache& cache) {
  const uint32_t size = blocks_.block_size();
  for (uint32_t i = chain_.blocks; chain_.open && (i + 1) * size <= computed(); ++i) {
    cache.Store(chain_, std::span(prompt_).subspan(i * size, size), blocks_.lease());
  }
}

void Sequence::StoreFullBlocks(kv::PrefixCache& cache, Choice& choice) {
  kv::CacheChain& chain = choice.chain();
  const uint32_t size = choice.table().block_size();
  std::vector<TokenId> tokens;
  for (uint32_t i = chain.blocks; chain.open && (i + 1) * size <= choice.computed(); ++i) {
    tokens.clear();
    for (uint32_t p = i * size; p < (i + 1) * size; ++p) tokens.push_back(TokenAt(choice, p));
    cache.Store(chain, tokens, choice.table().lease());
  }
}

void Sequence::Fork() {
  phase_ = Phase::kForked;
  BATON_CHECK(sampled_everywhere());
  const std::vector<Choice*> live = Live();
  kv::ForkedBlocks forked =
      kv::ForkBlocks(std::move(blocks_), parts_, static_cast<uint32_t>(live.size()));
  for (size_t i = 0; i < live.size(); ++i) live[i]->Start(std::move(forked.tables[i]), chain_);
  copies_ = std::move(forked.copies);
}

std::vector<Choice*> Sequence::Live() {
  std::vector<Choice*> live;
  for (Choice& choice : choices_) {
    if (!choice.finished()) live.push_back(&choice);
  }
  return live;
}

bool Sequence::sampled_everywhere() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.sampled() > 0; });
}

uint64_t Sequence::backlog() const {
  uint64_t tokens = 0;
  if (in_prompt()) tokens = pending();
  if (preempted()) tokens = prompt_.size();
  for (const Choice& choice : choices_) {
    if (choice.finished()) continue;
    tokens += phase_ == Phase::kForked ? choice.pending() : choice.sampled();
  }
  return tokens;
}

uint32_t Sequence::growing() const {
  if (mode_ == SequenceMode::kPrefillOnly || preempted()) return 0;
  return static_cast<uint32_t>(
      std::count_if(choices_.begin(), choices_.end(), [this](const Choice& choice) {
        const uint64_t held = in_prompt() ? choice.slots_at_first(block_size_) : choice.slots();
        return !choice.finished() && choice.most_slots() > held;
      }));
}

void Sequence::GiveWay() {
  BATON_CHECK(mode_ == SequenceMode::kGenerate && !preempted());
  backlog_then_ = backlog();
  phase_ = Phase::kPreempted;
  blocks_ = kv::BlockTable();
  chain_ = {};
  copies_.clear();
  for (Choice& choice : choices_) choice.Start({}, {});
  started = false;
}

bool Sequence::Resume(const BlockSource& from) {
  BATON_CHECK(preempted());
  return PromptIsThere(from.cache) ? ResumeChoices(from) : ResumePrompt(from);
}

// The choices go on at once, each with what is found of its own, when nothing is wanted of the
// prompt's rows and there is nothing to be computed that they could share.
bool Sequence::PromptIsThere(const kv::PrefixCache* cache) const {
  if (!sampled_everywhere() || scoring()) return false;
  const auto live = std::count_if(choices_.begin(), choices_.end(),
                                  [](const Choice& choice) { return !choice.finished(); });
  const size_t shared = prompt_.size() / block_size_ * block_size_;
  if (live == 1 || shared == 0) return true;
  if (cache == nullptr) return false;
  const auto query = cache->Query(cache_namespace_, prompt_, shared);
  return query.has_value() && cache->HeldTokens(*query) == shared;
}

bool Sequence::ResumePrompt(const BlockSource& from) {
  const std::vector<Choice*> live = Live();
  const auto prompt = static_cast<uint32_t>(prompt_.size());
  const uint32_t shared = prompt / block_size_;
  uint32_t slots = prompt;
  for (const Choice* choice : live) slots = std::max(slots, choice->slots_at_first(block_size_));
  const auto own = static_cast<uint32_t>(kv::BlocksFor(slots, block_size_)) - shared;
  const auto parts = static_cast<uint32_t>(live.size());
  uint32_t most = prompt - 1;
  if (sampled_everywhere()) most = prompt;
  if (scoring()) most = scored_;
  std::vector<Wanted> wanted = {{prompt_, most, {shared, parts, own}}};
  Taken taken = TakeAll(wanted, cache_namespace_, from);
  if (taken.empty()) return false;
  phase_ = Phase::kPrompt;
  parts_ = parts;
  chain_ = std::move(taken.front().chain);
  blocks_ =
      kv::BlockTable(std::move(taken.front().lease), block_size_, chain_.blocks * block_size_);
  return true;
}

bool Sequence::ResumeChoices(const BlockSource& from) {
  const std::vector<Choice*> live = Live();
  std::vector<Wanted> wanted;
  for (const Choice* choice : live) {
    const auto blocks = kv::BlocksFor(choice->slots_at_first(block_size_), block_size_);
    const kv::BlockPlaces places{.shared = static_cast<uint32_t>(blocks)};
    wanted.push_back({TokensOf(*choice), choice->slots_now() - 1, places});
  }
  Taken taken = TakeAll(wanted, cache_namespace_, from);
  if (taken.empty()) return false;
  phase_ = Phase::kForked;
  for (size_t i = 0; i < live.size(); ++i) {
    kv::CacheChain& chain = taken[i].chain;
    kv::BlockTable table(std::move(taken[i].lease), block_size_, chain.blocks * block_size_);
    live[i]->Start(std::move(table), std::move(chain));
  }
  return true;
}

std::vector<TokenId> Sequence::TokensOf(const Choice& choice) const {
  std::vector<TokenId> tokens = prompt_;
  for (uint32_t p = static_cast<uint32_t>(prompt_.size()); p < choice.slots_now(); ++p) {
    tokens.push_back(choice.TokenAt(p));
  }
  return tokens;
}

}  // namespace baton::engine
