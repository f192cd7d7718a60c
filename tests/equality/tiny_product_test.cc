// Split equals unified, token by token and log probability by log probability, on a real (tiny)
// model with the cpu backend: the full product of prompt lengths around block borders, ways to
// sample, chunk sizes, alone and in a crowd. Transport: in_process.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/decoder_state.h"
#include "common/sim_executor.h"
#include "common/time.h"
#include "kvtransfer/in_process_transport.h"
#include "model/load.h"
#include "model/tiny_model.h"
#include "model/tiny_vocab.h"
#include "tests/equality/inline_model_runner.h"
#include "text/vocab.h"
#include "text/vocab_from_gguf.h"
#include "worker/test_events.h"
#include "worker/test_rig.h"

namespace baton::worker {
namespace {

constexpr uint64_t kSeed = 20260719;
constexpr int kBlock = 16;
constexpr int kMaxBlocks = 6;
constexpr uint32_t kOthers = 16;
constexpr uint32_t kWhole = 2048;  // all prompts of a crowd in one step
constexpr uint32_t kExpectedStepTokens = 64;

enum class Topology { kUnified, kSplit };

// kMixed: any of the fields that act on logits or ends, and log probabilities.
enum class Sampling { kGreedy, kSeeded, kMixed };

// Everything a client may see of one request, log probabilities as they travel: bit by bit.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<std::string> logprobs;  // of tokens; "" when not asked for
  std::vector<std::string> prompt_logprobs;
  std::vector<uint64_t> visible_bytes;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  bool operator==(const Answer&) const = default;

  void Add(const v1::Token& token) {
    tokens.push_back(token.token());
    logprobs.push_back(token.has_logprobs() ? token.logprobs().SerializeAsString() : "");
    visible_bytes.push_back(token.visible_bytes());
    finish = token.finish_reason();
  }
  void Add(const v1::PromptLogprobs& part) {
    EXPECT_EQ(part.position(), 1 + prompt_logprobs.size());
    for (const auto& one : part.logprobs()) prompt_logprobs.push_back(one.SerializeAsString());
  }
};

// A request and what a cluster must answer.
struct Case {
  DecoderState state;
  Sampling sampling = Sampling::kGreedy;
  Answer expected;
  std::string name() const {
    static constexpr const char* kNames[] = {"greedy", "seeded", "mixed"};
    return std::to_string(state.prompt.size()) + " tokens, " + kNames[static_cast<int>(sampling)];
  }
};

// The model that all workers of the test share.
struct TinyModel {
  TinyModel() {
    const std::string path = testing::TempDir() + "tiny_product.gguf";
    BATON_CHECK(model::WriteTinyModel({}, path).ok());
    model::LoadOptions options;
    options.path = path;
    options.block_size = kBlock;
    loaded = *model::Load(options);
    vocab = *Vocab::Create(*VocabDataFromGguf(*loaded.file));
  }
  RigModel ForRig(uint32_t step_tokens) {
    return {loaded.layout, &*vocab, [this, step_tokens](Executor& executor, kv::KvArena& arena) {
              return std::make_unique<InlineModelRunner>(loaded, arena, executor, step_tokens);
            }};
  }
  model::LoadedModel loaded;
  std::optional<Vocab> vocab;
};

// A decode worker and, when split, a prefill worker before it.
class Cluster {
 public:
  Cluster(TinyModel& tiny, Topology topology, uint32_t step_tokens) {
    RigWorker::Options options;
    options.number = 2;
    options.blocks = 160;  // room for a crowd: nobody waits, everybody shares the steps
    options.step_tokens = step_tokens;
    options.real_model = tiny.ForRig(step_tokens);
    decode_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
    to_decode_ = std::make_unique<RigSession>(world_, *decode_);
    if (topology == Topology::kSplit) {
      options.number = 1;
      options.role = v1::ROLE_PREFILL;
      options.name = "prefill";
      prefill_ = std::make_unique<RigWorker>(world_, network_, sinks_, options);
      to_prefill_ = std::make_unique<RigSession>(world_, *prefill_);
      to_prefill_->on_event = [this](const v1::WorkerEvent& event) {
        if (event.has_started()) to_decode_->Attach(AttemptOf(event));
      };
    }
    world_.RunFor(std::chrono::milliseconds(1));
  }

