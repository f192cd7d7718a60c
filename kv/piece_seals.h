// CRC32C of finished pieces beside the arena that holds them. Who writes KV seals a piece while it
// is in the cache; who ships it takes the CRC from here instead of reading the piece. A block that
// is shipped again, to another worker or as a cached prefix, is not read for its CRC either, and
// memory that changes after the seal is found by the sink.
#ifndef BATON_KV_PIECE_SEALS_H_
#define BATON_KV_PIECE_SEALS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kv/block.h"
#include "kv/layout.h"

namespace baton::kv {

// Threads: whoever may write a block's pieces may seal and break them; whoever may read them may
// ask for the seal. What orders the two for the bytes orders them for the seal.
class PieceSeals {
 public:
  // `blocks`: per group. No piece is sealed.
  PieceSeals(const KvLayout& layout, const std::vector<uint32_t>& blocks);

  // All pieces of `block` in `layer`, as their bytes are now. `view` is of the arena's layout.
  void Seal(const KvView& view, uint32_t layer, BlockId block);
  // The bytes in `layer` are no longer what was sealed.
  void Break(uint32_t layer, BlockId block);
  // In every layer of `group`.
  void BreakBlock(uint32_t group, BlockId block);

  // Nothing when the piece is not sealed.
  std::optional<uint32_t> Crc(uint32_t layer, uint32_t arena, BlockId block) const;

 private:
  const std::vector<std::vector<uint32_t>> group_layers_;
  // [layer][block * arenas + arena]: kSealed | CRC, or 0.
  std::vector<std::vector<uint64_t>> seals_;
  std::vector<uint32_t> arenas_;  // of the layer
};

}  // namespace baton::kv

#endif  // BATON_KV_PIECE_SEALS_H_
