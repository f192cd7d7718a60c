#include "gguf/gguf_reader.h"

#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "gguf/gguf_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Result = absl::StatusOr<std::unique_ptr<GgufReader>>;

Result Read(const std::string& bytes) {
  return GgufReader::FromBytes(std::as_bytes(std::span(bytes)), "test.gguf");
}

std::string F32Bytes(size_t count) { return std::string(count * 4, '\0'); }

template <typename T>
void PokeAt(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Of this process, mapped from files.
size_t FilePagesInMemory() {
  std::ifstream statm("/proc/self/statm");
  size_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return shared;
}

GgufWriter SmallFile() {
  GgufWriter writer;
  writer.AddString("name", "tiny");
  writer.AddBool("flag", true);
  writer.AddUint32("count", 7);
  writer.AddFloat32("epsilon", 0.5f);
  writer.AddStringArray("words", {"a", "", "ccc"});
  writer.AddInt32Array("ids", {3, -1, 4});
  writer.AddFloat32Array("scores", {1.5f, -2});
  writer.AddTensor("a", GgufTensorType::kF32, {4, 2}, F32Bytes(8));
  writer.AddTensor("b", GgufTensorType::kQ8_0, {32}, std::string(34, '\1'));
  return writer;
}

void ExpectRefused(const std::string& bytes, const std::string& what) {
  const Result reader = Read(bytes);
  ASSERT_FALSE(reader.ok()) << what;
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr(what));
}

