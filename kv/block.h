#ifndef BATON_KV_BLOCK_H_
#define BATON_KV_BLOCK_H_

#include <cstdint>

namespace baton::kv {

// Index of a block within the pool (and arenas) of its KV group.
using BlockId = uint32_t;

// In a list of blocks by position: a place without a block. What was there slid out of the group's
// window, or what is to be there holds earlier positions until then (kv/sliding_windows.h).
inline constexpr BlockId kNoBlock = UINT32_MAX;

// Index of a KV group within the layout (llama: only group 0).
using GroupId = uint32_t;

struct BlockRef {
  GroupId group = 0;
  BlockId block = 0;
  bool operator==(const BlockRef&) const = default;
};

// What block `to` of a group is to hold as well.
struct BlockCopy {
  GroupId group = 0;
  BlockId from = 0;
  BlockId to = 0;
  bool operator==(const BlockCopy&) const = default;
};

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_H_
