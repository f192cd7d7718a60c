#include "tests/equality/tiny_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/test_metrics.h"
#include "common/time.h"
#include "model/tiny_model.h"
#include "model/tiny_vocab.h"
#include "tests/equality/inline_model_runner.h"
#include "text/vocab_from_gguf.h"
#include "worker/test_events.h"

namespace baton::worker {
namespace {

// Some of the fields each, so that every one meets every other.
void Mix(DecoderState& state, std::mt19937_64& random) {
  const auto one_in = [&random](uint64_t n) { return random() % n == 0; };
  const auto number = [&random](float least, float most) {
    return least + (most - least) * static_cast<float>(random() % 1000) / 1000;
  };
  if (one_in(2)) state.sampling.presence_penalty = number(-2, 2);
  if (one_in(2)) state.sampling.frequency_penalty = number(-2, 2);
  if (one_in(2)) state.sampling.repetition_penalty = number(0.5f, 2);
  for (TokenId id = 0; one_in(2); id += 1 + static_cast<TokenId>(random() % 50)) {
    state.sampling.logit_bias.push_back({id, number(-10, 10)});
  }
  if (one_in(2)) state.sampling.temperature = 0;
  if (one_in(2)) state.logprobs.output = static_cast<uint32_t>(random() % 21);
  if (one_in(2)) state.logprobs.prompt = static_cast<uint32_t>(random() % 21);
  state.stop.ignore_eos = one_in(2);
  state.stop.include_stop = one_in(2);
  state.stop.min_tokens = 2;  // the first token is not the last: there is a hand-over
  for (int i = 0; i < 20; ++i) {
    const auto id = static_cast<TokenId>(random() % model::TinyVocabSize());
    if (one_in(2)) state.stop.stop_token_ids.push_back(id);
  }
  if (one_in(2)) state.stop.stop_strings = {"e", "th"};
}

}  // namespace

void Answer::Add(const v1::Token& token) {
  tokens.push_back(token.token());
  logprobs.push_back(token.has_logprobs() ? token.logprobs().SerializeAsString() : "");
  visible_bytes.push_back(token.visible_bytes());
  finish = token.finish_reason();
}

void Answers::Add(const v1::WorkerEvent& event) {
  if (event.has_token()) choices.at(event.token().choice()).Add(event.token());
  if (event.has_first_token()) {
    choices.at(event.first_token().token().choice()).Add(event.first_token().token());
  }
  if (!event.has_prompt_logprobs()) return;
  EXPECT_EQ(event.prompt_logprobs().position(), 1 + prompt_logprobs.size());
  for (const auto& one : event.prompt_logprobs().logprobs()) {
    prompt_logprobs.push_back(one.SerializeAsString());
  }
}

bool Answers::Finished() const {
  return std::all_of(choices.begin(), choices.end(), [](const Answer& choice) {
    return choice.finish != v1::FINISH_REASON_UNSPECIFIED;
  });
}

std::string Case::name() const {
  static constexpr const char* kNames[] = {"greedy", "seeded", "mixed"};
  return std::to_string(state.prompt.size()) + " tokens, " + kNames[static_cast<int>(sampling)] +
         ", " + std::to_string(n()) + " choices";
}

Case MakeCase(uint32_t length, Sampling sampling, std::mt19937_64& random) {
  Case c;
  c.sampling = sampling;
  for (uint32_t i = 0; i < length; ++i) {
    c.state.prompt.push_back(static_cast<TokenId>(random() % model::TinyVocabSize()));
  }
  c.state.stop.max_tokens = 4 + static_cast<uint32_t>(random() % 8);
  c.state.stop.ignore_eos = true;
  c.state.choices.resize(1);
  if (sampling == Sampling::kGreedy) return c;
  c.state.sampling.temperature = 0.9f;
  c.state.sampling.top_k = 50;
  c.state.sampling.top_p = 0.95f;
  c.state.sampling.min_p = 0.01f;
  c.state.sampling.seed = random();
  if (sampling == Sampling::kMixed) Mix(c.state, random);
  return c;
}

DecoderState PrefixOf(const Case& c, uint32_t length) {
  DecoderState state;
  state.prompt.assign(c.state.prompt.begin(), c.state.prompt.begin() + length);
  state.stop.max_tokens = 1;
  state.choices.resize(1);
  state.cache_namespace = c.state.cache_namespace;
  return state;
}

std::vector<uint32_t> LengthsAroundBlocks(int max_blocks) {
  std::vector<uint32_t> lengths;
  for (int blocks = 0; blocks <= max_blocks; ++blocks) {
    for (const int around : {-1, 0, 1}) {
      const int length = blocks * kTinyBlock + around;
      if (length >= 1) lengths.push_back(static_cast<uint32_t>(length));
    }
  }
  return lengths;
}

TinyModel::TinyModel() {
  const std::string path = testing::TempDir() + "tiny_cluster.gguf";
  BATON_CHECK(model::WriteTinyModel({}, path).ok());
  model::LoadOptions options;
  options.path = path;
  options.block_size = kTinyBlock;
  loaded = *model::Load(options);
  vocab = *Vocab::Create(*VocabDataFromGguf(*loaded.file));
}

RigModel TinyModel::ForRig(uint32_t step_tokens) {
  return {loaded.layout, &*vocab, [this, step_tokens](Executor& executor, kv::KvArena& arena) {
            return std::make_unique<InlineModelRunner>(loaded, arena, executor, step_tokens);
          }};
}

TinyCluster::TinyCluster(TinyModel& tiny, Topology topology, uint32_t step_tokens,
                         uint32_t blocks) {
  RigWorker::Options options;
  options.number = 2;
  options.blocks = blocks;
  options.step_tokens = step_tokens;
  options.real_model = tiny.ForRig(step_tokens);
  decode_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
  to_decode_ = std::make_unique<RigSession>(world_, *decode_);
  to_decode_->on_event = [this](const v1::WorkerEvent& event) {
    if (event.has_lost()) OnLost(AttemptOf(event));
  };
  if (topology == Topology::kSplit) {
    options.number = 1;
    options.role = v1::ROLE_PREFILL;
    options.name = "prefill";
    prefill_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
    to_prefill_ = std::make_unique<RigSession>(world_, *prefill_);
    to_prefill_->on_event = [this](const v1::WorkerEvent& event) {
      if (event.has_started()) OnStarted(AttemptOf(event));
    };
  }
  world_.RunFor(std::chrono::milliseconds(1));
}

void TinyCluster::OnStarted(const AttemptId& attempt) {
  to_decode_->Attach(attempt);
  if (revoke_after_.has_value() && attempt.attempt == 1) RevokeAfter(attempt, *revoke_after_);
}

void TinyCluster::RevokeAfter(const AttemptId& attempt, int turns) {
  if (turns == 0) return static_cast<void>(decode_->decode->Revoke(attempt));
  decode_->executor.Post([this, attempt, turns] { RevokeAfter(attempt, turns - 1); });
}

absl::Status TinyCluster::Submit(const Case& c) {
  if (to_prefill_ == nullptr || c.at_decode) return to_decode_->Submit(c.state);
  return to_prefill_->Submit(c.state, {decode_->AsSink()});
}

void TinyCluster::Run(std::vector<Case>& cases) {
  to_decode_->messages.clear();
  if (to_prefill_) to_prefill_->messages.clear();
  for (Case& c : cases) {
    c.state.attempt = RigAttempt(++last_request_);
    const absl::Status status = Submit(c);
    ASSERT_TRUE(status.ok()) << c.name() << ": " << status;
  }
  running_ = &cases;
  RunUntilIdle();
  running_ = nullptr;
}

void TinyCluster::OnLost(const AttemptId& attempt) {
  if (running_ == nullptr) return;
  for (Case& c : *running_) {
    if (c.state.attempt != attempt) continue;
    ++c.state.attempt.attempt;
    const absl::Status status = Submit(c);
    EXPECT_TRUE(status.ok()) << c.name() << ": " << status;
  }
}

void TinyCluster::RunUntilIdle() {
  const Time limit = world_.now() + std::chrono::seconds(30);
  ASSERT_TRUE(world_.RunUntilTrue([this] { return Idle(); }, limit)) << "not idle";
  world_.RunFor(std::chrono::milliseconds(1));  // what was said last arrives
}

void TinyCluster::RunAtSink(DecoderState state) {
  state.attempt = RigAttempt(++last_request_);
  const absl::Status status = to_decode_->Submit(state);
  ASSERT_TRUE(status.ok()) << status;
  RunUntilIdle();
}

void TinyCluster::RunAtSource(DecoderState state) {
  state.attempt = RigAttempt(++last_request_);
  state.stop.max_tokens = 1;
  const absl::Status status = to_prefill_->Submit(state, {decode_->AsSink()});
  ASSERT_TRUE(status.ok()) << status;
  RunUntilIdle();
}

Found TinyCluster::FoundOf(const Case& c) const {
  Found found;
  const RigSession& first = to_prefill_ ? *to_prefill_ : *to_decode_;
  for (const v1::WorkerEvent& event : first.EventsOf(c.state.attempt)) {
    if (event.has_cached_prompt()) found.not_computed = event.cached_prompt().tokens();
    if (!event.has_handed_off()) continue;
    found.not_shipped = static_cast<uint32_t>(c.state.prompt.size()) - event.handed_off().tokens();
  }
  return found;
}

Answers TinyCluster::AnswersOf(const Case& c) const {
  Answers answers(c.n());
  for (const v1::WorkerEvent& event : to_decode_->EventsOf(c.state.attempt)) answers.Add(event);
  return answers;
}

std::vector<std::vector<AttemptId>> TinyCluster::DecodeSteps() const {
  std::vector<std::vector<AttemptId>> steps;
  for (const v1::SessionResponse& message : to_decode_->messages) {
    std::vector<AttemptId> tokens;
    for (const v1::WorkerEvent& event : message.events()) {
      if (event.has_token()) tokens.push_back(AttemptOf(event));
    }
    if (!tokens.empty()) steps.push_back(std::move(tokens));
  }
  return steps;
}

uint64_t TinyCluster::CountOf(std::string_view metric) const {
  return static_cast<uint64_t>(MetricValue(decode_->metrics, metric));
}

void TinyCluster::ExpectCrossed(const Case& c) const {
  if (!to_prefill_) return;
  const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(c.state.attempt);
  ASSERT_GE(source.size(), 2 + c.n());
  ASSERT_TRUE(source.front().has_started());
  EXPECT_GT(source.back().handed_off().bytes(), 0u);
  Answers answers(c.n());
  for (const v1::WorkerEvent& event : source) answers.Add(event);
  EXPECT_EQ(answers.prompt_logprobs, c.expected.prompt_logprobs);
  for (size_t i = 0; i < c.n(); ++i) {
    ASSERT_EQ(answers.choices[i].tokens.size(), 1u);
    EXPECT_EQ(answers.choices[i].tokens[0], c.expected.choices[i].tokens[0]);
    EXPECT_EQ(answers.choices[i].logprobs[0], c.expected.choices[i].logprobs[0]);
  }
}

void TinyCluster::ExpectAllFree() const {
  for (const RigWorker* worker : {decode_.get(), prefill_.get()}) {
    if (worker == nullptr) continue;
    EXPECT_TRUE(worker->all_free());
    EXPECT_TRUE(worker->core->pool().CheckIntegrity().ok());
  }
}

bool TinyCluster::Idle() const {
  return decode_->core->idle() && (!prefill_ || prefill_->core->idle());
}

}  // namespace baton::worker