TEST(GgufReaderTest, ReadsEveryKindOfKey) {
  const std::string bytes = SmallFile().Serialize();
  const Result reader = Read(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const GgufReader& file = **reader;
  EXPECT_EQ(*file.GetString("name"), "tiny");
  EXPECT_EQ(*file.GetBool("flag"), true);
  EXPECT_EQ(*file.GetUint32("count"), 7u);
  EXPECT_EQ(*file.GetInt("count"), 7);
  EXPECT_EQ(*file.GetFloat("epsilon"), 0.5);
  EXPECT_THAT(*file.GetStringArray("words"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*file.GetInt32Array("ids"), ElementsAre(3, -1, 4));
  EXPECT_THAT(*file.GetFloatArray("scores"), ElementsAre(1.5f, -2.0f));
}

TEST(GgufReaderTest, DroppedPagesLeaveMemoryAndComeBack) {
  constexpr size_t kPages = 4096;  // the kernel counts roughly
  const std::string path = ::testing::TempDir() + "dropped.gguf";
  GgufWriter writer;
  writer.AddTensor("big", GgufTensorType::kF32, {1024, kPages}, std::string(kPages * 4096, '\7'));
  writer.AddTensor("next", GgufTensorType::kF32, {4}, F32Bytes(4));
  ASSERT_TRUE(writer.WriteFile(path).ok());
  const Result reader = GgufReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const GgufTensor& big = *(*reader)->FindTensor("big");
  const auto sum = [&] {
    int total = 0;
    for (const std::byte byte : big.bytes) total += std::to_integer<int>(byte);
    return total;
  };
  EXPECT_EQ(sum(), static_cast<int>(7 * big.bytes.size()));
  const size_t before = FilePagesInMemory();
  (*reader)->DropPages(big);
  EXPECT_LT(FilePagesInMemory() + kPages / 2, before);
  EXPECT_EQ(sum(), static_cast<int>(7 * big.bytes.size()));
}

TEST(GgufReaderTest, AWriterCopiesEveryKey) {
  const std::string bytes = SmallFile().Serialize();
  const Result reader = Read(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  GgufWriter copy;
  copy.CopyKeys(**reader);
  for (const GgufTensor& tensor : (*reader)->tensors()) {
    copy.AddTensor(tensor.name, tensor.type,
                   {tensor.dims.begin(), tensor.dims.begin() + tensor.rank},
                   {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  }
  EXPECT_EQ(copy.Serialize(), bytes);
}

TEST(GgufReaderTest, FindsTensorsWithTheirBytes) {
  const std::string bytes = SmallFile().Serialize();
  const Result reader = Read(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const GgufTensor* a = (*reader)->FindTensor("a");
  const GgufTensor* b = (*reader)->FindTensor("b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_THAT(a->dims, ElementsAre(4, 2, 1, 1));
  EXPECT_EQ(a->bytes.size(), 32u);
  EXPECT_EQ(b->bytes.size(), 34u);
  EXPECT_EQ(b->bytes[33], std::byte{1});
  EXPECT_EQ((*reader)->FindTensor("c"), nullptr);
}

TEST(GgufReaderTest, LookupErrorsNameTheKey) {
  const std::string bytes = SmallFile().Serialize();
  const Result reader = Read(bytes);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const GgufReader& file = **reader;
  EXPECT_EQ(file.GetString("none").status().code(), absl::StatusCode::kNotFound);
  for (const absl::Status& status :
       {file.GetString("count").status(), file.GetInt("name").status(),
        file.GetUint32("epsilon").status(), file.GetFloat("count").status(),
        file.GetStringArray("ids").status(), file.GetInt32Array("words").status(),
        file.GetFloatArray("ids").status(), file.GetBool("words").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("test.gguf: key '"));
  }
}

TEST(GgufReaderTest, MissingFileIsNotFound) {
  EXPECT_EQ(GgufReader::Open("/nonexistent/x.gguf").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GgufReader::Open("/").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GgufReaderTest, RefusesEmptyAndRepeatedNames) {
  GgufWriter empty_key;
  empty_key.AddUint32("", 1);
  ExpectRefused(empty_key.Serialize(), "key number 0: empty name");
  GgufWriter twice;
  twice.AddUint32("k", 1);
  twice.AddUint32("k", 1);
  ExpectRefused(twice.Serialize(), "key 'k': appears twice");
  GgufWriter empty_tensor;
  empty_tensor.AddTensor("", GgufTensorType::kF32, {1}, F32Bytes(1));
  ExpectRefused(empty_tensor.Serialize(), "tensor number 0: empty name");
  GgufWriter tensor_twice;
  tensor_twice.AddTensor("t", GgufTensorType::kF32, {1}, F32Bytes(1));
  tensor_twice.AddTensor("t", GgufTensorType::kF32, {1}, F32Bytes(1));
  ExpectRefused(tensor_twice.Serialize(), "tensor 't': appears twice");
}

TEST(GgufReaderTest, RefusesEachZeroDimensionAndBadRank) {
  for (size_t zero = 0; zero < 4; ++zero) {
    std::vector<uint64_t> dims(4, 32);
    dims[zero] = 0;
    GgufWriter writer;
    writer.AddTensor("t", GgufTensorType::kQ8_0, dims, "");
    ExpectRefused(writer.Serialize(), "tensor 't': dimension " + std::to_string(zero) + " is 0");
  }
  GgufWriter rank0;
  rank0.AddTensor("t", GgufTensorType::kF32, {}, std::string(64, '\0'));
  ExpectRefused(rank0.Serialize(), "rank 0");
  GgufWriter rank5;
  rank5.AddTensor("t", GgufTensorType::kF32, {1, 1, 1, 1, 1}, F32Bytes(1));
  ExpectRefused(rank5.Serialize(), "rank 5");
}

TEST(GgufReaderTest, RefusesSizesThatOverflowOrLeaveTheFile) {
  GgufWriter overflow;
  overflow.AddTensor("t", GgufTensorType::kF32, {1ull << 32, 1ull << 31, 4}, "");
  ExpectRefused(overflow.Serialize(), "tensor 't': its size overflows");
  GgufWriter past;
  past.AddTensor("t", GgufTensorType::kF32, {9}, F32Bytes(8));
  ExpectRefused(past.Serialize(), "reach past the file");
  GgufWriter ragged;
  ragged.AddTensor("t", GgufTensorType::kQ4_1, {33}, std::string(64, '\0'));
  ExpectRefused(ragged.Serialize(), "not whole Q4_1 blocks");
  GgufWriter unknown;
  unknown.AddTensor("t", static_cast<GgufTensorType>(99), {32}, std::string(64, '\0'));
  ExpectRefused(unknown.Serialize(), "unknown tensor type 99");
}

TEST(GgufReaderTest, RefusesBadAlignment) {
  for (const uint32_t alignment : {0u, 1u, 3u, 48u, 1u << 31}) {
    GgufWriter writer;
    writer.AddUint32("general.alignment", alignment);
    writer.AddTensor("t", GgufTensorType::kF32, {1}, F32Bytes(1));
    ExpectRefused(writer.Serialize(), "general.alignment");
  }
}

TEST(GgufReaderTest, RefusesOtherVersionsAndMagics) {
  std::string bytes = SmallFile().Serialize();
  PokeAt<uint32_t>(bytes, 4, 2);
  ExpectRefused(bytes, "GGUF version 2");
  PokeAt<uint32_t>(bytes, 4, 0x03000000);
  ExpectRefused(bytes, "big-endian");
  bytes[0] = 'g';
  ExpectRefused(bytes, "wrong magic");
}

TEST(GgufReaderTest, HugeClaimedCountsAllocateNothing) {
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  for (const uint64_t count : {1ull << 31, 1ull << 56, 1ull << 63, ~0ull}) {
    for (const size_t field : {size_t{8}, size_t{16}}) {  // tensor count, key count
      std::string bytes = SmallFile().Serialize();
      bytes.resize(1024);
      PokeAt(bytes, field, count);
      ExpectRefused(bytes, "entries do not fit");
    }
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024);  // KiB
}

TEST(GgufReaderTest, ReadsPublishedVocabularyFiles) {
  const char* shared = std::getenv("BATON_SHARED");
  if (shared == nullptr) {
    const char* ci = std::getenv("CI");
    ASSERT_FALSE(ci != nullptr && std::string(ci) == "true") << "BATON_SHARED is not set";
    GTEST_SKIP() << "BATON_SHARED is not set";
  }
  const std::string folder = std::string(shared) + "/oracles/tokenizer/";
  for (const auto& [name, tokens] :
       {std::pair("vocab-gpt-2.gguf", 50257u), std::pair("vocab-phi-3.gguf", 32064u)}) {
    const Result reader = GgufReader::Open(folder + name);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_TRUE((*reader)->tensors().empty());
    EXPECT_EQ((*reader)->GetStringArray("tokenizer.ggml.tokens")->size(), tokens);
  }
}

}  // namespace
}  // namespace baton
