#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "kv/block_fork.h"
#include "kv/block_table.h"

namespace baton::engine {

namespace {

absl::Status Bad(const std::string& text) { return absl::InvalidArgumentError(text); }

uint64_t SlotsOf(const kv::BlockTable& table, const NewSequence& sequence) {
  const auto choices = static_cast<uint32_t>(sequence.state.choices.size());
  const bool forks = sequence.mode == SequenceMode::kGenerate;
  return kv::ForkedSlots(table, sequence.state.prompt.size(), forks ? choices : 1);
}

// Room for the item's tokens in their blocks.
void UseBlocks(kv::BlockTable& table, kv::BlockState state, StepItem& item, Step& step) {
  const uint32_t end = item.start_position + static_cast<uint32_t>(item.tokens.size());
  const std::vector<kv::BlockRef> touched = table.Extend(end, state);
  step.zero_blocks.insert(step.zero_blocks.end(), touched.begin(), touched.end());
  item.block_tables = table.Prefix(end);
}

kv::BlockTable& TableOf(Sequence& sequence, const ScheduledItem& item) {
  return sequence.in_prompt() ? sequence.blocks() : sequence.choices()[item.choice].table();
}

StepOutlook OutlookOf(const std::vector<Candidate>& candidates) {
  StepOutlook outlook;
  for (const Candidate& c : candidates) {
    if (c.decoding) {
      outlook.decodes.AddDecode(c.position);
    } else {
      outlook.waiting += c.rows;
      if (c.started) outlook.prompt_start = std::max(outlook.prompt_start, c.position);
    }
  }
  return outlook;
}

StepWork WorkOf(const std::vector<ScheduledItem>& plan) {
  StepWork work;
  for (const ScheduledItem& item : plan) {
    if (item.decoding) {
      work.AddDecode(item.position);
    } else {
      work.AddPrompt(item.position, item.tokens);
    }
  }
  return work;
}

}  // namespace

absl::Status EngineOptions::Validate() const {
  if (step_tokens == 0) return Bad("step_tokens must be at least 1");
  if (max_running == 0) return Bad("max_running must be at least 1");
  if (context_length < 2) return Bad("context_length must be at least 2");
  if (block_size < 16 || block_size > 256 || (block_size & (block_size - 1)) != 0) {
    return Bad("block_size must be a power of two from 16 to 256, got " +
               std::to_string(block_size));
  }
  return absl::OkStatus();
}

Engine::Engine(const EngineOptions& options, const Environment& environment)
    : options_(options),
      env_(environment),
      planner_({options.step_tokens, options.planned_step}),
      room_({env_.pool, env_.cache, env_.others, env_.metrics, options_.windows, sequences_}) {
  BATON_CHECK(options.Validate().ok());
  BATON_CHECK(!options.windows.any() || env_.cache == nullptr);
  env_.runner.SetListener(this);
  UpdateGauges();
}

absl::StatusOr<SequenceId> Engine::Add(NewSequence sequence) {
  BATON_RETURN_IF_ERROR(
      CheckNewSequence(sequence, {env_.vocab, options_.context_length, options_.block_size,
                                  env_.pool.capacity(), options_.windows}));
  kv::BlockTable table(std::move(sequence.lease), options_.block_size, sequence.filled);
  if (SlotsOf(table, sequence) < sequence.state.prompt.size()) {
    return absl::InvalidArgumentError("lease: " + std::to_string(SlotsOf(table, sequence)) +
                                      " slots, the prompt needs " +
                                      std::to_string(sequence.state.prompt.size()));
  }
  BATON_CHECK(uint64_t{sequence.chain.blocks} * options_.block_size <= sequence.filled);
  BATON_CHECK(!sequence.chain.open || env_.cache != nullptr);
  table.SetState(kv::BlockState::kFilling);
  const SequenceId id = next_sequence_++;
  auto added = std::make_unique<Sequence>(
      id, sequence.mode, sequence.state, env_.executor.Now() - sequence.state.age, std::move(table),
      std::move(sequence.chain), env_.vocab, options_.context_length);
  BATON_ASSIGN_OR_RETURN(std::vector<TokenEvent> tokens, added->Replay(sequence.state.choices));
  if (!tokens.empty() || !sequence.state.prompt_logprobs.empty()) {
    replays_.push_back({id, std::move(sequence.state.prompt_logprobs), std::move(tokens)});
  }
  if (env_.cache != nullptr) added->StoreFullBlocks(*env_.cache);  // what came with it
  if (added->pending() == 0) added->CompletePrompt();
  if (sequence.deadline.has_value()) {
    added->deadline = env_.executor.PostAt(*sequence.deadline, [this, id] {
      Fail(id, absl::DeadlineExceededError("the deadline passed while the sequence ran"));
      env_.listener.OnStepEnd();
      UpdateGauges();
    });
  }
  sequences_.emplace(id, std::move(added));
  joined_ = true;
  UpdateGauges();
  Poke();
  return id;
}

void Engine::Remove(SequenceId sequence) {
  sequences_.erase(sequence);
  UpdateGauges();
  Poke();
}

void Engine::SetWaitingForRoom(uint32_t requests) {
  waiting_for_room_ = requests;
  UpdateGauges();
}

EngineLoad Engine::Load() const {
  EngineLoad load{.waiting = waiting_for_room_, .step_times = planner_.model().times()};
  uint32_t in_prompt = 0;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->held() || sequence->over()) continue;
    ++(sequence->started ? load.running : load.waiting);
    if (sequence->preempted()) {
      ++load.preempted;
      load.queued_prefill_tokens += sequence->backlog();
      continue;
    }
    if (sequence->in_prompt()) {
      load.queued_prefill_tokens += sequence->pending();
      in_prompt += static_cast<uint32_t>(sequence->choices().size());
    }
    for (const Choice& choice : sequence->choices()) {
      if (choice.finished()) continue;
      if (sequence->started) ++load.choices;
      if (sequence->in_prompt()) continue;
      if (!choice.decoding()) {
        load.queued_prefill_tokens += choice.pending();
      } else if (sequence->started) {
        load.decodes.AddDecode(choice.computed());
      }
    }
  }
  load.prefill_tokens_per_second = planner_.PromptTokensPerSecond({load.decodes, in_prompt});
  load.prompt_steps = planner_.model().prompt_steps();
  load.decode_step_seconds = planner_.DecodeStepSeconds(load.decodes);
  return load;
}

