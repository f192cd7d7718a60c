// A worker that does what the test says, behind the core's WorkerClient; serializes every message
// as a network would. Owner thread: the simulated executor's.
#ifndef BATON_ROUTER_FAKE_WORKER_H_
#define BATON_ROUTER_FAKE_WORKER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/worker/v1/worker.pb.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "common/ids.h"
#include "kv/cache_event.h"
#include "router/worker_client.h"

namespace baton::router {

class FakeWorker {
 public:
  struct Options {
    std::string name;
    bool prefill = false;
    Epoch epoch{1, 1};
    uint32_t pool_blocks = 100;
    uint32_t block_size = 16;
    uint32_t context_length = 1024;
    Digest numerics_id{7, 7};
    Digest layout_fp{8, 8};
    Digest vocab_hash{9, 9};
    uint32_t lease_ms = 10000;
  };

  FakeWorker(Executor& executor, Options options);

  // For the core; the worker must outlive it.
  std::unique_ptr<WorkerClient> Connect();

  // What the router sent, oldest first.
  std::vector<worker::v1::SubmitRequest> submits;
  std::vector<AttemptId> cancels;
  std::vector<AttemptId> attaches;
  std::vector<uint32_t> cache_pages_asked;
  int heartbeats = 0;
  int sessions_opened = 0;
  // Answer of Submit; absent: none, until Answer.
  std::optional<absl::Status> submit_answer = absl::OkStatus();

  // Of every load report from now on.
  std::optional<worker::v1::StepTimes> step_times;

  // The answer to every ask for a page of its cache; absent: none.
  std::optional<kv::CacheSnapshotPage> cache_page;

  bool answers_hello = true;
  // An empty message for each heartbeat.
  bool answers_heartbeats = true;

  const Options& options() const { return options_; }
  bool connected() const { return session_ != nullptr; }

  // Answers the latest Submit, which has none yet.
  void Answer(const absl::Status& status);

  // To the router, in one message.
  void Send(std::vector<worker::v1::WorkerEvent> events);
  void Hello();
  // Ends the session as a crash does.
  void Crash();
  // Crash, then a new life.
  void Restart(Epoch epoch);

  void Started(const AttemptId& attempt, const FakeWorker& sink);
  void FirstToken(const AttemptId& attempt, uint32_t position, TokenId token, bool last = false,
                  uint32_t choice = 0);
  void Token(const AttemptId& attempt, uint32_t position, TokenId token, bool last = false,
             uint32_t choice = 0);
  // Of prompt positions [position, position + count): each -position.
  void PromptLogprobs(const AttemptId& attempt, uint32_t position, uint32_t count);
  void CachedPrompt(const AttemptId& attempt, uint32_t tokens);
  // `tokens`: of the prompt, in what was shipped.
  void HandedOff(const AttemptId& attempt, Duration handoff, uint64_t bytes, uint32_t tokens = 0);
  void NoRoom(const AttemptId& attempt, worker::v1::Cause cause = worker::v1::CAUSE_NO_ROOM);
  void Lost(const AttemptId& attempt, worker::v1::Cause cause);
  void Failed(const AttemptId& attempt, absl::StatusCode code, worker::v1::Cause cause);
  void Load(uint64_t last_submit, uint64_t queued_tokens, uint32_t free_blocks,
            double prefill_tokens_per_second = 0);

  void CacheEvents(const kv::CacheEventBatch& batch);

  // With the tokens that follow: log probability -position, none beside it.
  bool with_logprobs = false;

  // Of the latest Submit.
  AttemptId last_attempt() const;

 private:
  class Client;
  class Session;
  void Receive(const worker::v1::SessionRequest& request);
  void SendCachePage();
  void Fill(const AttemptId& attempt, uint32_t position, TokenId token, bool last,
            worker::v1::Token& out) const;

  Executor& executor_;
  Options options_;
  Session* session_ = nullptr;
  uint64_t session_number_ = 0;
  struct Unanswered {
    std::function<void(absl::Status)> done;
    TimerHandle timeout;
  };
  std::vector<Unanswered> unanswered_;  // oldest first; empty without a client
};

}  // namespace baton::router

#endif  // BATON_ROUTER_FAKE_WORKER_H_
