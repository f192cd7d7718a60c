#include "worker/worker_core.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "common/step_times.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "worker/events.h"

namespace baton::worker {
namespace {

absl::Status Refusal(const char* reason, const std::string& text) {
  return absl::FailedPreconditionError(std::string(reason) + ": " + text);
}

engine::EngineOptions EngineOptionsOf(const WorkerOptions& options,
                                      const kv::SlidingWindows& windows) {
  engine::EngineOptions out;
  out.step_tokens = options.most_step_tokens();
  if (options.step_tokens == 0) out.planned_step = kPlannedStep;
  out.max_running = options.max_running;
  out.context_length = options.context_length;
  out.block_size = options.layout.block_size;
  out.windows = windows;
  return out;
}

// A few steps of any worker; a router that misses more asks for pages.
constexpr size_t kCacheEvents = 1 << 14;

void SetStepTimes(const StepTimes& from, v1::StepTimes& to) {
  to.set_step_seconds(from.step);
  to.set_prompt_token_seconds(from.prompt_token);
  to.set_decode_row_seconds(from.decode_row);
  to.set_prompt_key_seconds(from.prompt_key);
  to.set_decode_key_seconds(from.decode_key);
}

}  // namespace

WorkerCore::WorkerCore(const WorkerOptions& options, const Environment& environment)
    : options_(options),
      env_(environment),
      engine_metrics_(env_.metrics),
      pool_(options_.pool_blocks),
      cache_metrics_(env_.metrics),
      violations_(env_.metrics
                      .AddCounter("baton_kv_self_check_violations_total",
                                  "Idle moments at which KV blocks were held or miscounted; 0 in a "
                                  "worker that is right.")
                      .Get()),
      cache_events_(kCacheEvents),
      windows_(options_.layout, options_.most_step_tokens()),
      cache_(MakeCache()),
      room_(env_.executor, pool_, cache_.get()),
      tombstones_(env_.executor, 2 * options_.lease),
      sessions_({options_.heartbeat, options_.lease}, env_.executor, env_.metrics, *this),
      engine_(
          EngineOptionsOf(options_, windows_),
          {env_.vocab, env_.executor, env_.runner, pool_, engine_metrics_, [this] { OnStepEnd(); },
           cache_.get(), this, [this] { room_.Poke(); }, [this] { return role_->Coming(); }}),
      context_{options_, env_.executor, env_.random, env_.metrics, env_.log,  sessions_, engine_,
               room_,    cache_.get(),  windows_,    tombstones_,  draining_, local_},
      local_(context_) {
  room_.SetSpare([this] { return engine_.OnBlocksFreed(); });
}

std::unique_ptr<kv::PrefixCache> WorkerCore::MakeCache() {
  if (!options_.prefix_cache) return nullptr;
  if (windows_.any()) {
    env_.log.Info("the prefix cache is off",
                  {{"why", "a KV group of the model has a sliding window"}});
    return nullptr;
  }
  kv::PrefixCache::Options options;
  options.block_size = options_.layout.block_size;
  options.on_event = [this](const kv::CacheEvent& event) {
    cache_events_.Add(event);
    sessions_.NoteCacheEvents();
  };
  return std::make_unique<kv::PrefixCache>(std::move(options), pool_, cache_metrics_);
}

WorkerCore::~WorkerCore() = default;

absl::Status WorkerCore::Submit(const v1::SubmitRequest& request) {
  const AttemptId attempt = proto::Get(request.state().attempt());
  BATON_RETURN_IF_ERROR(CheckWho(request, attempt));
  BATON_ASSIGN_OR_RETURN(Submission submission, Validated(request));
  if (Waiting() >= options_.max_queue) {
    return absl::ResourceExhaustedError("the worker's queue is full (" +
                                        std::to_string(options_.max_queue) + " requests wait)");
  }
  Role& role = submission.sinks.empty() ? local_ : *role_;
  BATON_RETURN_IF_ERROR(role.Submit(std::move(submission)));
  sessions_.NoteSubmit(attempt.router, request.submit_number());
  env_.log.Info("attempt taken", {{"request", attempt.ToString()},
                                  {"prompt_tokens", request.state().prompt_size()},
                                  {"sinks", request.sinks_size()}});
  return absl::OkStatus();
}

absl::Status WorkerCore::CheckWho(const v1::SubmitRequest& request,
                                  const AttemptId& attempt) const {
  if (proto::Get(request.worker_epoch()) != options_.epoch) {
    return Refusal(kReasonStaleEpoch, "this worker is another process");
  }
  if (!sessions_.IsOpen(attempt.router, request.session_number())) {
    return Refusal(kReasonStaleSession, "session " + std::to_string(request.session_number()) +
                                            " of this router is not open here");
  }
  if (local_.Has(attempt) || role_->Has(attempt)) {
    return absl::AlreadyExistsError("attempt " + attempt.ToString() + " is live here");
  }
  if (tombstones_.Contains(attempt)) {
    return Refusal(kReasonTombstone, "attempt " + attempt.ToString() + " is over");
  }
  if (draining_) return absl::UnavailableError("the worker is draining");
  return absl::OkStatus();
}

absl::StatusOr<Submission> WorkerCore::Validated(const v1::SubmitRequest& request) const {
  proto::DecoderStateLimits limits;
  limits.vocab_size = options_.vocab_size;
  limits.context_length = options_.context_length;
  Submission submission;
  BATON_ASSIGN_OR_RETURN(submission.state, proto::FromProto(request.state(), limits));
  submission.sinks.assign(request.sinks().begin(), request.sinks().end());
  const Time now = env_.executor.Now();
  submission.admitted_at = now - submission.state.age;
  if (submission.state.remaining.has_value()) {
    submission.deadline = now + *submission.state.remaining;
  }
  return submission;
}

void WorkerCore::Drain() {
  draining_ = true;
  sessions_.Touch();
}

bool WorkerCore::idle() const {
  return local_.live() == 0 && role_->live() == 0 && room_.waiting() == 0 && engine_.idle();
}

uint32_t WorkerCore::Waiting() {
  engine_.SetWaitingForRoom(local_.Queued().waiting + role_->Queued().waiting);
  return engine_.Load().waiting;
}

// Nobody holds a block then, and nothing touches one any more.
absl::Status WorkerCore::CheckBlocksAtIdle() const {
  const kv::BlockCounts counts = pool_.Counts();
  const auto of = [&](kv::BlockState state) { return counts[static_cast<size_t>(state)]; };
  const uint32_t held = of(kv::BlockState::kReserved) + of(kv::BlockState::kFilling) +
                        of(kv::BlockState::kLive) + of(kv::BlockState::kQuarantined);
  if (held != 0) return absl::InternalError(std::to_string(held) + " blocks are held");
  BATON_RETURN_IF_ERROR(pool_.CheckIntegrity());
  return cache_ == nullptr ? absl::OkStatus() : cache_->CheckIntegrity();
}

// In a turn of its own: the step that has just ended pins its blocks until this turn's end.
void WorkerCore::CheckWhenIdle() {
  const bool now_idle = idle();
  if (now_idle && !was_idle_) {
    self_check_ = env_.executor.PostAt(env_.executor.Now(), [this] { SelfCheck(); });
  }
  was_idle_ = now_idle;
}

void WorkerCore::SelfCheck() {
  if (!idle()) return;
  const absl::Status status = CheckBlocksAtIdle();
  if (status.ok()) return;
  violations_.Increment();
  env_.log.Error("KV blocks at idle", {{"why", std::string(status.message())}});
}

v1::WorkerLoad WorkerCore::Load() {
  CheckWhenIdle();
  const QueueLoad local = local_.Queued();
  const QueueLoad role = role_->Queued();
  engine_.SetWaitingForRoom(local.waiting + role.waiting);
  const engine::EngineLoad engine = engine_.Load();
  v1::WorkerLoad load;
  load.set_running(engine.choices);
  load.set_waiting(engine.waiting);
  load.set_queued_prefill_tokens(engine.queued_prefill_tokens + local.prefill_tokens +
                                 role.prefill_tokens);
  const std::optional<uint32_t> spare = engine_.Spare();
  for (const uint32_t free : pool_.free_blocks()) {
    load.add_free_blocks(spare.has_value() ? free - std::min(*spare, free) : 0);
  }
  load.set_prefill_tokens_per_second(engine.prefill_tokens_per_second);
  load.set_prompt_steps(engine.prompt_steps);
  load.set_decode_step_seconds(engine.decode_step_seconds);
  if (engine.step_times.measured()) SetStepTimes(engine.step_times, *load.mutable_step_times());
  load.set_decode_keys(engine.decodes.decode_keys);
  load.set_transfer_bytes_per_second(role_->transfer_bytes_per_second());
  load.set_draining(draining_);
  return load;
}

v1::WorkerHello WorkerCore::Hello() const {
  v1::WorkerHello hello;
  proto::Set(options_.epoch, *hello.mutable_worker_epoch());
  hello.set_protocol_version(kProtocolVersion);
  hello.set_name(options_.name);
  hello.set_role(options_.role);
  hello.set_model(options_.model);
  proto::Set(options_.numerics_id, *hello.mutable_numerics_id());
  proto::Set(options_.layout_fp, *hello.mutable_layout_fp());
  proto::Set(options_.vocab_hash, *hello.mutable_vocab_hash());
  hello.set_block_size(options_.layout.block_size);
  for (const uint32_t blocks : options_.pool_blocks) hello.add_pool_blocks(blocks);
  hello.set_context_length(options_.context_length);
  hello.set_transfer_address(options_.transfer_address);
  hello.set_lease_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.lease).count()));
  hello.set_step_tokens(options_.most_step_tokens());
  hello.set_draining(draining_);
  return hello;
}