void Engine::UpdateGauges() {
  const EngineLoad load = Load();
  env_.metrics.requests_running.Set(load.running);
  env_.metrics.requests_waiting.Set(load.waiting);
  env_.metrics.requests_preempted.Set(load.preempted);
  env_.metrics.SetBlocks(env_.pool.Counts());
}

void Engine::Poke() {
  if (turn_pending_) return;
  turn_pending_ = true;
  turn_ = env_.executor.PostAt(env_.executor.Now(), [this] { Turn(); });
}

void Engine::Turn() {
  turn_pending_ = false;
  if (EmitReplays()) env_.listener.OnStepEnd();
  if (!in_flight_.has_value()) StartStep();
  UpdateGauges();
}

bool Engine::EmitReplays() {
  std::vector<Replay> replays = std::exchange(replays_, {});
  for (Replay& replay : replays) {
    if (Find(replay.sequence) != nullptr && !replay.prompt_logprobs.empty()) {
      env_.listener.OnPromptLogprobs(replay.sequence, 1, std::move(replay.prompt_logprobs));
    }
    Emit(replay.tokens);
  }
  return !replays.empty();
}

std::vector<Candidate> Engine::Candidates() const {
  std::vector<Candidate> out;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->held() || sequence->over() || sequence->preempted()) continue;
    Candidate candidate{
        .sequence = id, .admitted_at = sequence->admitted_at(), .started = sequence->started};
    if (sequence->in_prompt()) {
      const bool forks = sequence->mode() == SequenceMode::kGenerate;
      candidate.position = sequence->computed();
      candidate.pending = sequence->pending();
      candidate.last_step = sequence->choices().front().last_step;
      candidate.rows = forks ? static_cast<uint32_t>(sequence->choices().size()) : 1;
      out.push_back(candidate);
      continue;
    }
    for (const Choice& choice : sequence->choices()) {
      if (choice.finished() || !choice.has_room()) continue;
      candidate.choice = choice.index();
      candidate.position = choice.computed();
      candidate.pending = choice.pending();
      candidate.decoding = choice.decoding();
      candidate.last_step = choice.last_step;
      out.push_back(candidate);
    }
  }
  return out;
}

void Engine::SettleRoom() {
  const bool waited = room_.waits();
  room_.Settle();
  if (waited && !room_.waits() && env_.on_room != nullptr) env_.on_room();
}

const kv::GroupBlocks& Engine::Blocks(SequenceId sequence) {
  Sequence* const found = Find(sequence);
  BATON_CHECK(found != nullptr && found->mode() == SequenceMode::kPrefillOnly);
  return found->blocks().blocks();
}

std::optional<uint32_t> Engine::Spare() const {
  if (room_.waits()) return std::nullopt;
  return room_.Spare();
}

