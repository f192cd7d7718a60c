// Full KV blocks of sequences, running and gone, found again by the tokens that they were computed
// from (DESIGN section 6). The blocks stay in the pool: kept ones that no sequence holds are given
// up, least recently used ones first and none before those that build upon it, when Take needs
// them.
#ifndef BATON_KV_PREFIX_CACHE_H_
#define BATON_KV_PREFIX_CACHE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "common/ids.h"
#include "kv/block.h"
#include "kv/block_hash.h"
#include "kv/block_pool.h"
#include "kv/cache_event.h"
#include "kv/prefix_cache_metrics.h"

namespace baton::kv {

// What a request may find. Made once; the hashes are most of the work of looking.
struct PrefixQuery {
  std::string cache_namespace;
  std::span<const TokenId> tokens;  // of the prompt; must stay where they are
  std::vector<Digest> hashes;       // of the leading blocks that may come from the cache
};

// Where a sequence stands in the cache: its blocks [0, blocks) are kept. A plain value; choices
// that part go on with copies of it. One that was made by default keeps nothing.
struct CacheChain {
  bool open = false;
  std::string cache_namespace = {};
  uint32_t blocks = 0;
  BlockId last = 0;  // of group 0, when blocks > 0
  Digest hash{};     // of the last block, or the root
};

// The blocks of one request: chain.blocks found in the cache, the others new.
struct CachedLease {
  BlockLease lease;
  CacheChain chain;
};

// Owner thread: the pool's. A lookup costs a hash lookup and a comparison of tokens for each block,
// every change O(log n).
class PrefixCache final : private BlockKeeper {
 public:
  struct Options {
    uint32_t block_size = 16;
    // Tests put in hashes that collide.
    Digest (*hash)(const Digest& parent, std::span<const TokenId> tokens) = &BlockHash;
    // Called for every block stored or removed, inside the call that does it.
    std::function<void(const CacheEvent&)> on_event = nullptr;
  };

  // Both must outlive this object; the pool's leases need not.
  PrefixCache(Options options, BlockPool& pool, PrefixCacheMetrics& metrics);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;

  // For whole blocks within the first `most` tokens. Absent for an empty namespace, which stands
  // for "no cache". `tokens` must outlive what is returned.
  std::optional<PrefixQuery> Query(const std::string& cache_namespace,
                                   std::span<const TokenId> tokens, size_t most) const;

  // Tokens that Take would find now. No use of them: they may be given up afterwards.
  uint32_t HeldTokens(const PrefixQuery& query) const;

  // `wanted[g]` blocks of each group, the longest prefix that is found first; or none, as
  // BlockPool::Take, also when fewer than `spare` more would be left in a group. Blocks that are
  // found count as used now and cannot be given up any more. Equal hashes are not believed: the
  // namespace and every token are compared.
  absl::StatusOr<CachedLease> Take(const PrefixQuery& query, const std::vector<uint32_t>& wanted,
                                   uint32_t spare = 0);
  // All of them or none; what one finds is not given up for another. For somebody who had it
  // before: not counted as requests that hit or miss.
  struct Want {
    const PrefixQuery& query;
    const std::vector<uint32_t>& blocks;
  };
  absl::StatusOr<std::vector<CachedLease>> TakeAll(std::span<const Want> wants, uint32_t spare = 0);

  // Keeps block chain.blocks of each group of `lease`, computed from `tokens`: whole, never written
  // again, and behind the chain's other blocks in the same lease. If an equal one is there already
  // it takes this one's place in the lease. A closed chain stays as it is.
  void Store(CacheChain& chain, std::span<const TokenId> tokens, BlockLease& lease);

  // Blocks kept, of group 0.
  uint32_t size() const { return static_cast<uint32_t>(by_hash_.size()); }
  // Up to `most` blocks from page `from` on (0: the first page); as_of is left to the caller.
  CacheSnapshotPage Snapshot(uint32_t from, uint32_t most) const;
  // INTERNAL when what is kept contradicts itself or the pool. Walks every block.
  absl::Status CheckIntegrity() const;

 private:
  static constexpr BlockId kNone = UINT32_MAX;
  // One full block of a chain in every group; named by its block of group 0.
  struct Node {
    bool used = false;
    uint32_t ordinal = 0;
    uint32_t children = 0;
    uint32_t shared = 0;    // groups whose block is in a lease
    uint64_t last_use = 0;  // when `shared` fell to 0
    BlockId parent = kNone;
    Digest parent_hash;
    Digest hash;
    std::map<std::string, uint32_t>::iterator space;  // of its chain
    std::vector<TokenId> tokens;
    std::vector<BlockId> blocks = {};  // by group
  };
  struct DigestHash {
    size_t operator()(const Digest& digest) const { return digest.lo ^ digest.hi; }
  };
  // What a block must be the same in, besides its hash.
  struct Key {
    Digest hash{};
    BlockId parent = kNone;
    std::string_view cache_namespace{};
    std::span<const TokenId> tokens{};
  };

  void OnUnshared(BlockRef ref) override;
  bool GiveUpSome() override;

  std::vector<BlockId> Find(const PrefixQuery& query) const;
  using Nodes = std::vector<BlockId>;
  std::vector<uint32_t> Needed(std::span<const Want> wants, const std::vector<Nodes>& found) const;
  absl::StatusOr<CachedLease> TakeRest(const Want& want, const Nodes& found, BlockLease held);
  bool Same(const Node& node, const Key& key) const;
  BlockLease ShareNodes(const std::vector<BlockId>& nodes);
  void Insert(const CacheChain& chain, const Key& key, const BlockLease& lease);
  void Remove(BlockId id);
  void Emit(CacheEvent::Action action, const Node& node) const;
  CacheEvent EventOf(CacheEvent::Action action, const Node& node) const;
  absl::Status CheckNode(BlockId id) const;

  const Options options_;
  BlockPool& pool_;
  PrefixCacheMetrics& metrics_;
  std::vector<Node> nodes_;                                  // by block of group 0
  std::vector<std::vector<BlockId>> node_of_;                // by group and block, where kept
  std::unordered_map<Digest, BlockId, DigestHash> by_hash_;  // looked up, never walked
  std::map<std::string, uint32_t> spaces_;                   // nodes of each namespace
  std::set<std::pair<uint64_t, BlockId>> unused_;            // may be given up: (last_use, node)
  uint64_t uses_ = 0;
};

}  // namespace baton::kv

#endif  // BATON_KV_PREFIX_CACHE_H_
