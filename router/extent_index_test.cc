#include "router/extent_index.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

constexpr uint32_t kExtent = ExtentIndex::kExtentBlocks;

Digest Name(SeededRandom& random) {
  const uint64_t hi = random.Next64();
  return {hi, random.Next64()};
}

std::vector<Digest> Chain(SeededRandom& random, size_t blocks) {
  std::vector<Digest> chain;
  for (size_t i = 0; i < blocks; ++i) chain.push_back(Name(random));
  return chain;
}

// As a worker's events would: where an extent is full and where the chain ends.
void Hold(ExtentIndex& index, uint32_t place, const std::vector<Digest>& chain, size_t blocks) {
  for (size_t i = 0; i < blocks; ++i) {
    if (i % kExtent == kExtent - 1 || i + 1 == blocks) {
      index.Set(place, chain[i], static_cast<uint32_t>(i / kExtent));
    }
  }
}

std::vector<uint32_t> Match(const ExtentIndex& index, const std::vector<Digest>& prompt) {
  std::vector<uint32_t> held;
  index.Match(prompt, held);
  return held;
}

class ExtentIndexTest : public testing::Test {
 protected:
  SeededRandom random_{7};
  ExtentIndex index_{ExtentIndex::kLeastBytes};
};

TEST_F(ExtentIndexTest, KnowsHowFarEachPlaceHoldsAPrompt) {
  const std::vector<Digest> chain = Chain(random_, 100);
  // Around both ends of an extent, and none.
  const std::vector<size_t> lengths = {0, 1, 15, 16, 17, 31, 32, 33, 96, 100};
  for (const size_t length : lengths) Hold(index_, *index_.AddPlace(), chain, length);
  EXPECT_EQ(Match(index_, chain), std::vector<uint32_t>(lengths.begin(), lengths.end()));
}

TEST_F(ExtentIndexTest, APlaceThatHoldsMoreThanThePromptCountsUpToThePromptsLastFullExtent) {
  std::vector<Digest> chain = Chain(random_, 100);
  Hold(index_, *index_.AddPlace(), chain, 100);
  chain.resize(48);
  EXPECT_EQ(Match(index_, chain), std::vector<uint32_t>({48}));
  chain.resize(40);
  EXPECT_EQ(Match(index_, chain), std::vector<uint32_t>({32}));
}

TEST_F(ExtentIndexTest, ChainsThatPartKeepWhatTheyShare) {
  const std::vector<Digest> one = Chain(random_, 64);
  std::vector<Digest> other(one.begin(), one.begin() + 32);
  for (const Digest& name : Chain(random_, 32)) other.push_back(name);
  Hold(index_, *index_.AddPlace(), one, 64);
  Hold(index_, *index_.AddPlace(), other, 64);
  EXPECT_EQ(Match(index_, one), std::vector<uint32_t>({64, 32}));
  EXPECT_EQ(Match(index_, other), std::vector<uint32_t>({32, 64}));
}

TEST_F(ExtentIndexTest, AnExtentWithoutTheOneBeforeItCountsForNothing) {
  const std::vector<Digest> chain = Chain(random_, 48);
  const uint32_t place = *index_.AddPlace();
  Hold(index_, place, chain, 48);
  EXPECT_TRUE(index_.Clear(place, chain[15]));
  EXPECT_EQ(Match(index_, chain), std::vector<uint32_t>({0}));
}

TEST_F(ExtentIndexTest, ClearSaysWhetherItWasThereAndSparesOtherPlaces) {
  const std::vector<Digest> chain = Chain(random_, 16);
  const uint32_t one = *index_.AddPlace();
  const uint32_t other = *index_.AddPlace();
  Hold(index_, one, chain, 16);
  EXPECT_FALSE(index_.Clear(other, chain[15]));
  Hold(index_, other, chain, 16);
  EXPECT_EQ(index_.entries(), 2u);
  EXPECT_TRUE(index_.Clear(one, chain[15]));
  EXPECT_FALSE(index_.Clear(one, chain[15]));
  EXPECT_EQ(Match(index_, chain), std::vector<uint32_t>({0, 16}));
  EXPECT_EQ(index_.entries(), 1u);
}

TEST_F(ExtentIndexTest, ARemovedPlaceHoldsNothingAtOnceAndItsMemoryComesBack) {
  const uint32_t gone = *index_.AddPlace();
  const std::vector<Digest> chain = Chain(random_, 16 * 20000);
  Hold(index_, gone, chain, chain.size());
  const uint64_t before = index_.entries();
  const size_t bytes = index_.bytes();
  index_.RemovePlace(gone);
  EXPECT_EQ(Match(index_, chain), std::vector<uint32_t>({0}));
  const uint32_t place = *index_.AddPlace();
  EXPECT_NE(place, gone) << "given out again while its entries are there";
  const std::vector<Digest> other = Chain(random_, 16 * 1100);
  Hold(index_, place, other, other.size());
  EXPECT_EQ(before, 20000u);
  EXPECT_EQ(index_.entries(), 1100u);
  EXPECT_LT(index_.bytes(), bytes);
  EXPECT_EQ(*index_.AddPlace(), gone);
  EXPECT_EQ(Match(index_, chain)[gone], 0u);
}