std::optional<uint32_t> Engine::OnBlocksFreed() {
  if (room_.waits()) Poke();
  return Spare();
}

void Engine::StartStep() {
  SettleRoom();
  std::vector<Candidate> candidates = Candidates();
  const StepOutlook outlook = OutlookOf(candidates);
  if (Rests(outlook)) return;
  StepBudget budget = planner_.Budget(outlook);
  budget.max_running = options_.max_running;
  std::vector<ScheduledItem> plan = PlanStep(std::move(candidates), budget);
  if (plan.empty()) return;
  const StepWork work = WorkOf(plan);
  Step step = BuildStep(plan);
  step_started_ = env_.executor.Now();
  joined_ = false;
  in_flight_ = InFlight{step.id, std::move(plan), work, PinBlocks(step), step_started_};
  env_.runner.Submit(std::move(step));
}

// Only with decodes and nothing else to do, not even for somebody who has just come.
bool Engine::Rests(StepOutlook outlook) {
  const Time now = env_.executor.Now();
  Time due = now;
  if (env_.coming != nullptr && !joined_ && !room_.waits() && outlook.waiting == 0) {
    const uint32_t rows = std::min(outlook.decodes.decode_rows, options_.max_running);
    outlook.waiting = std::min(env_.coming(), options_.max_running - rows);
    due = step_started_ + planner_.Interval(outlook);
  }
  if (due > now) {
    if (!rests_since_.has_value()) rests_since_ = now;
    rest_ = env_.executor.PostAt(due, [this] { Poke(); });
    return true;
  }
  rest_.Cancel();
  if (rests_since_.has_value()) {
    env_.metrics.rest_seconds.Increment(ToSeconds(now - *std::exchange(rests_since_, {})));
  }
  return false;
}

kv::BlockPin Engine::PinBlocks(const Step& step) {
  kv::GroupBlocks pinned(env_.pool.num_groups());
  for (const StepItem& item : step.items) {
    for (size_t g = 0; g < pinned.size(); ++g) {
      const std::vector<kv::BlockId>& table = item.block_tables[g];
      pinned[g].insert(pinned[g].end(), table.begin(), table.end());
    }
  }
  for (const kv::BlockCopy& copy : step.copy_blocks) {
    pinned[copy.group].push_back(copy.from);
    pinned[copy.group].push_back(copy.to);
  }
  return env_.pool.Pin(pinned);
}

Step Engine::BuildStep(const std::vector<ScheduledItem>& plan) {
  Step step{.id = next_step_++};
  for (const ScheduledItem& scheduled : plan) {
    Sequence& sequence = *Find(scheduled.sequence);
    sequence.started = true;
    step.items.push_back(sequence.in_prompt() ? PromptItem(sequence, scheduled, step)
                                              : ChoiceItem(sequence, scheduled, step));
  }
  return step;
}

StepItem Engine::PromptItem(Sequence& sequence, const ScheduledItem& scheduled, Step& step) {
  for (Choice& choice : sequence.choices()) choice.last_step = step.id;
  StepItem item{.sequence = scheduled.sequence,
                .tokens = sequence.Chunk(scheduled.tokens),
                .start_position = sequence.computed(),
                .sampling = sequence.sampling(),
                .scored = sequence.Scored(scheduled.tokens),
                .scored_top = sequence.logprobs().prompt.value_or(0)};
  if (scheduled.sample) {
    item.samples = sequence.FirstSamples();
    item.top_logprobs = sequence.logprobs().output;
  }
  UseBlocks(sequence.blocks(), kv::BlockState::kFilling, item, step);
  return item;
}

StepItem Engine::ChoiceItem(Sequence& sequence, const ScheduledItem& scheduled, Step& step) {
  Choice& choice = sequence.choices()[scheduled.choice];
  choice.last_step = step.id;
  StepItem item{.sequence = scheduled.sequence,
                .tokens = sequence.Chunk(choice, scheduled.tokens),
                .start_position = choice.computed(),
                .sampling = sequence.sampling()};
  if (scheduled.sample) {
    item.samples.push_back(choice.NextSample());
    item.top_logprobs = sequence.logprobs().output;
  }
  UseBlocks(choice.table(), kv::BlockState::kLive, item, step);
  for (const kv::BlockCopy& copy : sequence.TakeCopies()) step.copy_blocks.push_back(copy);
  return item;
}

