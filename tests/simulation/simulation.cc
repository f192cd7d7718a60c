#include "tests/simulation/simulation.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "common/check.h"
#include "tests/simulation/sim_client.h"

namespace baton::sim {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = seconds(120);    // by then every request has ended
constexpr Duration kForgotten = seconds(2);  // by then after an end nobody holds anything of it
// Whoever is revoked by chance, and not by who is older, may be for as long as that goes on.
constexpr Duration kRevocations = seconds(10);
constexpr Duration kMostUnread = milliseconds(200);  // after a standstill

Logger MakeLog(bool verbose) {
  if (!verbose) return Logger::Silent();
  Logger::Options options;
  options.min_level = LogLevel::kDebug;
  return Logger(options);
}

}  // namespace

Simulation::Simulation(const Scenario& scenario, CellCounts& cells, bool verbose)
    : scenario_(scenario),
      cells_(cells),
      log_(MakeLog(verbose)),
      network_(world_, scenario.seed, scenario.network),
      data_([this](const auto& wire, Executor& to, std::string& bytes,
                   std::function<void()> deliver) { Carry(wire, to, bytes, std::move(deliver)); }) {
  if (verbose) {
    network_.set_log([](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  }
}

// Connections end while both their workers are there.
Simulation::~Simulation() {
  for (const auto& [name, worker] : workers_) worker->Die();
}

// Frames of one wire keep their order; all of a wire's connections share it.
void Simulation::Carry(const kvtransfer::InProcessNetwork::Wire& wire, Executor& to,
                       std::string& bytes, std::function<void()> deliver) {
  Time& last = wires_[wire.from + ">" + wire.to];
  last = std::max(last, network_.Arrival());
  if (scenario_.damage_every > 0 && network_.random().Below(scenario_.damage_every) == 0) {
    Damage(bytes);
  }
  if (scenario_.revoke_every > 0 && world_.now() < revoke_until_ &&
      network_.random().Below(scenario_.revoke_every) == 0) {
    RevokeAt(network_.Arrival(), static_cast<SimExecutor&>(to));
  }
  network_.Trace("frame", wire.to, bytes);
  network_.At(last, static_cast<SimExecutor&>(to), std::move(deliver));
}

// Flips a bit, or ends the connection.
void Simulation::Damage(std::string& bytes) {
  Random& random = network_.random();
  if (bytes.empty() || random.Below(3) == 0) return bytes.clear();
  bytes[random.Below(bytes.size())] ^= static_cast<char>(1 << random.Below(8));
}

// Whatever lives there has the youngest of its grants revoked, when it has one.
void Simulation::RevokeAt(Time when, const SimExecutor& node) {
  for (const auto& [name, worker] : workers_) {
    if (&worker->executor() != &node || worker->decode() == nullptr) continue;
    network_.At(when, worker->executor(), [this, sink = worker.get()] {
      const auto grant = sink->decode()->YoungestGrant();
      if (!grant.has_value()) return;
      network_.Trace("revoke", sink->options().name, grant->attempt.ToString());
      if (sink->decode()->Revoke(grant->attempt)) ++result_.revocations;
    });
  }
}

SimWorker* Simulation::Find(const std::string& address) {
  const auto found = workers_.find(address);
  return found == workers_.end() ? nullptr : found->second.get();
}

void Simulation::StartWorker(size_t index) {
  SimWorkerOptions options = scenario_.workers[index];
  options.seed += dead_.size();  // another life, another epoch
  SimWorker::Environment environment{
      world_,
      network_,
      data_,
      log_,
      [this](const std::string& address) { return Find(address); },
      [this](worker::WorkerOptions& worker) {
        worker.on_event = [this](std::string_view machine, std::string_view state,
                                 std::string_view event) { cells_.Add(machine, state, event); };
      },
      nullptr};
  workers_[options.name] = std::make_unique<SimWorker>(options, environment);
}

void Simulation::StartRouters() {
  for (size_t i = 0; i < scenario_.routers; ++i) {
    SimRouter::Options options;
    options.name = "router-" + std::to_string(i);
    for (const SimWorkerOptions& worker : scenario_.workers) options.workers.push_back(worker.name);
    options.clock_offset = std::chrono::hours(7 * i);
    options.seed = scenario_.seed * 16 + i;
    options.on_transition = [this](router::RequestState state, router::FlowEvent event) {
      cells_.Add("router", ToString(state), ToString(event));
    };
    routers_.push_back(
        std::make_unique<SimRouter>(options, world_, network_, log_,
                                    [this](const std::string& address) { return Find(address); }));
  }
}

void Simulation::PlanRequests() {
  for (size_t i = 0; i < scenario_.requests.size(); ++i) {
    const PlannedRequest& plan = scenario_.requests[i];
    SimRouter& router = *routers_[plan.router];
    SimClient::Options options;
    options.index = i;
    options.plan = &plan;
    options.window = scenario_.window;
    options.faults = !scenario_.faults.empty();
    options.damage = scenario_.damage_every > 0;
    options.report = [this](const std::string& problem) { Report(problem); };
    options.trace = [this](const std::string& kind, const std::string& text) {
      network_.Trace(kind, "client", text);
    };
    options.on_end = [this, i] {
      --open_;
      world_.After(Forgotten(), [this, i] { CheckForgotten(i); });
    };
    clients_.push_back(std::make_unique<SimClient>(std::move(options), router));
    SimClient* const client = clients_.back().get();
    // Sessions are open by then.
    const Time arrival = world_.now() + milliseconds(600) + plan.arrival;
    network_.At(arrival, router.executor(), [client] { client->Send(); });
    if (plan.cancel_after.has_value()) {
      network_.At(arrival + *plan.cancel_after, router.executor(), [client] { client->Cancel(); });
    }
  }
  open_ = clients_.size();
}

void Simulation::PlanFaults() {
  revoke_until_ = world_.now() + kRevocations;
  for (const PlannedFault& fault : scenario_.faults) {
    world_.At(world_.now() + milliseconds(600) + fault.when, [this, fault] { Hurt(fault); });
  }
  for (const PlannedStandstill& standstill : scenario_.standstills) {
    world_.At(world_.now() + milliseconds(600) + standstill.when,
              [this, standstill] { StandStill(standstill); });
  }
}

// Whose sockets are read when after it is anybody's guess.
void Simulation::StandStill(const PlannedStandstill& standstill) {
  const Time until = world_.now() + standstill.length;
  const auto stop = [&](SimExecutor& node) {
    node.StandStill(until,
                    Duration(network_.random().Below(static_cast<uint64_t>(kMostUnread.count()))));
  };
  const bool all = !standstill.router.has_value() && !standstill.worker.has_value();
  for (size_t i = 0; i < routers_.size(); ++i) {
    if (all || standstill.router == i) stop(routers_[i]->executor());
  }
  for (size_t i = 0; i < scenario_.workers.size(); ++i) {
    if (all || standstill.worker == i) stop(Find(scenario_.workers[i].name)->executor());
  }
}

const SimExecutor* Simulation::PeerOf(const PlannedFault& fault) {
  if (fault.router.has_value()) return &routers_[*fault.router]->executor();
  if (!fault.other_worker.has_value()) return nullptr;
  SimWorker* const other = Find(scenario_.workers[*fault.other_worker].name);
  return other != nullptr ? &other->executor() : nullptr;
}

void Simulation::Hurt(const PlannedFault& fault) {
  const std::string& name = scenario_.workers[fault.worker].name;
  const auto found = workers_.find(name);
  if (found == workers_.end()) return;  // dead already
  const SimExecutor& node = found->second->executor();
  const SimExecutor* const peer = PeerOf(fault);
  if (peer != nullptr) {
    network_.Trace("fault", name, "connections with " + peer->name() + " break");
    return network_.BreakBetween(node, *peer);
  }
  network_.Trace("fault", name, fault.restart.has_value() ? "dies" : "connections break");
  network_.BreakAll(node);
  if (!fault.restart.has_value()) return;
  found->second->Die();
  dead_.push_back(std::move(found->second));
  workers_.erase(found);
  world_.After(*fault.restart, [this, index = fault.worker] { StartWorker(index); });
}

void Simulation::AfterEvent() {
  for (const auto& [name, worker] : workers_) {
    absl::Status status = worker->pool().CheckIntegrity();
    if (status.ok() && worker->cache() != nullptr) status = worker->cache()->CheckIntegrity();
    if (!status.ok()) return Report(name + ": " + std::string(status.message()));
  }
}

// Who stands still has not heard of the end.
Duration Simulation::Forgotten() const {
  Duration longest{0};
  for (const PlannedStandstill& standstill : scenario_.standstills) {
    longest = std::max(longest, standstill.length + kMostUnread);
  }
  return kForgotten + longest;
}

void Simulation::CheckForgotten(size_t request) {
  const SimClient& client = *clients_[request];
  const SimRouter& router = *routers_[scenario_.requests[request].router];
  const Epoch epoch = router.epoch();
  const uint32_t attempts = router.Submits(client.number());
  for (const auto& [name, worker] : workers_) {
    for (uint32_t attempt = 0; attempt <= attempts; ++attempt) {
      if (worker->Has({epoch, client.number(), attempt})) {
        Report(name + " still has " + client.ToString() + " long after its end");
      }
    }
  }
}

void Simulation::CheckIdle() {
  for (const auto& [name, worker] : workers_) {
    const absl::Status status = worker->CheckIdle();
    if (!status.ok()) Report(std::string(status.message()));
  }
  for (const auto& router : routers_) {
    if (router->core().live_requests() > 0) Report(router->executor().name() + " is not idle");
  }
}

void Simulation::Report(const std::string& problem) {
  if (result_.problem.empty()) {
    result_.problem =
        "at " + std::to_string(world_.now().time_since_epoch().count()) + " ns: " + problem;
  }
}

void Simulation::CountLosses(const SimWorker& worker) {
  result_.preemptions += worker.preemptions();
  result_.revoked_for_room += worker.revocations();
}

SimulationResult Simulation::Run() {
  for (size_t i = 0; i < scenario_.workers.size(); ++i) StartWorker(i);
  StartRouters();
  PlanRequests();
  PlanFaults();
  world_.set_after_event([this] { AfterEvent(); });
  const bool ended = world_.RunUntilTrue([this] { return open_ == 0 || !result_.problem.empty(); },
                                         world_.now() + kLimit);
  for (const auto& client : clients_) {
    if (!ended && !client->ended()) Report(client->ToString() + " never ended");
    if (client->ended()) ++result_.ends[absl::StatusCodeToString(client->end().code())];
    result_.tokens += client->tokens();
    result_.cached_tokens += client->cached_tokens();
  }
  for (const auto& [name, worker] : workers_) CountLosses(*worker);
  for (const auto& worker : dead_) CountLosses(*worker);
  result_.revoked_for_room -= result_.revocations;
  if (result_.problem.empty()) {
    world_.RunFor(Forgotten() + milliseconds(1));
    CheckIdle();
  }
  result_.trace = network_.trace();
  result_.events = world_.events_run();
  return result_;
}

std::string ReplayCommand(const Scenario& scenario) {
  return "bazel run //tests/simulation:simulate -- --seed=" + std::to_string(scenario.seed) +
         " --verbose" + (scenario.faults.empty() ? "" : " --faults") +
         (scenario.standstills.empty() ? "" : " --standstills") +
         (scenario.shared_prefixes ? " --prefixes" : "") +
         (scenario.revoke_every > 0 ? " --revocations" : "") +
         (scenario.small_pools ? " --small-pools" : "") +
         (scenario.window > 0 ? " --windows" : "") +
         (scenario.workers.front().prefill ? "" : " --unified");
}

}  // namespace baton::sim
