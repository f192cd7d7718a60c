#include "router/tenant_counters.h"

#include <algorithm>

namespace baton::router {

void TenantCounters::Hold(const std::string& tenant) {
  Tenant& t = tenants_[tenant];
  if (t.live++ == 0) idle_.erase({t.counter, tenant});
}

void TenantCounters::Release(const std::string& tenant) {
  Tenant& t = tenants_.at(tenant);
  if (--t.live > 0) return;
  idle_.insert({t.counter, tenant});
  Forget();
}

void TenantCounters::Join(const std::string& tenant) {
  Tenant& t = tenants_.at(tenant);
  if (t.waits) return;
  level_ = Level();
  t.counter = std::max(t.counter, level_);
  t.waits = true;
  waiting_.insert({t.counter, tenant});
}

// `tenant` may be what Next() returned, a name within waiting_: the map's own name outlives it.
void TenantCounters::Leave(const std::string& tenant) {
  auto& [name, t] = *tenants_.find(tenant);
  if (!t.waits) return;
  level_ = Level();
  t.waits = false;
  waiting_.erase({t.counter, name});
  last_left_ = name;
}

void TenantCounters::Charge(const std::string& tenant, uint64_t tokens) {
  auto& [name, t] = *tenants_.find(tenant);
  if (t.waits) waiting_.erase({t.counter, name});
  t.counter += tokens;
  if (t.waits) waiting_.insert({t.counter, name});
}

uint64_t TenantCounters::Of(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return Level();
  return found->second.waits ? found->second.counter : std::max(found->second.counter, Level());
}

uint64_t TenantCounters::Level() const {
  if (anyone_waits()) return std::max(level_, waiting_.begin()->first);
  const auto last = tenants_.find(last_left_);
  return last == tenants_.end() ? level_ : std::max(level_, last->second.counter);
}

void TenantCounters::Forget() {
  level_ = Level();
  while (!idle_.empty() && (idle_.begin()->first <= level_ || idle_.size() > max_idle_)) {
    tenants_.erase(idle_.begin()->second);
    idle_.erase(idle_.begin());
  }
}

}  // namespace baton::router
