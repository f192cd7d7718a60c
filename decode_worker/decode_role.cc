#include "decode_worker/decode_role.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/silence_watch.h"
#include "common/status_macros.h"
#include "proto/mapping/decoder_state.h"
#include "worker/blocks_wanted.h"
#include "worker/events.h"
#include "worker/generation.h"

namespace baton::worker {
namespace {

kvtransfer::TransferSink::Options SinkOptions(const WorkerOptions& options,
                                              std::vector<std::string> data_addresses) {
  kvtransfer::TransferSink::Options out;
  out.epoch = options.epoch;
  out.layout_fp = options.layout_fp;
  out.numerics_id = options.numerics_id;
  out.vocab_size = options.vocab_size;
  out.context_length = options.context_length;
  out.num_groups = static_cast<uint32_t>(options.pool_blocks.size());
  out.block_size = options.layout.block_size;
  out.data_addresses = std::move(data_addresses);
  out.cores = options.cores;
  out.heartbeat = options.heartbeat;
  out.lease = options.lease;
  if (options.on_event) {
    out.on_event = [hook = options.on_event](std::optional<kvtransfer::SinkState> state,
                                             kvtransfer::SinkEvent event) {
      hook("sink", state.has_value() ? ToString(*state) : "Gone", ToString(event));
    };
  }
  return out;
}

// What was reserved for, each choice with its first token.
bool FitsReservation(const DecoderState& state, const AttemptId& id,
                     const kvtransfer::Reservation& reservation) {
  return state.attempt == id && state.prompt == reservation.prompt &&
         state.cache_namespace == reservation.cache_namespace &&
         state.stop.max_tokens == reservation.max_tokens && state.choices.size() == reservation.n &&
         std::all_of(state.choices.begin(), state.choices.end(),
                     [](const ChoiceState& choice) { return choice.tokens.size() == 1; });
}

DecodeEvent EventOf(GenerationEvent event) {
  switch (event) {
    case GenerationEvent::kToken:
      return DecodeEvent::kToken;
    case GenerationEvent::kLastToken:
      return DecodeEvent::kLastToken;
    case GenerationEvent::kSequenceFailed:
      break;
  }
  return DecodeEvent::kSequenceFailed;
}

}  // namespace

struct DecodeRole::Attempt {
  AttemptId id;
  DecodeState state = DecodeState::kQueued;
  kvtransfer::Reservation reservation;
  Demand demand;
  Time admitted_at{};
  std::optional<Time> deadline_at;
  TimerHandle deadline;
  TimerHandle patience;                // kQueued: when to say Wait
  std::optional<Room::ClaimId> claim;  // kQueued
  kv::CachedLease room;                // kGranted, kQuiescing
  bool attached = false;
  std::optional<SilenceWatch> unattached;  // how long events are kept
  std::unique_ptr<Generation> generation;  // kGenerating, kKept
};

DecodeRole::DecodeRole(WorkerContext& context, kvtransfer::ReceiveTable& table,
                       std::vector<std::string> data_addresses)
    : context_(context),
      metrics_(context.metrics),
      revocations_(context.metrics
                       .AddCounter("baton_reservations_revoked_total",
                                   "Granted reservations whose blocks went to an older sequence "
                                   "before they were committed.")
                       .Get()),
      sink_(SinkOptions(context.options, std::move(data_addresses)), context.executor, table,
            context.tombstones, context.random, *this, &metrics_) {}

DecodeRole::~DecodeRole() {
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->claim.has_value()) context_.room.Cancel(*attempt->claim);
  }
}

absl::Status DecodeRole::Submit(Submission /*submission*/) {
  return absl::UnimplementedError("sinks: a decode worker is no source");
}

void DecodeRole::OnReserve(const AttemptId& id, kvtransfer::Reservation reservation) {
  Note(id, DecodeEvent::kReserve);
  const v1::Cause cause = WhyNot(id, reservation);
  if (cause != v1::CAUSE_UNSPECIFIED) return sink_.Refuse(id, cause);
  Enqueue(id, std::move(reservation));
}

