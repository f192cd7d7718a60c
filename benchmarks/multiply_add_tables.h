// One table per instruction set of loops over one multiply-add instruction. No standard header
// here: an inline function compiled for another instruction set could be linked into everything.
#ifndef BATON_BENCHMARKS_MULTIPLY_ADD_TABLES_H_
#define BATON_BENCHMARKS_MULTIPLY_ADD_TABLES_H_

#include <stdint.h>

namespace baton::benchmarks {

struct MultiplyAdd {
  const char* name;                  // of the instruction, in the rows' names
  uint64_t macs_per_iteration;       // multiply-accumulates
  void (*run)(uint64_t iterations);  // operands stay in registers
};

// Run them only where cpuid says so.
// Bytes summed in 16 bits (maddubs), 16-bit numbers summed in 32 bits (pmaddwd), and fma.
extern const MultiplyAdd kAvx2MultiplyAdds[3];
// Four bytes (dpbusd) and two 16-bit numbers (dpwssd) summed into 32 bits by one instruction.
extern const MultiplyAdd kAvxVnniMultiplyAdds[2];
// The same in 512 bits, and fma.
extern const MultiplyAdd kAvx512MultiplyAdds[3];

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_MULTIPLY_ADD_TABLES_H_
