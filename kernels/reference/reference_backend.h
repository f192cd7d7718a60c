// The oracle: every operation of Backend as its definition, in double precision throughout. It is
// what the other backends are tested against, so it prefers the obvious to the fast.
#ifndef BATON_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define BATON_KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace baton::kernels {

// Weights are held as the exact float32 values of their format, everything else is float64, the
// blocks too. `threads` (1 to 256) divide outputs and rows among themselves, never a sum, so their
// number does not change a bit.
std::unique_ptr<Backend> CreateReferenceBackend(uint32_t threads);

}  // namespace baton::kernels

#endif  // BATON_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
