#include "router/extent_index.h"

#include <algorithm>

#include "common/check.h"

namespace baton::router {
namespace {

constexpr size_t kEntryBytes = sizeof(uint64_t) + sizeof(uint32_t);
constexpr uint64_t kSameEntry = ~uint64_t{0xff};  // of a key: all but the depth

uint32_t GroupOf(uint64_t key) { return key >> 8 & 0xff; }
uint32_t DepthOf(uint64_t key) { return key & 0xff; }

bool Any(const std::vector<uint32_t>& bits) {
  return std::any_of(bits.begin(), bits.end(), [](uint32_t word) { return word != 0; });
}

template <typename Visit>
void ForEachPlace(uint32_t group, uint32_t bits, const Visit& visit) {
  for (; bits != 0; bits &= bits - 1) {
    visit(group * 32 + static_cast<uint32_t>(std::countr_zero(bits)));
  }
}

// Grows by an eighth, so that little stands empty.
size_t WithSpare(size_t entries) { return entries + std::max<size_t>(entries / 8, 4); }

}  // namespace

ExtentIndex::ExtentIndex(size_t max_bytes)
    : max_bytes_(max_bytes),
      shards_(kShards),
      leave_cursor_(kShards),
      cap_cursor_(kShards),
      bytes_(sizeof *this + kShards * sizeof(Shard) + 3 * kMaxPlaces / 8) {
  BATON_CHECK(max_bytes_ >= kLeastBytes);
}

std::optional<uint32_t> ExtentIndex::AddPlace() {
  while (free_.empty() && places_ == kMaxPlaces && SweepRemoved()) {
  }
  uint32_t place = places_;
  if (!free_.empty()) {
    place = *free_.begin();
    free_.erase(free_.begin());
  } else if (places_ == kMaxPlaces) {
    return std::nullopt;
  } else {
    ++places_;
  }
  const size_t words = (places_ + 31) / 32;
  for (PlaceBits* bits : {&live_, &leaving_, &left_}) bits->resize(words);
  live_[place / 32] |= 1u << place % 32;
  return place;
}

void ExtentIndex::RemovePlace(uint32_t place) {
  BATON_CHECK(IsLive(place));
  live_[place / 32] &= ~(1u << place % 32);
  left_[place / 32] |= 1u << place % 32;
}

// A round over all shards for those that had left when it began; then their numbers are free.
bool ExtentIndex::SweepRemoved() {
  if (leave_cursor_ == kShards) {
    if (!Any(left_)) return false;
    leaving_.swap(left_);
    leave_cursor_ = 0;
  }
  Sweep(shards_[leave_cursor_]);
  if (++leave_cursor_ < kShards) return true;
  for (uint32_t group = 0; group < leaving_.size(); ++group) {
    ForEachPlace(group, leaving_[group], [this](uint32_t place) { free_.insert(place); });
    leaving_[group] = 0;
  }
  return true;
}

void ExtentIndex::Set(uint32_t place, const Digest& block, uint32_t depth) {
  BATON_CHECK(IsLive(place));
  SweepRemoved();
  depth = std::min(depth, kDeepest);
  if (bytes_ <= max_bytes_ / 4 * 3) {
    limit_ = kDeepest;
    cap_cursor_ = kShards;
  }
  Shard& shard = shards_[ShardOf(block)];
  const bool full = shard.keys.size() == shard.keys.capacity();
  const size_t growth =
      full ? (WithSpare(shard.keys.size()) - shard.keys.size()) * kEntryBytes : size_t{0};
  if (depth > limit_ || !MakeRoom(growth) || depth > limit_) {
    ++dropped_;
    return;
  }
  const uint64_t key = KeyOf(block, place / 32);
  const uint32_t bit = 1u << place % 32;
  const size_t at = Find(shard, key);
  if (at == shard.keys.size() || (shard.keys[at] & kSameEntry) != key) {
    Insert(shard, at, key | depth, bit);
  } else if ((shard.bits[at] & bit) != 0) {
    return;
  } else {
    shard.bits[at] |= bit;
  }
  ++entries_;
}

bool ExtentIndex::Clear(uint32_t place, const Digest& block) {
  BATON_CHECK(IsLive(place));
  Shard& shard = shards_[ShardOf(block)];
  const uint64_t key = KeyOf(block, place / 32);
  const uint32_t bit = 1u << place % 32;
  const size_t at = Find(shard, key);
  if (at == shard.keys.size() || (shard.keys[at] & kSameEntry) != key) return false;
  if ((shard.bits[at] & bit) == 0) return false;
  shard.bits[at] &= ~bit;
  --entries_;
  if (shard.bits[at] == 0) Erase(shard, at);
  return true;
}

size_t ExtentIndex::Find(const Shard& shard, uint64_t key) {
  return static_cast<size_t>(std::lower_bound(shard.keys.begin(), shard.keys.end(), key) -
                             shard.keys.begin());
}

void ExtentIndex::Insert(Shard& shard, size_t at, uint64_t key, uint32_t bits) {
  if (shard.keys.size() == shard.keys.capacity()) Resize(shard, WithSpare(shard.keys.size()));
  shard.keys.insert(shard.keys.begin() + static_cast<ptrdiff_t>(at), key);
  shard.bits.insert(shard.bits.begin() + static_cast<ptrdiff_t>(at), bits);
  ++by_depth_[DepthOf(key)];
}

void ExtentIndex::Erase(Shard& shard, size_t at) {
  --by_depth_[DepthOf(shard.keys[at])];
  shard.keys.erase(shard.keys.begin() + static_cast<ptrdiff_t>(at));
  shard.bits.erase(shard.bits.begin() + static_cast<ptrdiff_t>(at));
  GiveBack(shard);
}

void ExtentIndex::Resize(Shard& shard, size_t capacity) {
  Shard moved;
  moved.keys.reserve(capacity);
  moved.bits.reserve(capacity);
  moved.keys.assign(shard.keys.begin(), shard.keys.end());
  moved.bits.assign(shard.bits.begin(), shard.bits.end());
  bytes_ -= shard.keys.capacity() * kEntryBytes;
  shard = std::move(moved);
  bytes_ += shard.keys.capacity() * kEntryBytes;
}

void ExtentIndex::GiveBack(Shard& shard) {
  const size_t wanted = WithSpare(shard.keys.size());
  if (shard.keys.capacity() > wanted + wanted / 8) Resize(shard, wanted);
}

// Takes out what places that are gone held, and what is too deep.
void ExtentIndex::Sweep(Shard& shard) {
  size_t kept = 0;
  for (size_t i = 0; i < shard.keys.size(); ++i) {
    const uint64_t key = shard.keys[i];
    const uint32_t had = shard.bits[i];
    uint32_t has = had & live_[GroupOf(key)];
    if (DepthOf(key) > limit_) {
      dropped_ += static_cast<uint64_t>(std::popcount(has));
      has = 0;
    }
    entries_ -= static_cast<uint64_t>(std::popcount(had) - std::popcount(has));
    if (has == 0) {
      --by_depth_[DepthOf(key)];
      continue;
    }
    shard.keys[kept] = key;
    shard.bits[kept++] = has;
  }
  shard.keys.resize(kept);
  shard.bits.resize(kept);
  GiveBack(shard);
}

bool ExtentIndex::MakeRoom(size_t bytes) {
  while (bytes_ + bytes > max_bytes_) {
    if (cap_cursor_ == kShards) {
      if (limit_ == 0) return false;
      LowerLimit();
      cap_cursor_ = 0;
    }
    Sweep(shards_[cap_cursor_++]);
  }
  return true;
}

// So that at least an eighth goes.
void ExtentIndex::LowerLimit() {
  uint64_t all = 0;
  for (const uint64_t count : by_depth_) all += count;
  uint64_t kept = by_depth_[0];
  uint32_t limit = 0;
  while (limit + 1 < limit_ && kept + by_depth_[limit + 1] <= all - all / 8) {
    kept += by_depth_[++limit];
  }
  limit_ = limit;
}

bool ExtentIndex::Holders(const Digest& block, const PlaceBits& among, PlaceBits& out) const {
  const Shard& shard = shards_[ShardOf(block)];
  const uint64_t name = KeyOf(block, 0);
  bool any = false;
  std::fill(out.begin(), out.end(), 0);
  for (size_t at = Find(shard, name); at < shard.keys.size(); ++at) {
    const uint64_t key = shard.keys[at];
    if (key >> 16 != name >> 16) break;
    const uint32_t holds = shard.bits[at] & among[GroupOf(key)];
    out[GroupOf(key)] = holds;
    any |= holds != 0;
  }
  return any;
}

void ExtentIndex::Match(std::span<const Digest> blocks, std::vector<uint32_t>& held) const {
  held.assign(places_, 0);
  PlaceBits along = live_;
  PlaceBits next(live_.size());
  size_t at = 0;
  for (bool any = Any(along); any; at += kExtentBlocks) {
    const std::span<const Digest> rest = blocks.subspan(at);
    const bool full = rest.size() >= kExtentBlocks;
    std::fill(next.begin(), next.end(), 0);
    any = full && Holders(rest[kExtentBlocks - 1], along, next);
    for (size_t group = 0; group < along.size(); ++group) along[group] ^= next[group];
    MatchEnd(rest.first(std::min<size_t>(rest.size(), kExtentBlocks - 1)), at, along, held);
    along.swap(next);
  }
}

// Of `lost`, which hold the prompt up to here and not the extent that begins here.
void ExtentIndex::MatchEnd(std::span<const Digest> extent, size_t before, PlaceBits& lost,
                           std::vector<uint32_t>& held) const {
  if (!Any(lost)) return;
  const auto note = [&held](PlaceBits& places, size_t blocks) {
    for (uint32_t group = 0; group < places.size(); ++group) {
      ForEachPlace(group, places[group],
                   [&](uint32_t place) { held[place] = static_cast<uint32_t>(blocks); });
    }
  };
  note(lost, before);
  PlaceBits holders(lost.size());
  for (size_t count = extent.size(); count > 0; --count) {
    if (!Holders(extent[count - 1], lost, holders)) continue;
    note(holders, before + count);
    for (size_t group = 0; group < lost.size(); ++group) lost[group] &= ~holders[group];
  }
}

}  // namespace baton::router
