// How fast this machine multiplies at most: loops of one multiply-add instruction.
#ifndef BATON_BENCHMARKS_MULTIPLY_ADD_H_
#define BATON_BENCHMARKS_MULTIPLY_ADD_H_

#include <vector>

#include "benchmarks/multiply_add_tables.h"

namespace baton::benchmarks {

// Those that this processor has. Thread-safe, and so is what they name.
std::vector<MultiplyAdd> MultiplyAdds();

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_MULTIPLY_ADD_H_
