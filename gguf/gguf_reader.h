// Reads a GGUF v3 file: metadata keys and the tensor directory, both fully checked before anything
// is returned; tensor bytes stay in the mapped file.
//
// Every count, length, offset, alignment, type and rank is checked with checked arithmetic against
// the bytes that are there before it is used, so no file can crash the reader or make it allocate
// more than a small multiple of the file's own size. A file without tensors (vocabulary only) is
// valid. Errors name the file, the key or tensor, and the byte offset.
//
// Thread safety: immutable after Open, so all methods may run concurrently. Everything returned
// (views, spans, pointers) lives as long as the reader.
#ifndef BATON_GGUF_GGUF_READER_H_
#define BATON_GGUF_GGUF_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gguf/gguf_parser.h"
#include "gguf/gguf_types.h"

namespace baton {

class GgufReader {
 public:
  // Maps the file. NOT_FOUND: cannot be opened. INVALID_ARGUMENT: not a valid GGUF v3 file.
  static absl::StatusOr<std::unique_ptr<GgufReader>> Open(const std::string& path);

  // The same over bytes that outlive the reader; `name` stands for the path in errors.
  static absl::StatusOr<std::unique_ptr<GgufReader>> FromBytes(std::span<const std::byte> bytes,
                                                               std::string_view name);

  ~GgufReader();
  GgufReader(const GgufReader&) = delete;
  GgufReader& operator=(const GgufReader&) = delete;

  // --- Metadata. NOT_FOUND: no such key. INVALID_ARGUMENT: another type, or a value that does
  // not fit. Each error names the key.
  bool Has(std::string_view key) const { return contents_.values.contains(key); }
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  // Any integer type in the file whose value fits.
  absl::StatusOr<int64_t> GetInt(std::string_view key) const;
  absl::StatusOr<uint32_t> GetUint32(std::string_view key) const;
  // FLOAT32 or FLOAT64.
  absl::StatusOr<double> GetFloat(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  // Arrays of any integer type whose values all fit.
  absl::StatusOr<std::vector<int32_t>> GetInt32Array(std::string_view key) const;
  absl::StatusOr<std::vector<float>> GetFloatArray(std::string_view key) const;

  // --- Tensors, in the order of the file.
  const std::vector<GgufTensor>& tensors() const { return contents_.tensors; }
  // nullptr when there is none.
  const GgufTensor* FindTensor(std::string_view name) const;

  // Nobody will read this tensor for now: its pages leave this process's memory. Reading it again
  // brings them back. Other threads must not be reading it.
  void DropPages(const GgufTensor& tensor) const;

  const std::string& name() const { return name_; }
  std::span<const std::byte> file_bytes() const { return bytes_; }

 private:
  GgufReader(std::string_view name, std::span<const std::byte> bytes, void* mapping);
  absl::Status Parse();
  absl::StatusOr<const GgufValue*> Find(std::string_view key) const;
  absl::StatusOr<const GgufValue*> Find(std::string_view key, GgufValueType type) const;
  absl::Status KeyError(std::string_view key, const GgufValue& value, std::string_view what) const;

  const std::string name_;
  const std::span<const std::byte> bytes_;
  void* const mapping_;  // owned; nullptr for FromBytes
  GgufContents contents_;
};

}  // namespace baton

#endif  // BATON_GGUF_GGUF_READER_H_