  // Runs the requests together until all is quiet. Each gets an attempt of its own.
  void Run(std::vector<Case>& cases) {
    to_decode_->messages.clear();
    if (to_prefill_) to_prefill_->messages.clear();
    for (Case& c : cases) {
      c.state.attempt = RigAttempt(++last_request_);
      const absl::Status status = to_prefill_ ? to_prefill_->Submit(c.state, {decode_->AsSink()})
                                              : to_decode_->Submit(c.state);
      ASSERT_TRUE(status.ok()) << c.name() << ": " << status;
    }
    const Time limit = world_.now() + std::chrono::seconds(30);
    ASSERT_TRUE(world_.RunUntilTrue([this] { return Idle(); }, limit)) << "not idle";
    world_.RunFor(std::chrono::milliseconds(1));  // what was said last arrives
  }

  Answer AnswerOf(const Case& c) const {
    Answer answer;
    for (const v1::WorkerEvent& event : to_decode_->EventsOf(c.state.attempt)) {
      if (event.has_token()) answer.Add(event.token());
      if (event.has_prompt_logprobs()) answer.Add(event.prompt_logprobs());
    }
    return answer;
  }
  bool Finished(const Case& c) const { return to_decode_->Finished(c.state.attempt); }

  // Whether the KV cache crossed: the prompt's log probabilities, the first token and the hand-over
  // at the source, every token at the sink.
  void ExpectCrossed(const Case& c) const {
    if (!to_prefill_) return;
    const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(c.state.attempt);
    ASSERT_GE(source.size(), 3u);
    ASSERT_TRUE(source[0].has_started());
    Answer answer;
    for (size_t i = 1; i + 2 < source.size(); ++i) answer.Add(source[i].prompt_logprobs());
    EXPECT_EQ(answer.prompt_logprobs, c.expected.prompt_logprobs);
    answer.Add(source[source.size() - 2].first_token().token());
    EXPECT_EQ(answer.tokens[0], c.expected.tokens[0]);
    EXPECT_EQ(answer.logprobs[0], c.expected.logprobs[0]);
    EXPECT_GT(source.back().handed_off().bytes(), 0u);
  }
  void ExpectAllFree() const {
    for (const RigWorker* worker : {decode_.get(), prefill_.get()}) {
      if (worker == nullptr) continue;
      EXPECT_TRUE(worker->all_free());
      EXPECT_TRUE(worker->core->pool().CheckIntegrity().ok());
    }
  }

 private:
  bool Idle() const { return decode_->core->idle() && (!prefill_ || prefill_->core->idle()); }

