#include "benchmarks/engine_driver.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>
#include <utility>

#include "common/metrics.h"
#include "common/status_macros.h"
#include "engine/engine_metrics.h"
#include "kv/block_demand.h"

namespace baton::benchmarks {
namespace {

std::vector<TokenId> SomeTokens(uint32_t first, uint32_t count, uint32_t vocab_size) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>((first + i) * 7919u % vocab_size));
  }
  return tokens;
}

std::vector<uint32_t> BlocksPerGroup(const kv::KvArena& arena) {
  std::vector<uint32_t> blocks;
  for (uint32_t g = 0; g < arena.layout().groups.size(); ++g) blocks.push_back(arena.blocks(g));
  return blocks;
}

uint64_t PositionBytes(const kv::KvLayout& layout) {
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < layout.groups.size(); ++g) bytes += layout.BlockBytes(g);
  return bytes / layout.block_size;
}

DecoderState StateOf(const BenchSequence& sequence, uint32_t index, uint32_t vocab_size) {
  DecoderState state;
  state.prompt = SomeTokens(index * 4099, sequence.prompt, vocab_size);
  state.sampling = sequence.sampling;
  state.stop.max_tokens = sequence.max_tokens;
  state.stop.ignore_eos = true;
  state.choices.resize(sequence.choices);
  if (sequence.filled) {
    for (ChoiceState& choice : state.choices) choice.tokens = {1};
  }
  return state;
}

}  // namespace

struct EngineDriver::Current {
  Current(const std::vector<BenchSequence>& wanted, const RunOptions& run_options)
      : sequences(wanted), options(run_options), left(wanted.size()) {
    timeline.sequences.resize(wanted.size());
  }

  double Seconds(const Executor& executor) const { return ToSeconds(executor.Now() - started); }

  const std::vector<BenchSequence>& sequences;
  const RunOptions& options;
  MetricsRegistry registry;
  engine::EngineMetrics metrics{registry};
  std::unique_ptr<engine::Engine> engine;
  std::vector<TimerHandle> arrivals;
  std::deque<size_t> waiting;  // arrived, not in the engine
  std::map<engine::SequenceId, size_t> index;
  Time started{};
  Timeline timeline;
  uint32_t tokens = 0;  // since the last step's end
  size_t running = 0;   // in the engine
  size_t left;          // that have not ended
  absl::Status status;
  bool is_done = false;
  std::promise<void> done;
};

absl::StatusOr<std::unique_ptr<EngineDriver>> EngineDriver::Create(model::LoadedModel& model,
                                                                   const Vocab& vocab,
                                                                   const Options& options) {
  kv::KvArena::Options arena_options;
  arena_options.blocks.assign(
      model.layout.groups.size(),
      static_cast<uint32_t>(kv::BlocksFor(options.positions, model.layout.block_size)));
  arena_options.sealed = true;  // as a prefill worker's: what sealing costs belongs to the figures
  BATON_ASSIGN_OR_RETURN(auto arena, kv::KvArena::Create(model.layout, arena_options));
  return std::unique_ptr<EngineDriver>(new EngineDriver(model, vocab, std::move(arena), options));
}

EngineDriver::EngineDriver(model::LoadedModel& model, const Vocab& vocab,
                           std::unique_ptr<kv::KvArena> arena, const Options& options)
    : model_(model),
      vocab_(vocab),
      options_(options),
      arena_(std::move(arena)),
      work_(*model.file, model.config, PositionBytes(model.layout)),
      pool_(BlocksPerGroup(*arena_)),
      loop_(EventLoop::Options{}) {
  loop_.Start();
  OnLoop([this] {
    runner_ = std::make_unique<model::ModelRunner>(
        model_, arena_->view(), loop_,
        model::ModelRunner::Options{options_.max_rows, arena_->seals()});
  });
}

EngineDriver::~EngineDriver() {
  OnLoop([this] { runner_.reset(); });
  loop_.Stop();
}

void EngineDriver::OnLoop(const std::function<void()>& task) {
  std::promise<void> ran;
  loop_.Post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

absl::StatusOr<Timeline> EngineDriver::Run(const std::vector<BenchSequence>& sequences,
                                           const RunOptions& options) {
  if (sequences.empty()) return absl::InvalidArgumentError("no sequence");
  if (options.step_tokens > options_.max_rows) {
    return absl::InvalidArgumentError("step_tokens: more than the largest step");
  }
  absl::Status status;
  std::future<void> done;
  OnLoop([&] {
    current_ = std::make_unique<Current>(sequences, options);
    done = current_->done.get_future();
    status = Begin(sequences, options);
  });
  if (status.ok()) done.wait();
  std::unique_ptr<Current> ran;
  OnLoop([&] {
    current_->engine.reset();
    ran = std::move(current_);
  });
  BATON_RETURN_IF_ERROR(status);
  BATON_RETURN_IF_ERROR(ran->status);
  AddWork(sequences, ran->timeline);
  return std::move(ran->timeline);
}

absl::Status EngineDriver::Begin(const std::vector<BenchSequence>& sequences,
                                 const RunOptions& options) {
  const engine::EngineOptions engine_options{.step_tokens = options.step_tokens,
                                             .max_running = options.max_running,
                                             .context_length = model_.config.context_length,
                                             .block_size = model_.layout.block_size};
  BATON_RETURN_IF_ERROR(engine_options.Validate());
  Current& run = *current_;
  run.engine = std::make_unique<engine::Engine>(
      engine_options,
      engine::Engine::Environment{vocab_, loop_, *runner_, pool_, run.metrics, *this});
  run.started = loop_.Now();
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].arrival <= 0) {
      run.waiting.push_back(i);
      continue;
    }
    const auto after =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(sequences[i].arrival));
    run.arrivals.push_back(loop_.PostAt(run.started + after, [this, i] { Arrive(i); }));
  }
  Admit();
  return absl::OkStatus();
}

