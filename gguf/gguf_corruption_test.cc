// Whatever a file holds, the reader refuses it or loads it; every view it hands out stays inside
// the file. Worth most under --config=asan: the bytes live in an exact-size heap block.
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf_reader.h"
#include "gguf/gguf_writer.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

std::string ValidFile() {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.AddUint32("general.alignment", 32);
  writer.AddStringArray("tokens", {"a", "bc", "", "def"});
  writer.AddInt32Array("types", {1, 2, 3, 4});
  writer.AddFloat32Array("scores", {1, 2});
  writer.AddBool("flag", true);
  writer.AddTensor("w", GgufTensorType::kQ4_1, {32, 3}, std::string(60, '\2'));
  writer.AddTensor("v", GgufTensorType::kF32, {4}, std::string(16, '\0'));
  return writer.Serialize();
}

// Reads every byte that a successful load makes reachable.
uint64_t TouchEverything(const GgufReader& reader) {
  uint64_t sum = 0;
  for (const char* key : {"tokens", "types", "scores", "flag", "general.architecture"}) {
    if (const auto strings = reader.GetStringArray(key); strings.ok()) {
      for (const std::string_view text : *strings) sum += std::hash<std::string_view>()(text);
    }
    if (const auto ints = reader.GetInt32Array(key); ints.ok()) sum += ints->size();
    if (const auto floats = reader.GetFloatArray(key); floats.ok()) sum += floats->size();
    if (const auto text = reader.GetString(key); text.ok()) sum += text->size();
    if (const auto number = reader.GetInt(key); number.ok()) sum += static_cast<uint64_t>(*number);
    if (const auto flag = reader.GetBool(key); flag.ok()) sum += *flag ? 1 : 0;
  }
  for (const GgufTensor& tensor : reader.tensors()) {
    for (const std::byte b : tensor.bytes) sum += static_cast<uint64_t>(b);
  }
  return sum;
}

// True when loaded. The copy makes any read past the end a heap error.
bool LoadsWithoutCrashing(std::string_view bytes) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes.size()]);
  if (!bytes.empty()) std::memcpy(exact.get(), bytes.data(), bytes.size());
  const auto reader = GgufReader::FromBytes({exact.get(), bytes.size()}, "corrupt.gguf");
  if (!reader.ok()) {
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument) << reader.status();
    return false;
  }
  TouchEverything(**reader);
  return true;
}

TEST(GgufCorruptionTest, EveryPrefixOfAValidFileIsRefused) {
  const std::string bytes = ValidFile();
  ASSERT_TRUE(LoadsWithoutCrashing(bytes));
  const size_t last_data_byte = bytes.size() - 16;  // "v" is padded from 16 to 32 bytes
  for (size_t length = 0; length < last_data_byte; ++length) {
    EXPECT_FALSE(LoadsWithoutCrashing(std::string_view(bytes).substr(0, length))) << length;
  }
}

TEST(GgufCorruptionTest, EveryFieldAtItsExtremes) {
  const std::string bytes = ValidFile();
  for (size_t at = 4; at + 8 <= bytes.size(); ++at) {
    for (const uint64_t value : {0ull, 1ull, 5ull, 0x7fffffffull, 0xffffffffull, 1ull << 56,
                                 1ull << 63, ~0ull - 7, ~0ull}) {
      for (const size_t width : {4, 8}) {
        std::string copy = bytes;
        std::memcpy(copy.data() + at, &value, width);
        LoadsWithoutCrashing(copy);
      }
    }
  }
}

TEST(GgufCorruptionTest, TruncatedAndBitFlippedFilesNeverCrash) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string bytes = ValidFile();
  int loaded = 0;
  for (int file = 0; file < 300; ++file) {
    std::string copy = bytes;
    const int flips = static_cast<int>(random() % 8);
    for (int i = 0; i < flips; ++i) {
      copy[random() % copy.size()] ^= static_cast<char>(1 << (random() % 8));
    }
    if (flips == 0 || random() % 4 == 0) copy.resize(random() % copy.size());
    loaded += LoadsWithoutCrashing(copy) ? 1 : 0;
  }
  std::cout << loaded << " of 300 loaded\n";
}

}  // namespace
}  // namespace baton