  SimWorld world_;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  std::unique_ptr<RigWorker> decode_;
  std::unique_ptr<RigWorker> prefill_;
  std::unique_ptr<RigSession> to_decode_;
  std::unique_ptr<RigSession> to_prefill_;
  uint64_t last_request_ = 0;
};

std::vector<uint32_t> PromptLengths() {
  std::vector<uint32_t> lengths;
  for (int blocks = 0; blocks <= kMaxBlocks; ++blocks) {
    for (const int around : {-1, 0, 1}) {
      const int length = blocks * kBlock + around;
      if (length >= 1) lengths.push_back(static_cast<uint32_t>(length));
    }
  }
  return lengths;
}

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

class TinyProductTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::cout << "seed " << kSeed << std::endl;
    tiny_ = new TinyModel;
    cases_ = new std::vector<Case>;
    std::mt19937_64 random(kSeed);
    for (const uint32_t length : PromptLengths()) {
      for (const Sampling sampling : {Sampling::kGreedy, Sampling::kSeeded, Sampling::kMixed}) {
        cases_->push_back(MakeCase(length, sampling, random));
      }
    }
    Cluster unified(*tiny_, Topology::kUnified, kExpectedStepTokens);
    for (Case& c : *cases_) {
      std::vector<Case> alone = {c};
      unified.Run(alone);
      c.expected = unified.AnswerOf(alone[0]);
      BATON_CHECK(c.sampling == Sampling::kMixed ||
                  c.expected.tokens.size() == c.state.stop.max_tokens);
    }
  }
  static void TearDownTestSuite() {
    delete cases_;
    delete tiny_;
  }

  // The case among so many others, at a random place.
  static std::vector<Case> InCrowd(size_t index, uint32_t others, std::mt19937_64& random) {
    std::vector<size_t> order;
    for (size_t i = 0; i < cases_->size(); ++i) {
      if (i != index) order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), random);
    order.resize(others);
    order.insert(order.begin() + static_cast<ptrdiff_t>(random() % (others + 1)), index);
    std::vector<Case> crowd;
    for (const size_t i : order) crowd.push_back((*cases_)[i]);
    return crowd;
  }

  // Every case as the one that is looked at; the others must be right too.
  static void ExpectSameTokens(Topology topology, uint32_t others) {
    size_t combinations = 0;
    size_t comparisons = 0;
    std::mt19937_64 random(kSeed + others);
    for (const uint32_t step_tokens : {1u, 7u, 16u, 64u, kWhole}) {
      Cluster cluster(*tiny_, topology, step_tokens);
      for (size_t i = 0; i < cases_->size(); ++i, ++combinations) {
        std::vector<Case> together = InCrowd(i, others, random);
        SCOPED_TRACE("steps of " + std::to_string(step_tokens) + ", combination " +
                     std::to_string(i) + ": " + (*cases_)[i].name());
        ASSERT_NO_FATAL_FAILURE(cluster.Run(together));
        for (const Case& c : together) {
          const Answer answer = cluster.AnswerOf(c);
          ASSERT_EQ(answer.tokens, c.expected.tokens) << c.name();
          ASSERT_TRUE(answer == c.expected) << c.name() << ": the tokens alone are equal";
          ASSERT_TRUE(cluster.Finished(c)) << c.name();
          ASSERT_NO_FATAL_FAILURE(cluster.ExpectCrossed(c)) << c.name();
          ++comparisons;
        }
        cluster.ExpectAllFree();
      }
    }
    std::cout << combinations << " combinations, " << comparisons << " answers compared"
              << std::endl;
  }

  static TinyModel* tiny_;
  static std::vector<Case>* cases_;
};

TinyModel* TinyProductTest::tiny_ = nullptr;
std::vector<Case>* TinyProductTest::cases_ = nullptr;

TEST_F(TinyProductTest, ExpectedAnswersDependOnThePromptAndTheSeed) {
  std::vector<std::vector<TokenId>> starts;
  for (const Case& c : *cases_) {
    if (c.sampling == Sampling::kMixed) continue;
    starts.emplace_back(c.expected.tokens.begin(), c.expected.tokens.begin() + 4);
  }
  const size_t all = starts.size();
  std::sort(starts.begin(), starts.end());
  const auto distinct = std::unique(starts.begin(), starts.end()) - starts.begin();
  EXPECT_EQ(static_cast<size_t>(distinct), all);
}

TEST_F(TinyProductTest, MixedCasesAreMixed) {
  size_t ended_by_a_stop = 0, with_logprobs = 0, with_prompt_logprobs = 0;
  for (const Case& c : *cases_) {
    ended_by_a_stop += c.expected.finish == v1::FINISH_REASON_STOP ? 1 : 0;
    with_logprobs += c.expected.logprobs[0].empty() ? 0 : 1;
    with_prompt_logprobs += c.expected.prompt_logprobs.empty() ? 0 : 1;
    if (c.state.logprobs.prompt.has_value()) {
      EXPECT_EQ(c.expected.prompt_logprobs.size(), c.state.prompt.size() - 1);
    }
    EXPECT_GE(c.expected.tokens.size(), 2u);
  }
  EXPECT_GE(ended_by_a_stop, 2u);
  EXPECT_GE(with_logprobs, 5u);
  EXPECT_GE(with_prompt_logprobs, 5u);
}

TEST_F(TinyProductTest, SplitAlone) { ExpectSameTokens(Topology::kSplit, 0); }

TEST_F(TinyProductTest, SplitInACrowd) { ExpectSameTokens(Topology::kSplit, kOthers); }

TEST_F(TinyProductTest, UnifiedAlone) { ExpectSameTokens(Topology::kUnified, 0); }

TEST_F(TinyProductTest, UnifiedInACrowd) { ExpectSameTokens(Topology::kUnified, kOthers); }

}  // namespace
}  // namespace baton::worker