void EngineDriver::Arrive(size_t index) {
  current_->waiting.push_back(index);
  Admit();
}

void EngineDriver::Admit() {
  Current& run = *current_;
  if (run.options.group > 0 && run.running > 0) return;
  for (size_t joined = 0; !run.waiting.empty(); ++joined) {
    if (run.options.group > 0 && joined == run.options.group) return;
    const size_t index = run.waiting.front();
    run.waiting.pop_front();
    const absl::Status status = Add(index);
    if (!status.ok()) return Fail(status);
  }
}

// Those that run go on to their end: a step in flight has the engine as its listener.
void EngineDriver::Fail(absl::Status status) {
  Current& run = *current_;
  if (run.status.ok()) run.status = std::move(status);
  run.arrivals.clear();
  run.waiting.clear();
  run.left = run.running;
  if (run.left == 0) Done();
}

absl::Status EngineDriver::Add(size_t index) {
  Current& run = *current_;
  const BenchSequence& sequence = run.sequences[index];
  BATON_ASSIGN_OR_RETURN(const uint32_t blocks,
                         kv::BlocksNeeded(sequence.prompt, sequence.choices, sequence.max_tokens,
                                          model_.layout.block_size));
  BATON_ASSIGN_OR_RETURN(kv::BlockLease lease,
                         pool_.Take(std::vector<uint32_t>(pool_.num_groups(), blocks)));
  const auto number = static_cast<uint32_t>(index);
  BATON_ASSIGN_OR_RETURN(
      const engine::SequenceId id,
      run.engine->Add({.state = StateOf(sequence, number, model_.config.vocab_size),
                       .lease = std::move(lease),
                       .filled = sequence.filled ? sequence.prompt : 0}));
  run.index[id] = index;
  ++run.running;
  const kv::BlockCounts counts = pool_.Counts();
  const uint32_t used = std::accumulate(counts.begin(), counts.end(), 0u) -
                        counts[static_cast<size_t>(kv::BlockState::kFree)];
  run.timeline.most_blocks = std::max(run.timeline.most_blocks, used);
  return absl::OkStatus();
}

void EngineDriver::AddWork(const std::vector<BenchSequence>& sequences, Timeline& timeline) const {
  for (const BenchSequence& one : sequences) {
    if (!one.filled) work_.Add({0, one.prompt, 1, false}, timeline.work);
    for (uint32_t choice = 0; choice < one.choices; ++choice) {
      const uint64_t rows = one.max_tokens - 1;
      work_.Add({one.prompt, rows, rows, true}, timeline.work);
    }
  }
  const bool replayed = std::any_of(sequences.begin(), sequences.end(),
                                    [](const BenchSequence& one) { return one.filled; });
  const auto sampling =
      static_cast<uint64_t>(std::count_if(timeline.steps.begin(), timeline.steps.end(),
                                          [](const StepEnd& step) { return step.tokens > 0; }));
  const uint64_t free_of_cost = replayed ? 1 : 0;
  work_.AddSteps(timeline.steps.size() - free_of_cost, sampling - free_of_cost, timeline.work);
}

void EngineDriver::OnToken(const engine::TokenEvent& event) {
  Current& run = *current_;
  ++run.tokens;
  SequenceTimes& times = run.timeline.sequences[run.index.at(event.sequence)];
  times.last_token = run.Seconds(loop_);
  if (times.first_token == 0) times.first_token = times.last_token;
  if (event.last) Ended();
}

void EngineDriver::OnSequenceFailed(engine::SequenceId, absl::Status status) {
  if (current_->status.ok()) current_->status = std::move(status);
  Ended();
}

void EngineDriver::Ended() {
  --current_->running;
  --current_->left;
}

// A failure may have ended the run before the last step that was under way does.
void EngineDriver::Done() {
  if (!std::exchange(current_->is_done, true)) current_->done.set_value();
}

void EngineDriver::OnStepEnd() {
  Current& run = *current_;
  run.timeline.steps.push_back({run.Seconds(loop_), std::exchange(run.tokens, 0)});
  if (run.left == 0) return Done();
  Admit();
}

}  // namespace baton::benchmarks
