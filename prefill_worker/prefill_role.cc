#include "prefill_worker/prefill_role.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "common/hash.h"
#include "common/status_macros.h"
#include "engine/scheduler.h"
#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"
#include "worker/blocks_wanted.h"
#include "worker/events.h"

namespace baton::worker {
namespace {

using kvtransfer::Outcome;
using kvtransfer::TransferEnd;
using Turn = engine::RoomQueue::Turn;

kvtransfer::TransferSource::Options SourceOptions(const WorkerOptions& options) {
  kvtransfer::TransferSource::Options out;
  out.epoch = options.epoch;
  out.layout_fp = options.layout_fp;
  out.numerics_id = options.numerics_id;
  out.layout = options.layout;
  out.cores = options.cores;
  out.heartbeat = options.heartbeat;
  out.lease = options.lease;
  if (options.on_event) {
    out.on_event = [hook = options.on_event](kvtransfer::SourceState state,
                                             kvtransfer::SourceEvent event) {
      hook("source", ToString(state), ToString(event));
    };
  }
  return out;
}

// What the end of a transfer is to an attempt in `state`.
PrefillEvent EventOf(PrefillState state, Outcome outcome) {
  switch (outcome) {
    case Outcome::kCommitted:
      return PrefillEvent::kCommitted;
    case Outcome::kReleased:
      return PrefillEvent::kReleased;
    case Outcome::kNotGranted:
      return PrefillEvent::kNotGranted;
    default:
      return state < PrefillState::kRunning ? PrefillEvent::kNotGranted : PrefillEvent::kBroken;
  }
}

}  // namespace

struct PrefillRole::Attempt : SequenceOwner {
  Attempt(PrefillRole& r, Submission s) : role(r), submission(std::move(s)) {}

  const AttemptId& id() const { return submission.state.attempt; }
  uint32_t prompt_tokens() const { return static_cast<uint32_t>(submission.state.prompt.size()); }

  bool waits_at_sink() const {
    return state == PrefillState::kReserving || state == PrefillState::kWaiting ||
           state == PrefillState::kLeaving;
  }

  void OnLayerReady(uint32_t layer, uint32_t tokens) override {
    role.OnLayerReady(*this, layer, tokens);
  }
  void OnPromptLogprobs(uint32_t position, std::vector<TokenLogprobs> logprobs) override {
    role.OnPromptLogprobs(*this, position, std::move(logprobs));
  }
  void OnToken(const engine::TokenEvent& event) override { role.OnFirstToken(*this, event); }
  void OnSequenceFailed(const absl::Status& status) override {
    sequence.reset();
    role.OnSequenceFailed(*this, status);
  }

  PrefillRole& role;
  const Submission submission;
  PrefillState state = PrefillState::kQueued;
  TimerHandle deadline;

  std::optional<Room::ClaimId> claim;  // kQueued
  Demand demand;
  kv::CachedLease room;   // until the sequence starts
  kv::BlockPin pin;       // from then on until the source is rid of them
  bool oversize = false;  // let past the quarter as the oldest

  size_t next_sink = 0;
  kvtransfer::SinkAddress sink;  // asked last
  // Why no sink has granted so far; one that revoked a grant that was still being opened goes
  // before one that lacked room, and that before one that was not reached.
  v1::Cause no_grant = v1::CAUSE_NO_ROOM;
  bool preempted = false;
  bool room_lacked = false;
  Time asked_first{};
  TimerHandle patience;

  std::optional<engine::SequenceId> sequence;
  Time started{};
  uint32_t at_sink = 0;                  // tokens that the sink has already
  uint32_t cached = 0;                   // tokens found in the cache; kQueued: when it came
  uint32_t computed = 0;                 // tokens whose last layer is ready, those included
  std::vector<uint32_t> shipped_blocks;  // per layer
  // Go to the sink with the commit: the router may hear of the first token from there first.
  std::vector<TokenLogprobs> prompt_logprobs;
  std::vector<ChoiceState> choices;  // that have their first token
};

PrefillRole::PrefillRole(WorkerContext& context, kvtransfer::SinkDialer& dialer,
                         std::vector<kvtransfer::Transport*> transports)
    : context_(context),
      metrics_(context.metrics),
      source_(SourceOptions(context.options), context.executor, dialer, std::move(transports),
              *this, &metrics_) {}

PrefillRole::~PrefillRole() {
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->claim.has_value()) context_.room.Cancel(*attempt->claim);
    if (attempt->sequence.has_value()) context_.engine.Remove(*attempt->sequence);
  }
}

