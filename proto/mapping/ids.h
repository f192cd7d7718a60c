// Epoch, AttemptId and Digest (common/ids.h) <-> state.v1. A missing message maps to zeros: an
// epoch of zeros is never a process.
#ifndef BATON_PROTO_MAPPING_IDS_H_
#define BATON_PROTO_MAPPING_IDS_H_

#include "baton/state/v1/state.pb.h"
#include "common/ids.h"

namespace baton::proto {

inline void Set(const Epoch& from, state::v1::Epoch& to) {
  to.set_hi(from.hi);
  to.set_lo(from.lo);
}

inline void Set(const Digest& from, state::v1::Digest& to) {
  to.set_hi(from.hi);
  to.set_lo(from.lo);
}

inline void Set(const AttemptId& from, state::v1::AttemptId& to) {
  Set(from.router, *to.mutable_router());
  to.set_request(from.request);
  to.set_attempt(from.attempt);
}

inline Epoch Get(const state::v1::Epoch& from) { return {from.hi(), from.lo()}; }

inline Digest Get(const state::v1::Digest& from) { return {from.hi(), from.lo()}; }

inline AttemptId Get(const state::v1::AttemptId& from) {
  return {Get(from.router()), from.request(), from.attempt()};
}

}  // namespace baton::proto

#endif  // BATON_PROTO_MAPPING_IDS_H_