void WorkerCore::OnAttach(const AttemptId& attempt) {
  if (local_.Has(attempt)) return;
  if (role_->Has(attempt)) return role_->Attach(attempt);
  // The router would wait for events that never come.
  const bool known = tombstones_.Contains(attempt);
  sessions_.Emit(attempt.router,
                 LostEvent(attempt, known ? v1::CAUSE_TOMBSTONE : v1::CAUSE_RELEASED));
}

void WorkerCore::OnCancel(const AttemptId& attempt) {
  tombstones_.Add(attempt);
  local_.Cancel(attempt);
  role_->Cancel(attempt);
}

kv::CacheEventBatch WorkerCore::CacheEventsFrom(uint64_t sequence, size_t most) const {
  return cache_events_.From(sequence, most);
}

kv::CacheSnapshotPage WorkerCore::CachePage(uint32_t begin, uint32_t most) const {
  kv::CacheSnapshotPage page;
  if (cache_ != nullptr) page = cache_->Snapshot(begin, most);
  page.begin = begin;
  page.as_of = cache_events_.next_sequence();
  return page;
}

void WorkerCore::OnRouterLost(const Epoch& router, v1::Cause cause) {
  env_.log.Warning("router lost",
                   {{"router", router.ToString()}, {"cause", v1::Cause_Name(cause)}});
  local_.DropRouter(router, cause);
  role_->DropRouter(router, cause);
}

void WorkerCore::OnStepEnd() {
  role_->OnStepEnd();
  sessions_.Flush();
}

}  // namespace baton::worker