absl::Status PrefillRole::Submit(Submission submission) {
  const DecoderState& state = submission.state;
  for (const ChoiceState& choice : state.choices) {
    if (choice.tokens.empty()) continue;
    return absl::UnimplementedError("choices: a prompt phase starts choices without tokens");
  }
  BATON_ASSIGN_OR_RETURN(Demand demand, BlocksWanted(context_, state.prompt.size(), 1, 1));
  const AttemptId id = state.attempt;
  auto attempt = std::make_unique<Attempt>(*this, std::move(submission));
  attempt->demand = std::move(demand);
  const DecoderState& kept = attempt->submission.state;
  if (attempt->submission.deadline.has_value()) {
    attempt->deadline = context_.executor.PostAt(*attempt->submission.deadline, [this, id] {
      Attempt& expired = *attempts_.at(id);
      Note(expired, PrefillEvent::kDeadline);
      Finish(expired, ExpiredEvent(id));
    });
  }
  auto prefix = PrefixOf(context_, kept.cache_namespace, kept.prompt, MostCached(kept));
  attempt->cached = HeldOf(context_, prefix);
  attempt->claim =
      context_.room.Add({attempt->submission.admitted_at, attempt->demand.blocks,
                         [this, id](kv::CachedLease room) { OnRoom(id, std::move(room)); },
                         [this, id] { return TurnOf(id); }, std::move(prefix)});
  attempts_[id] = std::move(attempt);
  return absl::OkStatus();
}

// Room is taken two steps ahead of the start, and requests that wait at sinks hold at most a
// quarter of the pool: or one of any size beyond it, when it is the oldest of them.
Turn PrefillRole::TurnOf(const AttemptId& id) const {
  const Attempt& candidate = *attempts_.at(id);
  if (AheadOf(candidate) > 2 * uint64_t{context_.engine.PromptsOfAStep()}) return Turn::kLater;
  bool oldest = true;
  bool oversize = false;
  for (const Attempt* other : with_blocks_) {
    if (!other->waits_at_sink()) continue;
    oversize |= other->oversize;
    oldest &= candidate.submission.admitted_at < other->submission.admitted_at;
  }
  const bool fits =
      HeldByWaiting() + candidate.demand.blocks[0] <= Quarter() || (oldest && !oversize);
  return fits ? Turn::kNow : Turn::kStop;
}

// Tokens that are to be computed before it: not those of prompts that it overtakes.
uint64_t PrefillRole::AheadOf(const Attempt& candidate) const {
  const uint64_t own = candidate.prompt_tokens() - candidate.cached;
  uint64_t ahead = 0;
  for (const Attempt* other : with_blocks_) {
    uint64_t left = 0;
    if (other->state == PrefillState::kRunning) left = other->prompt_tokens() - other->computed;
    if (other->state == PrefillState::kReserving) left = other->prompt_tokens() - other->cached;
    if (!engine::Overtakes(own, left)) ahead += left;
  }
  return ahead;
}

uint64_t PrefillRole::Quarter() const { return context_.options.pool_blocks[0] / 4; }

uint64_t PrefillRole::HeldByWaiting() const {
  uint64_t blocks = 0;
  for (const Attempt* attempt : with_blocks_) {
    if (attempt->waits_at_sink()) blocks += attempt->demand.blocks[0];
  }
  return blocks;
}

void PrefillRole::OnRoom(const AttemptId& id, kv::CachedLease room) {
  Attempt& attempt = *attempts_.at(id);
  Note(attempt, PrefillEvent::kRoom);
  attempt.claim.reset();
  PlaceBlocks(context_, attempt.demand, room.lease);
  attempt.cached = room.chain.blocks * context_.options.layout.block_size;
  attempt.oversize = HeldByWaiting() + attempt.demand.blocks[0] > Quarter();
  attempt.room = std::move(room);
  with_blocks_.push_back(&attempt);
  attempt.asked_first = context_.executor.Now();
  AskNextSink(attempt);
}

