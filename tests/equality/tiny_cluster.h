// A decode worker, alone or behind a prefill worker, on virtual time with a real (tiny) model on
// the cpu backend and the in-process transport; and requests with everything that a client may see
// of their answers.
#ifndef BATON_TESTS_EQUALITY_TINY_CLUSTER_H_
#define BATON_TESTS_EQUALITY_TINY_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/decoder_state.h"
#include "common/ids.h"
#include "common/sim_executor.h"
#include "kvtransfer/in_process_transport.h"
#include "model/load.h"
#include "text/vocab.h"
#include "worker/test_rig.h"

namespace baton::worker {

inline constexpr int kTinyBlock = 16;

enum class Topology { kUnified, kSplit };

// kMixed: any of the fields that act on logits or ends, and log probabilities.
enum class Sampling { kGreedy, kSeeded, kMixed };

// Of one choice: log probabilities as they travel, bit by bit.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<std::string> logprobs;  // of tokens; "" when not asked for
  std::vector<uint64_t> visible_bytes;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  bool operator==(const Answer&) const = default;

  void Add(const v1::Token& token);
};

struct Answers {
  std::vector<std::string> prompt_logprobs;
  std::vector<Answer> choices;
  bool operator==(const Answers&) const = default;

  explicit Answers(size_t n = 1) : choices(n) {}
  void Add(const v1::WorkerEvent& event);
  bool Finished() const;  // every choice
};

// A request and what a cluster must answer.
struct Case {
  DecoderState state;
  Sampling sampling = Sampling::kGreedy;
  Answers expected;
  bool at_decode = false;  // the decode worker runs it alone, in a split cluster too
  size_t n() const { return state.choices.size(); }
  std::string name() const;
};
// One choice, 4 to 11 tokens, of the tiny model's vocabulary.
Case MakeCase(uint32_t length, Sampling sampling, std::mt19937_64& random);

// A request that leaves the first `length` tokens of the case's prompt in a cache for it.
DecoderState PrefixOf(const Case& c, uint32_t length);

// Around every border up to `max_blocks` blocks.
std::vector<uint32_t> LengthsAroundBlocks(int max_blocks);

// Tokens of a prompt that a cache spared.
struct Found {
  uint32_t not_computed = 0;
  uint32_t not_shipped = 0;  // in a split cluster
};

// The model that all workers of a test share.
struct TinyModel {
  TinyModel();
  RigModel ForRig(uint32_t step_tokens);
  model::LoadedModel loaded;
  std::optional<Vocab> vocab;
};

class TinyCluster {
 public:
  // `blocks` of each worker: with room for all, nobody waits and everybody shares the steps.
  TinyCluster(TinyModel& tiny, Topology topology, uint32_t step_tokens, uint32_t blocks = 160);

  // Runs the requests together until all is quiet. Each gets an attempt of its own, and the next
  // one as soon as the sink says that it has lost it.
  void Run(std::vector<Case>& cases);
  // From now on the first attempt of every request is revoked at the sink, this many turns of the
  // router after it is said to have started: in the middle of the hand-over, if it still runs.
  void RevokeFirstAttemptsAfter(int turns) { revoke_after_ = turns; }
  // What the decode worker has done to its requests so far.
  uint64_t preemptions() const { return CountOf("baton_preemptions_total"); }
  uint64_t revocations() const { return CountOf("baton_reservations_revoked_total"); }
  // The tokens of the decode worker's steps as it sent them: the requests' attempts.
  std::vector<std::vector<AttemptId>> DecodeSteps() const;
  // One request that leaves its blocks in the cache of one worker alone: the decode worker runs it;
  // or its first token is its last, so that nothing crosses.
  void RunAtSink(DecoderState state);
  void RunAtSource(DecoderState state);
  Answers AnswersOf(const Case& c) const;
  Found FoundOf(const Case& c) const;

  // Whether the KV cache crossed: the prompt's log probabilities, the first tokens and the
  // hand-over at the source. Nothing to see in a unified cluster.
  void ExpectCrossed(const Case& c) const;
  void ExpectAllFree() const;

  RigWorker& decode() { return *decode_; }
  RigWorker* prefill() { return prefill_.get(); }

 private:
  bool Idle() const;
  void RunUntilIdle();
  absl::Status Submit(const Case& c);
  void OnLost(const AttemptId& attempt);
  void OnStarted(const AttemptId& attempt);
  void RevokeAfter(const AttemptId& attempt, int turns);
  uint64_t CountOf(std::string_view metric) const;

  SimWorld world_;
  kvtransfer::InProcessNetwork network_;
  RigSinks sinks_;
  std::unique_ptr<RigWorker> decode_;
  std::unique_ptr<RigWorker> prefill_;
  std::unique_ptr<RigSession> to_decode_;
  std::unique_ptr<RigSession> to_prefill_;
  uint64_t last_request_ = 0;
  std::vector<Case>* running_ = nullptr;
  std::optional<int> revoke_after_;
};

}  // namespace baton::worker

#endif  // BATON_TESTS_EQUALITY_TINY_CLUSTER_H_
