// Fair shares between tenants by virtual token counters: a counter grows with what its tenant was
// served, and of the tenants with something waiting the one with the smallest counter is next. Two
// tenants that wait all the time differ by a bounded number of tokens, however much each asks for.
//
// A tenant that has something waiting again is lifted to the smallest counter of those that wait
// (nobody waits: to the one that left last), so that time away earns nothing.
//
// Memory: tenants with live requests, and at most `max_idle` others. A counter at or below the
// level of the next lift is forgotten at once, because the lift would give it the same value.
#ifndef BATON_ROUTER_TENANT_COUNTERS_H_
#define BATON_ROUTER_TENANT_COUNTERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace baton::router {

// Owner thread: the core's. A tenant is known from its first Hold.
class TenantCounters {
 public:
  explicit TenantCounters(size_t max_idle) : max_idle_(max_idle) {}

  // A request of the tenant lives; as many Release end that.
  void Hold(const std::string& tenant);
  void Release(const std::string& tenant);

  // Something of a held tenant waits; nothing does any more.
  void Join(const std::string& tenant);
  void Leave(const std::string& tenant);

  // What a held tenant was served.
  void Charge(const std::string& tenant, uint64_t tokens);

  bool anyone_waits() const { return !waiting_.empty(); }
  // Smallest counter, ties by name. Only while anyone waits.
  const std::string& Next() const { return waiting_.begin()->second; }

  // The counter; for one that does not wait, what it would be after Join.
  uint64_t Of(const std::string& tenant) const;

  size_t size() const { return tenants_.size(); }

 private:
  struct Tenant {
    uint64_t counter = 0;
    size_t live = 0;
    bool waits = false;
  };
  using Order = std::set<std::pair<uint64_t, std::string>>;

  // What a tenant that comes now is lifted to; never falls.
  uint64_t Level() const;
  void Forget();

  const size_t max_idle_;
  std::map<std::string, Tenant> tenants_;
  Order waiting_;
  Order idle_;  // no live request
  std::string last_left_;
  uint64_t level_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_TENANT_COUNTERS_H_