void PrefillRole::AskNextSink(Attempt& attempt) {
  const AttemptId id = attempt.id();
  const std::vector<v1::Sink>& sinks = attempt.submission.sinks;
  if (attempt.next_sink == sinks.size()) return Finish(attempt, NoRoomEvent(id, attempt.no_grant));
  const v1::Sink& sink = sinks[attempt.next_sink++];
  attempt.sink = {sink.address(), proto::Get(sink.epoch())};
  attempt.state = PrefillState::kReserving;
  const Time now = context_.executor.Now();
  const DecoderState state = StateAt(attempt.submission, now);
  kvtransfer::ReserveRequest request;
  request.prompt = state.prompt;
  request.cache_namespace = state.cache_namespace;
  request.n = static_cast<uint32_t>(state.choices.size());
  request.max_tokens = state.stop.max_tokens;
  request.age = state.age;
  request.remaining = state.remaining;
  source_.Reserve(id, attempt.sink, request);
  const Duration share = context_.options.reserve_patience / sinks.size();
  attempt.patience = context_.executor.PostAfter(share, [this, id] { OnPatienceOver(id); });
  context_.sessions.Touch();
}

void PrefillRole::NoteNoGrant(Attempt& attempt, v1::Cause cause) {
  attempt.preempted |= cause == v1::CAUSE_PREEMPTED;
  attempt.room_lacked |= cause == v1::CAUSE_NO_ROOM;
  attempt.no_grant = attempt.preempted     ? v1::CAUSE_PREEMPTED
                     : attempt.room_lacked ? v1::CAUSE_NO_ROOM
                                           : cause;
}

void PrefillRole::OnPatienceOver(const AttemptId& id) {
  Attempt& attempt = *attempts_.at(id);
  Note(attempt, PrefillEvent::kPatience);
  // One that has not said a word is out of reach, as far as we know.
  const bool waited = attempt.state == PrefillState::kWaiting;
  NoteNoGrant(attempt, waited ? v1::CAUSE_NO_ROOM : v1::CAUSE_PEER_LOST);
  attempt.state = PrefillState::kLeaving;
  source_.Release(id);
}

void PrefillRole::OnWaiting(const AttemptId& id) {
  Attempt& attempt = *attempts_.at(id);
  Note(attempt, PrefillEvent::kWaitAnswer);
  if (attempt.state != PrefillState::kReserving) return;
  attempt.state = PrefillState::kWaiting;
  context_.room.Poke();  // others may start meanwhile
}

void PrefillRole::OnGranted(const AttemptId& id, const std::vector<uint32_t>& first_needed) {
  Attempt& attempt = *attempts_.at(id);
  Note(attempt, PrefillEvent::kGranted);
  if (attempt.state != PrefillState::kReserving && attempt.state != PrefillState::kWaiting) return;
  attempt.patience.Cancel();
  const uint32_t first = *std::min_element(first_needed.begin(), first_needed.end());
  attempt.at_sink = std::min(attempt.prompt_tokens(), first * context_.options.layout.block_size);
  const Time now = context_.executor.Now();
  v1::WorkerEvent event;
  v1::Started& started = *event.mutable_started();
  proto::Set(id, *started.mutable_attempt());
  started.set_sink_address(attempt.sink.address);
  proto::Set(attempt.sink.epoch, *started.mutable_sink_epoch());
  started.set_reserve_wait_ns(static_cast<uint64_t>((now - attempt.asked_first).count()));
  context_.sessions.Emit(id.router, std::move(event));
  StartSequence(attempt);
}

void PrefillRole::StartSequence(Attempt& attempt) {
  attempt.state = PrefillState::kRunning;
  attempt.started = context_.executor.Now();
  attempt.shipped_blocks.assign(context_.options.layout.layers.size(), 0);
  attempt.pin = context_.room.pool().Pin(attempt.room.lease.blocks());
  engine::NewSequence sequence;
  sequence.state = StateAt(attempt.submission, attempt.started);
  sequence.lease = std::move(attempt.room.lease);
  sequence.filled = attempt.cached;
  sequence.chain = std::move(attempt.room.chain);
  sequence.mode = engine::SequenceMode::kPrefillOnly;
  absl::StatusOr<engine::SequenceId> added = context_.engine.Add(std::move(sequence), attempt);
  if (!added.ok()) return OnSequenceFailed(attempt, added.status());
  attempt.sequence = *added;
  if (attempt.cached > 0) ShipCached(attempt);
  context_.room.Poke();
}

