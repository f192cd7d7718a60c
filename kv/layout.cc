#include "kv/layout.h"

#include <xxhash.h>

#include "absl/strings/str_cat.h"

namespace baton::kv {
namespace {

constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxGroups = 64;
constexpr uint32_t kMaxArenas = 16;
constexpr uint32_t kMaxShards = 4096;
constexpr uint32_t kMaxHeads = 65536;
constexpr uint64_t kMaxPieceBytes = uint64_t{64} << 20;

uint64_t PieceBytesOf(const KvArenaSpec& spec, uint32_t block_size) {
  const uint64_t slots = uint64_t{block_size} * spec.kv_heads;
  const uint64_t scales = spec.dtype == KvDtype::kInt8 ? slots * sizeof(float) : 0;
  return BytesOf(spec.dtype) * slots * spec.head_dim + scales;
}

absl::Status ValidateArena(const KvArenaSpec& spec, uint32_t block_size, const std::string& where) {
  if (BytesOf(spec.dtype) == 0) return absl::InvalidArgumentError(where + ": unknown dtype");
  if (spec.order != KvOrder::kHeadDimSlot && spec.order != KvOrder::kHeadSlotDim) {
    return absl::InvalidArgumentError(where + ": unknown order");
  }
  if (spec.kv_heads == 0 || spec.kv_heads > kMaxHeads || spec.head_dim == 0 ||
      spec.head_dim > kMaxHeads) {
    return absl::InvalidArgumentError(where + ": kv_heads and head_dim must be 1 to 65536");
  }
  // No overflow: 8 * 2^8 * 2^16 * 2^16.
  if (PieceBytesOf(spec, block_size) > kMaxPieceBytes) {
    return absl::InvalidArgumentError(where + ": a piece is larger than 64 MiB");
  }
  return absl::OkStatus();
}

absl::Status ValidateLayer(const KvLayout& layout, uint32_t layer) {
  const KvLayerSpec& spec = layout.layers[layer];
  const std::string where = absl::StrCat("layer ", layer);
  if (spec.group >= layout.groups.size()) {
    return absl::InvalidArgumentError(where + ": no such group");
  }
  if (spec.arenas.empty() || spec.arenas.size() > kMaxArenas) {
    return absl::InvalidArgumentError(where + ": 1 to 16 arenas");
  }
  for (const KvArenaSpec& arena : spec.arenas) {
    if (auto status = ValidateArena(arena, layout.block_size, where); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Little-endian fixed-width numbers in a fixed order: the digest must not depend on struct padding.
class Canonical {
 public:
  void Add(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  Digest Hash() const {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    return Digest{hash.high64, hash.low64};
  }

 private:
  std::string bytes_;
};

}  // namespace

uint64_t BytesOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF16:
      return 2;
    case KvDtype::kF32:
      return 4;
    case KvDtype::kF64:
      return 8;
    case KvDtype::kInt8:
      return 1;
  }
  return 0;
}

absl::Status KvLayout::Validate() const {
  if (block_size < 16 || block_size > 256 || (block_size & (block_size - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_size ", block_size, ": must be a power of two, 16 to 256"));
  }
  if (shards == 0 || shards > kMaxShards) return absl::InvalidArgumentError("shards: 1 to 4096");
  if (groups.empty() || groups.size() > kMaxGroups) {
    return absl::InvalidArgumentError("groups: 1 to 64");
  }
  if (layers.empty() || layers.size() > kMaxLayers) {
    return absl::InvalidArgumentError("layers: 1 to 4096");
  }
  std::vector<bool> used(groups.size());
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    if (auto status = ValidateLayer(*this, layer); !status.ok()) return status;
    used[layers[layer].group] = true;
  }
  for (size_t group = 0; group < used.size(); ++group) {
    if (!used[group])
      return absl::InvalidArgumentError(absl::StrCat("group ", group, ": no layer"));
  }
  return absl::OkStatus();
}

uint64_t KvLayout::PieceBytes(uint32_t layer, uint32_t arena) const {
  return PieceBytesOf(layers[layer].arenas[arena], block_size);
}

uint64_t KvLayout::BlockBytes(uint32_t group) const {
  uint64_t bytes = 0;
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].group != group) continue;
    for (uint32_t arena = 0; arena < layers[layer].arenas.size(); ++arena) {
      bytes += PieceBytes(layer, arena);
    }
  }
  return bytes;
}

std::vector<uint32_t> KvLayout::LayersOf(uint32_t group) const {
  std::vector<uint32_t> result;
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].group == group) result.push_back(layer);
  }
  return result;
}

Digest KvLayout::Fingerprint(uint32_t protocol_version) const {
  Canonical canonical;
  canonical.Add(protocol_version);
  canonical.Add(block_size);
  canonical.Add(shards);
  canonical.Add(groups.size());
  for (const KvGroupSpec& group : groups) canonical.Add(group.window);
  canonical.Add(layers.size());
  for (const KvLayerSpec& layer : layers) {
    canonical.Add(layer.group);
    canonical.Add(layer.arenas.size());
    for (const KvArenaSpec& arena : layer.arenas) {
      canonical.Add(static_cast<uint64_t>(arena.dtype));
      canonical.Add(static_cast<uint64_t>(arena.order));
      canonical.Add(arena.kv_heads);
      canonical.Add(arena.head_dim);
    }
  }
  return canonical.Hash();
}

std::string KvLayout::ToString() const {
  std::string text = absl::StrCat("block_size ", block_size, ", shards ", shards, ", layers ",
                                  layers.size(), ", block bytes");
  for (uint32_t group = 0; group < groups.size(); ++group) {
    absl::StrAppend(&text, " ", BlockBytes(group));
  }
  return text;
}

KvLayout MakeUniformLayout(const UniformKvShape& shape, KvDtype dtype, KvOrder key_order,
                           KvOrder value_order) {
  KvLayerSpec layer;
  layer.arenas.push_back({dtype, key_order, shape.kv_heads, shape.head_dim});
  layer.arenas.push_back({dtype, value_order, shape.kv_heads, shape.head_dim});
  KvLayout layout;
  layout.block_size = shape.block_size;
  layout.groups.resize(1);
  layout.layers.assign(shape.layers, layer);
  return layout;
}

}  // namespace baton::kv