v1::Cause DecodeRole::WhyNot(const AttemptId& id,
                             const kvtransfer::Reservation& reservation) const {
  if (context_.draining) return v1::CAUSE_DRAINING;
  if (!context_.sessions.IsOpen(id.router)) return v1::CAUSE_NO_SESSION;
  // Committed here or on its way out, or the router submitted it here as well, to run alone.
  if (Has(id) || context_.alone.Has(id)) return v1::CAUSE_TOMBSTONE;
  if (reservation.remaining.has_value() && *reservation.remaining <= Duration{0}) {
    return v1::CAUSE_DEADLINE;
  }
  const bool fits =
      BlocksWanted(context_, reservation.prompt.size(), reservation.n, reservation.max_tokens).ok();
  return fits ? v1::CAUSE_UNSPECIFIED : v1::CAUSE_NO_ROOM;
}

void DecodeRole::Enqueue(const AttemptId& id, kvtransfer::Reservation reservation) {
  const Time now = context_.executor.Now();
  auto attempt = std::make_unique<Attempt>();
  attempt->id = id;
  attempt->admitted_at = now - reservation.age;
  if (reservation.remaining.has_value()) {
    attempt->deadline_at = now + *reservation.remaining;
    attempt->deadline =
        context_.executor.PostAt(*attempt->deadline_at, [this, id] { OnDeadline(id); });
  }
  attempt->reservation = std::move(reservation);
  const kvtransfer::Reservation& kept = attempt->reservation;
  attempt->demand = BlocksToReceive(context_, kept.prompt.size(), kept.n, kept.max_tokens);
  attempt->claim = context_.room.Add(
      {.admitted_at = attempt->admitted_at,
       .blocks = attempt->demand.blocks,
       .granted = [this, id](kv::CachedLease room) { OnRoom(id, std::move(room)); },
       .prefix = PrefixOf(context_, kept.cache_namespace, kept.prompt, kept.prompt.size())});
  // Runs after the room's own turn, whose time was read before: whoever is still queued then stands
  // behind others.
  attempt->patience =
      context_.executor.PostAt(context_.executor.Now(), [this, id] { sink_.Wait(id); });
  attempts_[id] = std::move(attempt);
  context_.sessions.Touch();
}

void DecodeRole::OnRoom(const AttemptId& id, kv::CachedLease room) {
  Note(id, DecodeEvent::kRoom);
  Attempt& attempt = *attempts_.at(id);
  attempt.claim.reset();
  attempt.patience.Cancel();
  attempt.state = DecodeState::kGranted;
  attempt.room = std::move(room);
  PlaceBlocks(context_, attempt.demand, attempt.room.lease);
  const auto tokens = static_cast<uint32_t>(attempt.reservation.prompt.size());
  const auto prompt_blocks =
      static_cast<uint32_t>(kv::BlocksFor(tokens, context_.options.layout.block_size));
  attempt.room.lease.SetState(kv::BlockState::kFilling, 0, prompt_blocks);
  std::vector<kvtransfer::TransferSink::GroupGrant> groups;
  const kv::GroupBlocks& blocks = attempt.room.lease.blocks();
  for (kv::GroupId g = 0; g < blocks.size(); ++g) {
    const uint32_t found = attempt.room.chain.blocks;
    groups.push_back({std::max(found, context_.windows.FirstSeen(g, tokens)), blocks[g]});
  }
  sink_.Grant(id, std::move(groups));
  context_.sessions.Touch();
}

void DecodeRole::OnDropped(const AttemptId& id, v1::Cause cause) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return;
  Note(id, DecodeEvent::kDropped);
  Attempt& attempt = *found->second;
  if (attempt.state == DecodeState::kQueued) return Forget(id);
  Quiesce(attempt);
  context_.log.Info("reservation dropped",
                    {{"request", id.ToString()}, {"cause", kvtransfer::CauseLabel(cause)}});
  if (cause != v1::CAUSE_RELEASED) context_.sessions.Emit(id.router, LostEvent(id, cause));
}

