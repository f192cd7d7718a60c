// Workers by host name: asks again and again which addresses a name has, and says which came and
// which went.
#ifndef BATON_ROUTER_WORKER_DISCOVERY_H_
#define BATON_ROUTER_WORKER_DISCOVERY_H_

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"
#include "common/log.h"
#include "common/time.h"
#include "router/core_options.h"
#include "router/resolver.h"

namespace baton::router {

// Whether the address's host is a number, so that there is nothing to resolve.
bool IsNumeric(const std::string& host_port);

// Owner thread: the executor's, where the observer is called too, in tasks of its own. Everything
// passed in must outlive it. Every address of a name is one worker at the name's port. A name that
// does not resolve keeps the addresses it had: a name server that is down takes no worker away.
class WorkerDiscovery {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    // Once for each name that has the address.
    virtual void OnWorkerFound(const WorkerAddress& worker) = 0;
    // No name has this address any more.
    virtual void OnWorkerGone(const std::string& address) = 0;
  };

  struct Options {
    std::vector<WorkerAddress> names;  // HOST:PORT
    // From an answer to the next question.
    Duration interval = std::chrono::seconds(5);
    // Refresh asks no earlier after the last question.
    Duration pause = std::chrono::milliseconds(250);
  };

  WorkerDiscovery(Options options, Resolver& resolver, Executor& executor, Observer& observer,
                  const Logger& log);

  void Start();
  // Nobody is called any more.
  void Stop();
  // Something is wrong with a worker: asks before the interval is over.
  void Refresh();
  // Every name has resolved at least once.
  bool complete() const;

 private:
  struct Name {
    WorkerAddress listed;
    std::string host;
    int port = 0;
    std::set<std::string> addresses;
    bool resolved = false;
    bool failing = false;
    bool asking = false;
    bool ask_again = false;
    Time asked;
    TimerHandle timer;
  };

  void Ask(Name& name);
  void Answer(Name& name, const absl::StatusOr<std::vector<std::string>>& hosts);
  void Take(Name& name, const std::vector<std::string>& hosts);
  void Fail(Name& name, const absl::Status& why);

  const Options options_;
  Resolver& resolver_;
  Executor& executor_;
  Observer& observer_;
  const Logger& log_;
  std::vector<Name> names_;               // never grows
  std::map<std::string, size_t> listed_;  // address: how many names have it
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_DISCOVERY_H_
