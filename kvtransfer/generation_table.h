// Generations of transfers, where a peer that maps them can see that a source has taken its blocks
// back (shm).
#ifndef BATON_KVTRANSFER_GENERATION_TABLE_H_
#define BATON_KVTRANSFER_GENERATION_TABLE_H_

#include <cstdint>
#include <optional>

namespace baton::kvtransfer {

class GenerationTable {
 public:
  struct Slot {
    uint32_t index = 0;
    uint64_t generation = 0;
  };

  virtual ~GenerationTable() = default;
  // A slot for a new transfer. Nothing when all are taken.
  virtual std::optional<Slot> Take() = 0;
  // The transfer's blocks may be reused from now on: whoever copies them sees another generation.
  virtual void Retire(uint32_t index) = 0;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_GENERATION_TABLE_H_