void PrefillRole::ShipCached(Attempt& attempt) {
  attempt.computed = attempt.cached;
  context_.sessions.Emit(attempt.id().router, CachedPromptEvent(attempt.id(), attempt.cached));
  for (uint32_t layer = 0; layer < attempt.shipped_blocks.size(); ++layer) {
    Ship(attempt, layer, attempt.cached / context_.options.layout.block_size);
  }
}

// Ships what this chunk completed of the layer: full blocks, and at the end of the prompt the last
// one, whose unwritten slots are zero.
void PrefillRole::OnLayerReady(Attempt& attempt, uint32_t layer, uint32_t tokens) {
  Note(attempt, PrefillEvent::kLayerReady);
  const uint32_t block_size = context_.options.layout.block_size;
  const uint32_t done = tokens == attempt.prompt_tokens()
                            ? static_cast<uint32_t>(kv::BlocksFor(tokens, block_size))
                            : tokens / block_size;
  if (layer + 1 == attempt.shipped_blocks.size()) attempt.computed = tokens;
  Ship(attempt, layer, done);
}

void PrefillRole::Ship(Attempt& attempt, uint32_t layer, uint32_t done) {
  uint32_t& shipped = attempt.shipped_blocks[layer];
  if (shipped >= done) return;
  const std::vector<kv::BlockId>& blocks =
      context_.engine.Blocks(*attempt.sequence)[context_.options.layout.layers[layer].group];
  kvtransfer::BlockRun run;
  run.layer = layer;
  run.first_ordinal = shipped;
  run.blocks.assign(blocks.begin() + shipped, blocks.begin() + done);
  shipped = done;
  source_.Ship(attempt.id(), run);
}

void PrefillRole::OnPromptLogprobs(Attempt& attempt, uint32_t position,
                                   std::vector<TokenLogprobs> logprobs) {
  if (attempt.state != PrefillState::kRunning) return;
  context_.sessions.Emit(attempt.id().router,
                         PromptLogprobsEvent(attempt.id(), position, logprobs));
  std::move(logprobs.begin(), logprobs.end(), std::back_inserter(attempt.prompt_logprobs));
}

void PrefillRole::OnFirstToken(Attempt& attempt, const engine::TokenEvent& event) {
  const bool all = attempt.choices.size() + 1 == attempt.submission.state.choices.size();
  if (all) Note(attempt, event.last ? PrefillEvent::kFirstTokenEnds : PrefillEvent::kFirstToken);
  if (attempt.state != PrefillState::kRunning) return;
  ChoiceState& choice = attempt.choices.emplace_back();
  choice.tokens = {event.token};
  choice.finished = event.finish_reason != engine::FinishReason::kNone;
  if (event.logprobs.has_value()) choice.logprobs = {*event.logprobs};
  const Time now = context_.executor.Now();
  v1::WorkerEvent out;
  *out.mutable_first_token()->mutable_token() = MakeToken(attempt.id(), event);
  out.mutable_first_token()->set_prefill_ns(static_cast<uint64_t>((now - attempt.started).count()));
  if (event.last) return Finish(attempt, std::move(out));
  context_.sessions.Emit(attempt.id().router, std::move(out));
  if (all) Commit(attempt);
}

void PrefillRole::Commit(Attempt& attempt) {
  attempt.state = PrefillState::kCommitting;
  DecoderState state = StateAt(attempt.submission, context_.executor.Now());
  state.choices = std::move(attempt.choices);
  state.prompt_logprobs = std::move(attempt.prompt_logprobs);
  source_.Commit(attempt.id(), {TokenChainHash(state.prompt), proto::Serialize(state)});
}

void PrefillRole::OnSequenceFailed(Attempt& attempt, const absl::Status& status) {
  Note(attempt, PrefillEvent::kSequenceFailed);
  if (attempt.state == PrefillState::kCommitting) return;  // its token is out and its KV complete
  Finish(attempt, FailedEvent(attempt.id(), status, v1::CAUSE_INTERNAL));
}

void PrefillRole::OnEnded(const AttemptId& id, const TransferEnd& end) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return;
  Attempt& attempt = *found->second;
  Note(attempt, EventOf(attempt.state, end.outcome));
  attempt.patience.Cancel();
  switch (attempt.state) {
    case PrefillState::kReserving:
    case PrefillState::kWaiting:
    case PrefillState::kLeaving:
      context_.log.Info("no grant", {{"request", id.ToString()},
                                     {"sink", attempt.sink.address},
                                     {"cause", kvtransfer::CauseLabel(end.cause)}});
      if (end.cause != v1::CAUSE_RELEASED) NoteNoGrant(attempt, end.cause);
      return AskNextSink(attempt);
    case PrefillState::kRunning:
    case PrefillState::kCommitting:
      return OnTransferOver(attempt, end);
    case PrefillState::kQueued:
    case PrefillState::kEnding:
      return Forget(id);
  }
}

