// KvLayout: how the keys and values of a model lie in memory, chosen by a backend. A block is
// `block_size` consecutive positions of one sequence for all layers of one KV group. In each layer
// a block has one contiguous piece per arena (arena 0: K, arena 1: V), so a block is moved between
// workers by copying pieces, with no reformatting.
#ifndef BATON_KV_LAYOUT_H_
#define BATON_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "kv/block.h"

namespace baton::kv {

// The values are part of the layout fingerprint: never renumber.
// kInt8: signed bytes; behind those of a piece lies a float for each head and slot,
// [kv_head][slot]: a number is its byte times the scale of its slot.
enum class KvDtype : uint8_t { kF16 = 1, kF32 = 2, kF64 = 3, kInt8 = 4 };
enum class KvOrder : uint8_t {
  kHeadDimSlot = 1,  // [kv_head][head_dim][slot]: lanes are positions
  kHeadSlotDim = 2,  // [kv_head][slot][head_dim]
};

// Of one number; without scales.
uint64_t BytesOf(KvDtype dtype);

inline constexpr uint32_t kKeyArena = 0;
inline constexpr uint32_t kValueArena = 1;

// One arena of one layer; heads are those of one shard.
struct KvArenaSpec {
  KvDtype dtype = KvDtype::kF16;
  KvOrder order = KvOrder::kHeadSlotDim;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  bool operator==(const KvArenaSpec&) const = default;
};

struct KvLayerSpec {
  uint32_t group = 0;
  std::vector<KvArenaSpec> arenas;  // 1..16
  bool operator==(const KvLayerSpec&) const = default;
};

struct KvGroupSpec {
  uint32_t window = 0;  // positions a query sees, its own included; 0: all
  bool operator==(const KvGroupSpec&) const = default;
};

// A value; thread-compatible. Call Validate() on one that was not built by a backend.
struct KvLayout {
  uint32_t block_size = 16;  // slots: a power of two, 16 to 256
  uint32_t shards = 1;       // tensor-parallel ranks; every shard has this same layout
  std::vector<KvGroupSpec> groups;
  std::vector<KvLayerSpec> layers;  // in the order in which the forward pass finishes them

  // INVALID_ARGUMENT names the field. Bounds what a peer can claim: at most 4,096 layers, 64
  // groups, pieces of at most 64 MiB; every group has a layer.
  absl::Status Validate() const;

  // Bytes of one block of `layer` in `arena`.
  uint64_t PieceBytes(uint32_t layer, uint32_t arena) const;
  // Where the piece of `block` begins within the memory of (layer, arena): block n of a group lies
  // at n * PieceBytes in every arena of its layers.
  uint64_t PieceOffset(uint32_t layer, uint32_t arena, BlockId block) const {
    return block * PieceBytes(layer, arena);
  }
  // Bytes of one block over all layers and arenas of `group`.
  uint64_t BlockBytes(uint32_t group) const;
  // Ascending.
  std::vector<uint32_t> LayersOf(uint32_t group) const;

  // Equal exactly when blocks may move between two workers: everything above and the version of
  // the transfer protocol. Not the number of blocks.
  Digest Fingerprint(uint32_t protocol_version) const;

  // One line for logs and error texts.
  std::string ToString() const;

  bool operator==(const KvLayout&) const = default;
};

// The usual layout: every layer in one group without a window, K and V of one dtype.
struct UniformKvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_size = 16;
};
KvLayout MakeUniformLayout(const UniformKvShape& shape, KvDtype dtype, KvOrder key_order,
                           KvOrder value_order);

// Where the arenas of one worker lie: what kernels are given. A value; it owns nothing, and
// `layout` and the memory must outlive it. Threads may use different blocks at the same time.
struct KvView {
  const KvLayout* layout = nullptr;
  std::vector<std::vector<std::byte*>> base;       // [layer][arena]
  std::vector<std::vector<uint64_t>> piece_bytes;  // layout->PieceBytes, for every block of a loop

  std::byte* Piece(uint32_t layer, uint32_t arena, BlockId block) const {
    return base[layer][arena] + block * piece_bytes[layer][arena];
  }
};

}  // namespace baton::kv

#endif  // BATON_KV_LAYOUT_H_
