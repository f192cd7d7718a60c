// Every transition between the states of a block, on a pool of one block, and none besides.
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "common/random.h"
#include "gtest/gtest.h"
#include "kv/block_pool.h"

namespace baton::kv {
namespace {

using S = BlockState;

std::string Name(S from, S to) {
  return std::string(BlockStateName(from)) + " -> " + std::string(BlockStateName(to));
}

// One block, whoever may hold it, and what happened to it.
class OneBlock : private BlockKeeper {
 public:
  OneBlock() { pool_.SetKeeper(this); }
  ~OneBlock() override {
    lease_.Reset();
    other_.Reset();
    pin_.Reset();
    if (kept_) pool_.Unkeep(kRef);
    pool_.SetKeeper(nullptr);
  }

  void Take() {
    absl::StatusOr<BlockLease> lease = pool_.Take({1});
    if (lease.ok()) lease_ = *std::move(lease);
  }
  void Set(S state) {
    if (!lease_.empty()) lease_.SetState(state, 0, 1);
  }
  void Share() {
    if (!lease_.empty()) other_ = lease_.Share(1);
  }
  void Pin() {
    if (!lease_.empty()) pin_ = pool_.Pin(lease_.blocks());
  }
  void Keep() {
    if (!lease_.empty() && !std::exchange(kept_, true)) pool_.Keep(kRef);
  }
  void Find() {
    if (kept_) lease_ = pool_.ShareKept({{kRef.block}});
  }
  void GiveUp() {
    if (kept_ && pool_.SharesOf(kRef) == 0) GiveUpSome();
  }
  void Return() { lease_.Reset(); }
  void ReturnOther() { other_.Reset(); }
  void Unpin() { pin_.Reset(); }

  // Does one of them, and notes where the block went.
  template <typename Act>
  void Do(Act act) {
    const S before = pool_.StateOf(kRef);
    act(*this);
    const S after = pool_.StateOf(kRef);
    if (before != after) seen.insert(Name(before, after));
    EXPECT_EQ(pool_.Counts()[static_cast<size_t>(after)], 1u);
    EXPECT_TRUE(pool_.CheckIntegrity().ok()) << Name(before, after);
  }

  std::set<std::string> seen;

 private:
  static constexpr BlockRef kRef{0, 0};
  void OnUnshared(BlockRef) override {}
  bool GiveUpSome() override {
    if (!std::exchange(kept_, false)) return false;
    pool_.Unkeep(kRef);
    return true;
  }

  BlockPool pool_{{1}};
  BlockLease lease_;
  BlockLease other_;
  BlockPin pin_;
  bool kept_ = false;
};

// Taken: reserved; a prompt: filling; an answer, or shared, or kept: live. Given back: free, cached
// when it is kept, quarantined while it is touched. Found again: live. Given up: free.
const std::set<std::string>& Transitions() {
  static const auto& all = *new std::set<std::string>{
      Name(S::kFree, S::kReserved),        Name(S::kReserved, S::kFilling),
      Name(S::kReserved, S::kLive),        Name(S::kReserved, S::kFree),
      Name(S::kReserved, S::kQuarantined), Name(S::kFilling, S::kReserved),
      Name(S::kFilling, S::kLive),         Name(S::kFilling, S::kFree),
      Name(S::kFilling, S::kQuarantined),  Name(S::kLive, S::kReserved),
      Name(S::kLive, S::kFilling),         Name(S::kLive, S::kFree),
      Name(S::kLive, S::kCached),          Name(S::kLive, S::kQuarantined),
      Name(S::kCached, S::kLive),          Name(S::kCached, S::kFree),
      Name(S::kCached, S::kReserved),      Name(S::kQuarantined, S::kFree),
      Name(S::kQuarantined, S::kCached),   Name(S::kQuarantined, S::kLive),
  };
  return all;
}

void Act(OneBlock& block, uint64_t which) {
  switch (which) {
    case 0:
      return block.Do([](OneBlock& b) { b.Take(); });
    case 1:
      return block.Do([](OneBlock& b) { b.Set(S::kReserved); });
    case 2:
      return block.Do([](OneBlock& b) { b.Set(S::kFilling); });
    case 3:
      return block.Do([](OneBlock& b) { b.Set(S::kLive); });
    case 4:
      return block.Do([](OneBlock& b) { b.Share(); });
    case 5:
      return block.Do([](OneBlock& b) { b.Pin(); });
    case 6:
      return block.Do([](OneBlock& b) { b.Keep(); });
    case 7:
      return block.Do([](OneBlock& b) { b.Find(); });
    case 8:
      return block.Do([](OneBlock& b) { b.GiveUp(); });
    case 9:
      return block.Do([](OneBlock& b) { b.Return(); });
    case 10:
      return block.Do([](OneBlock& b) { b.ReturnOther(); });
    default:
      return block.Do([](OneBlock& b) { b.Unpin(); });
  }
}

TEST(BlockStatesTest, EveryTransitionHappensAndNoOther) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    OneBlock block;
    for (int i = 0; i < 200; ++i) Act(block, random.Below(12));
    seen.merge(block.seen);
  }
  EXPECT_EQ(seen, Transitions());
}

}  // namespace
}  // namespace baton::kv
