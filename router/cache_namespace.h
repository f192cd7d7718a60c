// Who shares cached prefixes with whom.
#ifndef BATON_ROUTER_CACHE_NAMESPACE_H_
#define BATON_ROUTER_CACHE_NAMESPACE_H_

#include <string>

#include "common/ids.h"
#include "router/request.h"

namespace baton::router {

// DecoderState::cache_namespace on workers with this numerics_id: an opaque digest of it, the
// tenant and the salt. Empty, which means no cache, for a request that bypasses it. The same on all
// routers.
std::string CacheNamespace(const RequestSpec& spec, const Digest& numerics_id);

}  // namespace baton::router

#endif  // BATON_ROUTER_CACHE_NAMESPACE_H_
