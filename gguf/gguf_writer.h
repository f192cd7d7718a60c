// Builds small GGUF v3 files for tests: keys and tensors in the order they are added. It checks
// nothing, so that tests can also write files the reader must refuse. Not thread-safe.
#ifndef BATON_GGUF_GGUF_WRITER_H_
#define BATON_GGUF_GGUF_WRITER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gguf/gguf_reader.h"
#include "gguf/gguf_types.h"

namespace baton {

class GgufWriter {
 public:
  void AddString(std::string_view key, std::string_view value);
  void AddBool(std::string_view key, bool value);
  void AddUint32(std::string_view key, uint32_t value);
  void AddFloat32(std::string_view key, float value);
  void AddStringArray(std::string_view key, const std::vector<std::string>& values);
  void AddInt32Array(std::string_view key, const std::vector<int32_t>& values);
  void AddFloat32Array(std::string_view key, const std::vector<float>& values);

  // Every key of `file`, which has tensors, as it stands there.
  void CopyKeys(const GgufReader& file);

  // `dims[0]` is the width of a row; `data` is written as it is.
  void AddTensor(std::string_view name, GgufTensorType type, const std::vector<uint64_t>& dims,
                 std::string data);

  // The whole file, tensors aligned to 32 bytes.
  std::string Serialize() const;
  absl::Status WriteFile(const std::string& path) const;

 private:
  struct Tensor {
    std::string info;  // up to the offset
    std::string data;
  };

  void AddKey(std::string_view key, GgufValueType type);

  std::string keys_;
  uint64_t key_count_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace baton

#endif  // BATON_GGUF_GGUF_WRITER_H_