void Engine::OnLayerReady(StepId step, uint32_t layer) {
  BATON_CHECK(in_flight_.has_value() && in_flight_->id == step);
  for (const ScheduledItem& item : in_flight_->items) {
    const Sequence* const sequence = Find(item.sequence);
    if (sequence == nullptr || sequence->mode() != SequenceMode::kPrefillOnly) continue;
    env_.listener.OnLayerReady(item.sequence, layer, sequence->computed());
  }
}

void Engine::OnStepDone(StepResult result) {
  BATON_CHECK(in_flight_.has_value() && in_flight_->id == result.id);
  const InFlight step = std::move(*in_flight_);
  in_flight_.reset();
  RecordStep(step, result.status.ok());
  if (result.status.ok()) BATON_CHECK(result.items.size() == step.items.size());
  for (size_t i = 0; i < step.items.size(); ++i) {
    FinishItem(step.items[i], result.status.ok() ? std::move(result.items[i])
                                                 : ItemResult{.status = result.status});
  }
  env_.listener.OnStepEnd();
  Poke();
}

void Engine::FinishItem(const ScheduledItem& item, ItemResult result) {
  Sequence* sequence = Find(item.sequence);
  if (sequence == nullptr) return;  // removed while the step ran
  if (!result.status.ok()) return Fail(item.sequence, result.status);
  StoreFullBlocks(*sequence, item);
  TableOf(*sequence, item).Slide(options_.windows);
  if (!result.scored.empty()) {
    TellScored(*sequence, sequence->computed() - item.tokens + 1, std::move(result.scored));
    sequence = Find(item.sequence);
    if (sequence == nullptr) return;  // removed by whom was told
  }
  if (!item.sample) return;
  if (sequence->in_prompt()) return FinishPrompt(*sequence, std::move(result));
  SampledToken& sampled = result.sampled.front();
  TokenEvent event =
      sequence->choices()[item.choice].Accept(sampled.token, std::move(sampled.logprobs));
  event.last = sequence->over();
  env_.metrics.generation_tokens.Increment();
  Emit(event);
}

void Engine::TellScored(Sequence& sequence, uint32_t position, std::vector<TokenLogprobs> scored) {
  const auto end = position + static_cast<uint32_t>(scored.size());
  scored = sequence.TakeScored(position, std::move(scored));
  if (scored.empty()) return;
  const auto first = end - static_cast<uint32_t>(scored.size());
  env_.listener.OnPromptLogprobs(sequence.id(), first, std::move(scored));
}

void Engine::StoreFullBlocks(Sequence& sequence, const ScheduledItem& item) {
  if (env_.cache == nullptr) return;
  if (sequence.in_prompt()) {
    sequence.StoreFullBlocks(*env_.cache);
  } else {
    sequence.StoreFullBlocks(*env_.cache, sequence.choices()[item.choice]);
  }
}

void Engine::FinishPrompt(Sequence& sequence, ItemResult result) {
  std::vector<TokenEvent> events;
  for (Choice& choice : sequence.choices()) {
    if (choice.sampled() > 0) continue;  // it came with tokens
    SampledToken& sampled = result.sampled[events.size()];
    events.push_back(choice.Accept(sampled.token, std::move(sampled.logprobs)));
  }
  env_.metrics.generation_tokens.Increment(static_cast<double>(events.size()));
  sequence.CompletePrompt();
  if (!events.empty()) events.back().last = sequence.over();
  Emit(events);
}

void Engine::Emit(const std::vector<TokenEvent>& events) {
  for (const TokenEvent& event : events) {
    if (Find(event.sequence) != nullptr) Emit(event);  // else removed by whom was told
  }
}

void Engine::Emit(const TokenEvent& event) {
  const Sequence* const sequence = Find(event.sequence);
  if (event.last && sequence->mode() == SequenceMode::kGenerate) sequences_.erase(event.sequence);
  env_.listener.OnToken(event);
}

void Engine::Fail(SequenceId id, const absl::Status& status) {
  // The deadline's own timer may be running: the sequence dies after the call.
  const auto node = sequences_.extract(id);
  if (!node.empty()) env_.listener.OnSequenceFailed(id, status);
  Poke();
}

void Engine::RecordStep(const InFlight& step, bool ran) {
  const Duration took = env_.executor.Now() - step.started;
  env_.metrics.prompt_tokens.Increment(step.work.prompt_tokens);
  env_.metrics.step_seconds.Observe(ToSeconds(took));
  if (!ran) return;
  const double predicted = planner_.model().Predict(step.work);
  if (predicted > 0) env_.metrics.step_prediction_ratio.Observe(ToSeconds(took) / predicted);
  planner_.Record(step.work, took);
}

Sequence* Engine::Find(SequenceId id) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : it->second.get();
}

}  // namespace baton::engine