void PrefillRole::OnTransferOver(Attempt& attempt, const TransferEnd& end) {
  const AttemptId id = attempt.id();
  if (end.outcome == Outcome::kCommitted) {
    v1::WorkerEvent event;
    v1::HandedOff& handed_off = *event.mutable_handed_off();
    proto::Set(id, *handed_off.mutable_attempt());
    handed_off.set_handoff_ns(static_cast<uint64_t>(end.handoff.count()));
    handed_off.set_bytes(end.bytes);
    handed_off.set_tokens(attempt.prompt_tokens() - attempt.at_sink);
    context_.sessions.Emit(id.router, std::move(event));
  } else {
    const bool preempted = end.cause == v1::CAUSE_PREEMPTED;
    context_.log.Log(preempted ? LogLevel::kInfo : LogLevel::kWarning, "handoff broken",
                     {{"request", id.ToString()},
                      {"sink", attempt.sink.address},
                      {"cause", kvtransfer::CauseLabel(end.cause)}});
    if (attempt.state == PrefillState::kRunning) {
      const absl::Status status = absl::UnavailableError("the handoff to the sink was broken");
      context_.sessions.Emit(id.router, FailedEvent(id, status, end.cause));
    }
  }
  Forget(id);
}

void PrefillRole::Cancel(const AttemptId& id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return;
  Note(*found->second, PrefillEvent::kCancel);
  Finish(*found->second, std::nullopt);
}

void PrefillRole::DropRouter(const Epoch& router, v1::Cause /*cause*/) {
  const AttemptId first{router, 0, 0};
  for (auto it = attempts_.lower_bound(first);
       it != attempts_.end() && it->first.router == router;) {
    Attempt& attempt = *(it++)->second;
    Note(attempt, PrefillEvent::kRouterLost);
    // It may be alive and wait for the sink's word.
    Finish(attempt, std::nullopt, v1::CAUSE_PEER_LOST);
  }
}

void PrefillRole::Finish(Attempt& attempt, std::optional<v1::WorkerEvent> event,
                         v1::Cause to_sink) {
  if (attempt.state == PrefillState::kEnding) return;
  const AttemptId id = attempt.id();
  const bool silent = attempt.state == PrefillState::kCommitting;
  if (event.has_value() && !silent) context_.sessions.Emit(id.router, *std::move(event));
  attempt.state = PrefillState::kEnding;
  attempt.deadline.Cancel();
  attempt.patience.Cancel();
  if (attempt.sequence.has_value()) context_.engine.Remove(*std::exchange(attempt.sequence, {}));
  if (!source_.state(id).has_value()) return Forget(id);
  source_.Release(id, to_sink);  // OnEnded follows
  context_.sessions.Touch();
}

void PrefillRole::Forget(const AttemptId& id) {
  const auto node = attempts_.extract(id);
  Attempt& attempt = *node.mapped();
  std::erase(with_blocks_, &attempt);
  if (attempt.claim.has_value()) context_.room.Cancel(*attempt.claim);
  if (attempt.sequence.has_value()) context_.engine.Remove(*attempt.sequence);
  context_.tombstones.Add(id);
  context_.log.Info("attempt over",
                    {{"request", id.ToString()}, {"state", ToString(attempt.state)}});
  context_.room.Poke();
  context_.sessions.Touch();
}

void PrefillRole::Note(const Attempt& attempt, PrefillEvent event) const {
  const auto& hook = context_.options.on_event;
  if (hook) hook("prefill", ToString(attempt.state), ToString(event));
}

QueueLoad PrefillRole::Queued() const {
  QueueLoad load;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->state >= PrefillState::kRunning) continue;
    ++load.waiting;
    load.prefill_tokens += attempt->prompt_tokens() - attempt->cached;
  }
  return load;
}

std::optional<PrefillState> PrefillRole::state(const AttemptId& id) const {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return std::nullopt;
  return found->second->state;
}

}  // namespace baton::worker
