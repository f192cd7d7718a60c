#include "kv/piece_seals.h"

#include <algorithm>
#include <span>

#include "common/check.h"
#include "common/crc32c.h"

namespace baton::kv {
namespace {

constexpr uint64_t kSealed = uint64_t{1} << 32;

std::vector<std::vector<uint32_t>> GroupLayers(const KvLayout& layout) {
  std::vector<std::vector<uint32_t>> layers;
  for (uint32_t group = 0; group < layout.groups.size(); ++group) {
    layers.push_back(layout.LayersOf(group));
  }
  return layers;
}

}  // namespace

PieceSeals::PieceSeals(const KvLayout& layout, const std::vector<uint32_t>& blocks)
    : group_layers_(GroupLayers(layout)) {
  for (const KvLayerSpec& layer : layout.layers) {
    arenas_.push_back(static_cast<uint32_t>(layer.arenas.size()));
    seals_.emplace_back(uint64_t{blocks[layer.group]} * layer.arenas.size(), 0);
  }
}

void PieceSeals::Seal(const KvView& view, uint32_t layer, BlockId block) {
  for (uint32_t arena = 0; arena < arenas_[layer]; ++arena) {
    const std::span<const std::byte> piece(view.Piece(layer, arena, block),
                                           view.layout->PieceBytes(layer, arena));
    seals_[layer][uint64_t{block} * arenas_[layer] + arena] = kSealed | Crc32c(piece);
  }
}

void PieceSeals::Break(uint32_t layer, BlockId block) {
  const auto first = seals_[layer].begin() + static_cast<ptrdiff_t>(block) * arenas_[layer];
  std::fill_n(first, arenas_[layer], 0);
}

void PieceSeals::BreakBlock(uint32_t group, BlockId block) {
  for (const uint32_t layer : group_layers_[group]) Break(layer, block);
}

std::optional<uint32_t> PieceSeals::Crc(uint32_t layer, uint32_t arena, BlockId block) const {
  const uint64_t seal = seals_[layer][uint64_t{block} * arenas_[layer] + arena];
  if ((seal & kSealed) == 0) return std::nullopt;
  return static_cast<uint32_t>(seal);
}

}  // namespace baton::kv
