// From a host name to the addresses behind it.
#ifndef BATON_ROUTER_RESOLVER_H_
#define BATON_ROUTER_RESOLVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/executor.h"

namespace baton::router {

// Owner thread: the executor's.
class Resolver {
 public:
  // Numeric addresses, at least one, without brackets; or why there is none now.
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>>)>;

  virtual ~Resolver() = default;
  // `done` is called once, in a later task of the executor; it may be called after this object is
  // gone.
  virtual void Resolve(const std::string& host, Done done) = 0;
};

// The system's resolver (/etc/hosts, DNS). IPv4 addresses; IPv6 ones when there are no others, so
// that one worker with both is one. A lookup has a thread of its own, which is not waited for: a
// name server that does not answer holds nothing up. Nothing is posted after it is destroyed.
std::unique_ptr<Resolver> MakeSystemResolver(Executor& executor);

}  // namespace baton::router

#endif  // BATON_ROUTER_RESOLVER_H_