void DecodeRole::OnQuiesced(const AttemptId& id) {
  if (!Has(id)) return;
  Note(id, DecodeEvent::kQuiesced);
  Forget(id);
  // Whoever waited for these blocks asks again: those that others share did not become free.
  context_.room.Poke();
}

v1::Cause DecodeRole::OnCommit(const AttemptId& id, std::string decoder_state) {
  Attempt& attempt = *attempts_.at(id);
  const DecodeState before = attempt.state;
  const absl::Status status = Generate(attempt, decoder_state);
  Note(before, status.ok() ? DecodeEvent::kCommit : DecodeEvent::kBadCommit);
  if (status.ok()) return v1::CAUSE_UNSPECIFIED;
  context_.log.Warning("commit refused",
                       {{"request", id.ToString()}, {"why", std::string(status.message())}});
  attempt.generation.reset();
  Quiesce(attempt);
  context_.sessions.Emit(id.router, LostEvent(id, v1::CAUSE_MALFORMED));
  return v1::CAUSE_MALFORMED;
}

absl::Status DecodeRole::Generate(Attempt& attempt, const std::string& decoder_state) {
  const AttemptId id = attempt.id;
  proto::DecoderStateLimits limits;
  limits.vocab_size = context_.options.vocab_size;
  limits.context_length = context_.options.context_length;
  BATON_ASSIGN_OR_RETURN(DecoderState state, proto::Parse(decoder_state, limits));
  if (!FitsReservation(state, id, attempt.reservation)) {
    return absl::InvalidArgumentError("the state is not the one that was reserved for");
  }
  engine::NewSequence sequence;
  sequence.state = std::move(state);
  sequence.state.age = context_.executor.Now() - attempt.admitted_at;
  sequence.filled = static_cast<uint32_t>(sequence.state.prompt.size());
  sequence.lease = std::move(attempt.room.lease);
  sequence.chain = std::move(attempt.room.chain);
  attempt.generation = std::make_unique<Generation>(id, context_.engine, context_.sessions,
                                                    attempt.attached, [this, id] { Forget(id); });
  if (context_.options.on_event) {
    attempt.generation->set_on_event(
        [this, id](GenerationEvent event) { Note(id, EventOf(event)); });
  }
  BATON_RETURN_IF_ERROR(attempt.generation->Start(std::move(sequence)));
  attempt.state = DecodeState::kGenerating;
  if (!attempt.attached) {
    attempt.unattached.emplace(context_.executor, context_.options.lease,
                               [this, id] { OnUnattached(id); });
  }
  context_.sessions.Touch();
  return absl::OkStatus();
}

void DecodeRole::Attach(const AttemptId& id) {
  Note(id, DecodeEvent::kAttach);
  Attempt& attempt = *attempts_.at(id);
  attempt.attached = true;
  if (attempt.generation == nullptr) return;
  attempt.unattached.reset();
  attempt.generation->Attach();  // may be the end of it
}

void DecodeRole::OnUnattached(const AttemptId& id) {
  Note(id, DecodeEvent::kUnattached);
  context_.sessions.Emit(id.router, LostEvent(id, v1::CAUSE_LEASE_EXPIRED));
  Finish(*attempts_.at(id), v1::CAUSE_LEASE_EXPIRED);
}

std::optional<DecodeRole::Grant> DecodeRole::YoungestGrant() const {
  std::optional<Grant> youngest;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->state != DecodeState::kGranted) continue;
    if (youngest.has_value() && attempt->admitted_at < youngest->admitted_at) continue;
    youngest = Grant{attempt->admitted_at, id};
  }
  return youngest;
}

bool DecodeRole::Revoke(const AttemptId& id) {
  Note(id, DecodeEvent::kRevoke);
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second->state != DecodeState::kGranted) return false;
  revocations_.Increment();
  context_.log.Info("reservation revoked", {{"request", id.ToString()}});
  context_.sessions.Emit(id.router, LostEvent(id, v1::CAUSE_PREEMPTED));
  Finish(*found->second, v1::CAUSE_PREEMPTED);
  return true;
}