TEST_F(ExtentIndexTest, PlacesThatComeAndGoWithoutEntriesDoNotPileUp) {
  for (int life = 0; life < 100000; ++life) {
    const std::optional<uint32_t> place = index_.AddPlace();
    ASSERT_TRUE(place.has_value());
    index_.RemovePlace(*place);
  }
  EXPECT_LE(index_.places(), ExtentIndex::kMaxPlaces);
}

TEST_F(ExtentIndexTest, WhenAllPlacesAreTakenThereIsNone) {
  for (uint32_t i = 0; i < ExtentIndex::kMaxPlaces; ++i) ASSERT_TRUE(index_.AddPlace().has_value());
  EXPECT_FALSE(index_.AddPlace().has_value());
  index_.RemovePlace(4711);
  EXPECT_EQ(index_.AddPlace(), 4711u);
}

TEST_F(ExtentIndexTest, TheCapDropsTheDeepestFirst) {
  const uint32_t place = *index_.AddPlace();
  std::vector<std::vector<Digest>> chains;
  for (int i = 0; i < 2000; ++i) {
    chains.push_back(Chain(random_, 16 * 100));
    Hold(index_, place, chains.back(), chains.back().size());
    ASSERT_LE(index_.bytes(), ExtentIndex::kLeastBytes);
  }
  EXPECT_GT(index_.dropped(), 0u);
  EXPECT_GT(index_.bytes(), ExtentIndex::kLeastBytes * 3 / 4);
  std::set<uint32_t> depths;
  for (const std::vector<Digest>& chain : chains) depths.insert(Match(index_, chain)[place]);
  EXPECT_GE(*depths.begin(), 16u * 30) << "every chain keeps its beginning";
  EXPECT_LE(*depths.rbegin(), 16u * 45) << "and none much more than another";
}

TEST_F(ExtentIndexTest, DeepExtentsAreTakenAgainOnceThereIsRoom) {
  const uint32_t place = *index_.AddPlace();
  for (int i = 0; i < 2000; ++i) Hold(index_, place, Chain(random_, 16 * 100), 16 * 100);
  index_.RemovePlace(place);
  const uint32_t next = *index_.AddPlace();
  for (int i = 0; i < 1100; ++i) Hold(index_, next, Chain(random_, 16), 16);
  const std::vector<Digest> deep = Chain(random_, 16 * 100);
  Hold(index_, next, deep, deep.size());
  EXPECT_EQ(Match(index_, deep)[next], deep.size());
}

TEST_F(ExtentIndexTest, AnEntryTakesAtMost16Bytes) {
  ExtentIndex index(size_t{1} << 26);
  for (uint32_t i = 0; i < 100; ++i) {
    const uint32_t place = *index.AddPlace();
    Hold(index, place, Chain(random_, 16 * 800), 16 * 800);
  }
  EXPECT_EQ(index.entries(), 80000u);
  EXPECT_LE(index.bytes(), index.entries() * 16);
}

// Against sets: any order of changes, chains that share beginnings, places that come and go.
TEST_F(ExtentIndexTest, AgreesWithSetsOfBlocks) {
  std::vector<std::vector<Digest>> chains = {Chain(random_, 70)};
  for (int i = 0; i < 20; ++i) {
    const auto& from = chains[random_.Below(chains.size())];
    const auto keep = static_cast<ptrdiff_t>(random_.Below(from.size()));
    std::vector<Digest> chain(from.begin(), from.begin() + keep);
    for (const Digest& name : Chain(random_, 70)) chain.push_back(name);
    chain.resize(70);
    chains.push_back(chain);
  }
  ExtentIndex index(size_t{1} << 24);
  std::map<uint32_t, std::set<Digest>> held;
  const auto expected = [&](uint32_t place, const std::vector<Digest>& chain) {
    uint32_t full = 0;
    while (full + kExtent <= chain.size() && held[place].count(chain[full + kExtent - 1])) {
      full += kExtent;
    }
    for (uint32_t i = std::min<uint32_t>(full + kExtent - 1, 70); i > full; --i) {
      if (held[place].count(chain[i - 1])) return i;
    }
    return full;
  };
  for (int step = 0; step < 6000; ++step) {
    const uint64_t what = random_.Below(100);
    if (held.empty() || (what < 10 && held.size() < 40)) {
      held[*index.AddPlace()].clear();
      continue;
    }
    auto at = held.begin();
    std::advance(at, random_.Below(held.size()));
    if (what < 11) {
      index.RemovePlace(at->first);
      held.erase(at);
      continue;
    }
    const auto& chain = chains[random_.Below(chains.size())];
    const auto block = static_cast<uint32_t>(random_.Below(chain.size()));
    if (what < 70) {
      index.Set(at->first, chain[block], block / kExtent);
      at->second.insert(chain[block]);
    } else {
      EXPECT_EQ(index.Clear(at->first, chain[block]), at->second.erase(chain[block]) == 1);
    }
    const std::vector<uint32_t> match = Match(index, chain);
    ASSERT_EQ(match.size(), index.places());
    for (uint32_t place = 0; place < match.size(); ++place) {
      ASSERT_EQ(match[place], held.count(place) ? expected(place, chain) : 0u) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace baton::router
