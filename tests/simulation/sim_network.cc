#include "tests/simulation/sim_network.h"

#include <algorithm>
#include <utility>

namespace baton::sim {

Pipe::Pipe(SimNetwork& network, SimExecutor& opener, SimExecutor& accepter) : network_(network) {
  ends_[0].node = &opener;
  ends_[1].node = &accepter;
}

void Pipe::SetReceiver(int end, Receiver receiver) {
  ends_[static_cast<size_t>(end)].receiver = std::move(receiver);
}

bool Pipe::Touches(const SimExecutor& node) const {
  return ends_[0].node == &node || ends_[1].node == &node;
}

bool Pipe::logging() const { return network_.logging(); }

void Pipe::Log(int from, const std::string& message) const {
  network_.Log(ends_[static_cast<size_t>(from)].node->name() + " > " +
               ends_[static_cast<size_t>(1 - from)].node->name() + " " + message);
}

void Pipe::Deliver(int to, std::function<void(End&)> what) {
  End& end = ends_[static_cast<size_t>(to)];
  end.last_arrival = std::max(network_.Arrival(), end.last_arrival);
  network_.At(end.last_arrival, *end.node,
              [self = shared_from_this(), to, sent_in = breaks_, what = std::move(what)] {
                End& receiver = self->ends_[static_cast<size_t>(to)];
                if (receiver.open && sent_in == self->breaks_) what(receiver);
              });
}

void Pipe::Arrive(std::function<void()> task) {
  Deliver(1, [task = std::move(task)](End&) { task(); });
}

void Pipe::Send(int from, std::string bytes) {
  if (!ends_[static_cast<size_t>(from)].open) return;
  Deliver(1 - from, [this, bytes = std::move(bytes)](End& end) {
    network_.Trace("message", end.node->name(), bytes);
    // The receiver may go while it runs.
    const auto on_message = end.receiver.on_message;
    if (on_message) on_message(bytes);
  });
}

void Pipe::Close(int from, absl::Status status) {
  End& end = ends_[static_cast<size_t>(from)];
  if (!end.open) return;
  end.open = false;
  end.receiver = {};
  TellClosed(1 - from, status);
}

void Pipe::TellClosed(int to, const absl::Status& status) {
  if (!ends_[static_cast<size_t>(to)].open) return;
  Deliver(to, [this, status](End& end) {
    network_.Trace("closed", end.node->name(), std::string(status.message()));
    end.open = false;
    const auto on_closed = std::exchange(end.receiver, {}).on_closed;
    if (on_closed) on_closed(status);
  });
}

void Pipe::Break() {
  ++breaks_;
  const absl::Status status = absl::UnavailableError("the connection broke");
  TellClosed(0, status);
  TellClosed(1, status);
}

SimNetwork::SimNetwork(SimWorld& world, uint64_t seed, const Options& options)
    : world_(world), random_(seed), options_(options) {}

std::shared_ptr<Pipe> SimNetwork::Connect(SimExecutor& opener, SimExecutor& accepter) {
  auto pipe = std::make_shared<Pipe>(*this, opener, accepter);
  pipes_.erase(std::remove_if(pipes_.begin(), pipes_.end(),
                              [](const std::weak_ptr<Pipe>& p) { return p.expired(); }),
               pipes_.end());
  pipes_.push_back(pipe);
  return pipe;
}

void SimNetwork::BreakAll(const SimExecutor& node) {
  for (const std::weak_ptr<Pipe>& weak : pipes_) {
    const std::shared_ptr<Pipe> pipe = weak.lock();
    if (pipe != nullptr && pipe->Touches(node)) pipe->Break();
  }
}

void SimNetwork::BreakBetween(const SimExecutor& a, const SimExecutor& b) {
  for (const std::weak_ptr<Pipe>& weak : pipes_) {
    const std::shared_ptr<Pipe> pipe = weak.lock();
    if (pipe != nullptr && pipe->Touches(a) && pipe->Touches(b)) pipe->Break();
  }
}

Time SimNetwork::Arrival() {
  const auto spread = static_cast<uint64_t>((options_.max_delay - options_.min_delay).count());
  Duration delay = options_.min_delay + Duration(random_.Below(spread + 1));
  if (options_.slow_every > 0 && random_.Below(options_.slow_every) == 0) {
    delay += Duration(random_.Below(static_cast<uint64_t>(options_.slow_delay.count())));
  }
  return world_.now() + delay;
}

void SimNetwork::At(Time when, SimExecutor& node, std::function<void()> task) {
  world_.At(when, [&node, task = std::move(task)] { node.Post(task); });
}

void SimNetwork::Trace(std::string_view kind, std::string_view where, std::string_view bytes) {
  ++deliveries_;
  const Digest content = HashBytes(bytes);
  const std::string line = std::to_string(world_.now().time_since_epoch().count()) + " " +
                           std::string(kind) + " " + std::string(where) + " " +
                           std::to_string(bytes.size()) + " " + std::to_string(content.lo);
  trace_ = HashBytes(line + std::to_string(trace_.lo) + std::to_string(trace_.hi));
  if (!logging()) return;
  const bool text = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' '; });
  Log(std::string(kind) + " at " + std::string(where) + ": " +
      (text ? std::string(bytes) : std::to_string(bytes.size()) + " bytes"));
}

void SimNetwork::Log(const std::string& line) const {
  log_(std::to_string(world_.now().time_since_epoch().count()) + " " + line);
}

}  // namespace baton::sim
