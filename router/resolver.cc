#include "router/resolver.h"

#include <netdb.h>
#include <sys/socket.h>

#include <set>
#include <thread>
#include <utility>

#include "common/mutex.h"

namespace baton::router {
namespace {

std::set<std::string> OfFamily(const addrinfo& first, int family) {
  std::set<std::string> addresses;
  for (const addrinfo* info = &first; info != nullptr; info = info->ai_next) {
    char text[NI_MAXHOST];
    if (info->ai_family == family && getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof text,
                                                 nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.insert(text);
    }
  }
  return addresses;
}

absl::StatusOr<std::vector<std::string>> LookUp(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  std::set<std::string> addresses = OfFamily(*found, AF_INET);
  if (addresses.empty()) addresses = OfFamily(*found, AF_INET6);
  freeaddrinfo(found);
  if (addresses.empty()) return absl::UnavailableError("it has no address");
  return std::vector<std::string>(addresses.begin(), addresses.end());
}

class SystemResolver : public Resolver {
 public:
  explicit SystemResolver(Executor& executor) : link_(std::make_shared<Link>()) {
    MutexLock lock(link_->mutex);
    link_->executor = &executor;
  }

  ~SystemResolver() override {
    MutexLock lock(link_->mutex);
    link_->executor = nullptr;
  }

  void Resolve(const std::string& host, Done done) override {
    std::thread([link = link_, host, done = std::move(done)] {
      auto addresses = LookUp(host);
      MutexLock lock(link->mutex);
      if (link->executor == nullptr) return;
      link->executor->Post([done, addresses = std::move(addresses)] { done(addresses); });
    }).detach();
  }

 private:
  // Shared with the threads, which may outlive the resolver.
  struct Link {
    Mutex mutex;
    Executor* executor BATON_GUARDED_BY(mutex) = nullptr;
  };

  const std::shared_ptr<Link> link_;
};

}  // namespace

std::unique_ptr<Resolver> MakeSystemResolver(Executor& executor) {
  return std::make_unique<SystemResolver>(executor);
}

}  // namespace baton::router
