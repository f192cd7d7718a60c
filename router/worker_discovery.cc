#include "router/worker_discovery.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/host_port.h"

namespace baton::router {

bool IsNumeric(const std::string& host_port) {
  const auto parsed = ParseHostPort(host_port);
  if (!parsed.ok()) return false;
  in6_addr address;  // large enough for both
  return inet_pton(AF_INET, parsed->host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, parsed->host.c_str(), &address) == 1;
}

WorkerDiscovery::WorkerDiscovery(Options options, Resolver& resolver, Executor& executor,
                                 Observer& observer, const Logger& log)
    : options_(std::move(options)),
      resolver_(resolver),
      executor_(executor),
      observer_(observer),
      log_(log),
      names_(options_.names.size()) {
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto parsed = ParseHostPort(options_.names[i].address);
    BATON_CHECK(parsed.ok());  // the configuration was checked
    names_[i].listed = options_.names[i];
    names_[i].host = parsed->host;
    names_[i].port = parsed->port;
  }
}

void WorkerDiscovery::Start() {
  for (Name& name : names_) Ask(name);
}

void WorkerDiscovery::Stop() {
  alive_.reset();
  for (Name& name : names_) name.timer.Cancel();
}

void WorkerDiscovery::Refresh() {
  if (alive_ == nullptr) return;
  for (Name& name : names_) {
    if (name.asking) {
      name.ask_again = true;
    } else {
      name.timer = executor_.PostAt(std::max(executor_.Now(), name.asked + options_.pause),
                                    [this, &name] { Ask(name); });
    }
  }
}

bool WorkerDiscovery::complete() const {
  return std::all_of(names_.begin(), names_.end(), [](const Name& name) { return name.resolved; });
}

void WorkerDiscovery::Ask(Name& name) {
  name.asking = true;
  name.ask_again = false;
  name.asked = executor_.Now();
  resolver_.Resolve(name.host, [this, &name, alive = std::weak_ptr<int>(alive_)](
                                   const absl::StatusOr<std::vector<std::string>>& hosts) {
    if (!alive.expired()) Answer(name, hosts);
  });
}

void WorkerDiscovery::Answer(Name& name, const absl::StatusOr<std::vector<std::string>>& hosts) {
  name.asking = false;
  const Time now = executor_.Now();
  const Time next =
      name.ask_again ? std::max(now, name.asked + options_.pause) : now + options_.interval;
  name.timer = executor_.PostAt(next, [this, &name] { Ask(name); });
  if (!hosts.ok()) return Fail(name, hosts.status());
  if (hosts->empty()) return Fail(name, absl::UnavailableError("it has no address"));
  Take(name, *hosts);
}

void WorkerDiscovery::Fail(Name& name, const absl::Status& why) {
  if (name.failing) return;
  name.failing = true;
  log_.Warning("name does not resolve",
               {{"name", name.listed.address}, {"why", std::string(why.message())}});
}

void WorkerDiscovery::Take(Name& name, const std::vector<std::string>& hosts) {
  name.failing = false;
  name.resolved = true;
  std::set<std::string> addresses;
  for (const std::string& host : hosts) addresses.insert(JoinHostPort(host, name.port));
  const std::set<std::string> before = std::exchange(name.addresses, addresses);
  for (const std::string& address : addresses) {
    if (before.contains(address)) continue;
    ++listed_[address];
    log_.Info("worker found", {{"name", name.listed.address}, {"address", address}});
    observer_.OnWorkerFound({address, name.listed.prefill});
  }
  for (const std::string& address : before) {
    if (addresses.contains(address) || --listed_[address] > 0) continue;
    listed_.erase(address);
    log_.Info("worker no longer listed", {{"name", name.listed.address}, {"address", address}});
    observer_.OnWorkerGone(address);
  }
}

}  // namespace baton::router