bool DecodeRole::AnyQuiescing() const {
  return std::any_of(attempts_.begin(), attempts_.end(), [](const auto& attempt) {
    return attempt.second->state == DecodeState::kQuiescing;
  });
}

// The receive thread is asked, so blocks never come back inside the call.
engine::GaveUp DecodeRole::GiveUpYoungest(Time than) {
  if (AnyQuiescing()) return engine::GaveUp::kComing;
  const std::optional<Grant> grant = YoungestGrant();
  if (!grant.has_value() || grant->admitted_at < than) return engine::GaveUp::kNobody;
  Revoke(grant->attempt);
  return engine::GaveUp::kComing;
}

void DecodeRole::OnDeadline(const AttemptId& id) {
  Note(id, DecodeEvent::kDeadline);
  Attempt& attempt = *attempts_.at(id);
  if (attempt.state != DecodeState::kQueued) context_.sessions.Emit(id.router, ExpiredEvent(id));
  Finish(attempt, v1::CAUSE_DEADLINE);
}

void DecodeRole::Cancel(const AttemptId& id) {
  Note(id, DecodeEvent::kCancel);
  const auto found = attempts_.find(id);
  if (found != attempts_.end()) return Finish(*found->second, v1::CAUSE_CANCELLED);
  sink_.Drop(id, v1::CAUSE_CANCELLED);  // never seen: its Reserve will be refused
}

void DecodeRole::DropRouter(const Epoch& router, v1::Cause cause) {
  const AttemptId first{router, 0, 0};
  for (auto it = attempts_.lower_bound(first);
       it != attempts_.end() && it->first.router == router;) {
    Attempt& attempt = *(it++)->second;
    Note(attempt.id, DecodeEvent::kRouterLost);
    Finish(attempt, cause);
  }
}

void DecodeRole::Finish(Attempt& attempt, v1::Cause cause) {
  const AttemptId id = attempt.id;
  switch (attempt.state) {
    case DecodeState::kQueued:
      sink_.Drop(id, cause);
      return Forget(id);
    case DecodeState::kGranted:
      Quiesce(attempt);
      return sink_.Drop(id, cause);  // OnQuiesced follows
    case DecodeState::kGenerating:
    case DecodeState::kKept:
      return Forget(id);
    case DecodeState::kQuiescing:
      return;
  }
}

void DecodeRole::Quiesce(Attempt& attempt) {
  attempt.state = DecodeState::kQuiescing;
  attempt.deadline.Cancel();
}

void DecodeRole::Forget(const AttemptId& id) {
  const auto node = attempts_.extract(id);
  if (node.mapped()->claim.has_value()) context_.room.Cancel(*node.mapped()->claim);
  context_.tombstones.Add(id);
  context_.log.Info("attempt over",
                    {{"request", id.ToString()}, {"state", ToString(node.mapped()->state)}});
  context_.sessions.Touch();
}

void DecodeRole::Note(const AttemptId& id, DecodeEvent event) const {
  if (!context_.options.on_event) return;
  const std::optional<DecodeState> now = state(id);
  if (now.has_value()) Note(*now, event);
}

void DecodeRole::Note(DecodeState before, DecodeEvent event) const {
  const auto& hook = context_.options.on_event;
  if (hook) hook("decode", ToString(before), ToString(event));
}

QueueLoad DecodeRole::Queued() const {
  QueueLoad load;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->state == DecodeState::kQueued) ++load.waiting;
  }
  return load;
}

std::optional<DecodeState> DecodeRole::state(const AttemptId& id) const {
  const auto found = attempts_.find(id);
  if (found == attempts_.end()) return std::nullopt;
  const Attempt& attempt = *found->second;
  const bool kept = attempt.state == DecodeState::kGenerating && !attempt.generation->running();
  return kept ? DecodeState::kKept : attempt.state;
}

}  // namespace baton::worker
