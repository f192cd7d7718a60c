// Feeds every kept input to a fuzzer's entry point, in every build and without libFuzzer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace baton {
namespace {

// The copy has exactly the input's size, so that a read past the end is an error of the heap.
void Feed(const std::string& bytes) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  LLVMFuzzerTestOneInput(exact.get(), bytes.size());
}

TEST(CorpusTest, EveryKeptInputHolds) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(BATON_CORPUS)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_FALSE(paths.empty());
  for (const std::string& path : paths) {
    std::cout << path << std::endl;  // the last one is at fault when the program dies
    std::ifstream file(path, std::ios::binary);
    ASSERT_TRUE(file) << path;
    Feed({std::istreambuf_iterator<char>(file), {}});
  }
}

TEST(CorpusTest, TheEmptyInputHolds) { Feed(""); }

}  // namespace
}  // namespace baton
