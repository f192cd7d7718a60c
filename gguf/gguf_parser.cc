#include "gguf/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/checked.h"
#include "common/status_macros.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
// The smallest entries that can be valid: they bound a claimed count by the bytes that are left.
constexpr uint64_t kMinKeyValueBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::string_view kAlignmentKey = "general.alignment";

std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + "'";
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Walks the file once, front to back. `what_` names what is being read, for errors.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view file_name)
      : bytes_(bytes), file_name_(file_name) {}

  absl::StatusOr<GgufContents> Run() {
    BATON_RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < key_count_; ++i) BATON_RETURN_IF_ERROR(ReadKeyValue(i));
    for (uint64_t i = 0; i < tensor_count_; ++i) BATON_RETURN_IF_ERROR(ReadTensorInfo(i));
    BATON_RETURN_IF_ERROR(PlaceTensors());
    return std::move(contents_);
  }

 private:
  absl::Status Error(uint64_t offset, const std::string& problem) const {
    return absl::InvalidArgumentError(std::string(file_name_) + ": byte " + std::to_string(offset) +
                                      ": " + what_ + ": " + problem);
  }
  absl::Status Error(const std::string& problem) const { return Error(position_, problem); }

  uint64_t Remaining() const { return bytes_.size() - position_; }

  absl::StatusOr<std::span<const std::byte>> Take(uint64_t length) {
    if (length > Remaining()) {
      return Error("needs " + std::to_string(length) + " bytes, the file has " +
                   std::to_string(Remaining()) + " left");
    }
    const std::span<const std::byte> taken = bytes_.subspan(position_, length);
    position_ += length;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Read() {
    BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> raw, Take(sizeof(T)));
    T value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  absl::StatusOr<std::string_view> ReadName(uint64_t max_bytes) {
    const uint64_t start = position_;
    BATON_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>());
    if (length == 0) return Error(start, "empty name");
    if (length > max_bytes) {
      return Error(start, "name of " + std::to_string(length) + " bytes, limit " +
                              std::to_string(max_bytes));
    }
    BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> raw, Take(length));
    return AsText(raw);
  }

  absl::Status ReadHeader();
  absl::StatusOr<uint64_t> ReadCount(uint64_t min_entry_bytes);
  absl::Status ReadKeyValue(uint64_t index);
  absl::StatusOr<GgufValueType> ReadValueType();
  absl::Status ReadScalar(GgufValue& value);
  absl::Status ReadString(GgufValue& value);
  absl::Status ReadArray(GgufValue& value);
  absl::Status CheckBools(const GgufValue& value) const;
  absl::Status ReadTensorInfo(uint64_t index);
  absl::Status ReadDims(GgufTensor& tensor);
  absl::StatusOr<uint64_t> TensorBytes(const GgufTensor& tensor) const;
  absl::StatusOr<uint64_t> Alignment();
  absl::Status PlaceTensors();
  absl::Status PlaceTensor(GgufTensor& tensor, uint64_t data_start, uint64_t alignment);
  absl::Status CheckOverlaps();

  const std::span<const std::byte> bytes_;
  const std::string_view file_name_;
  uint64_t position_ = 0;
  std::string what_ = "header";
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  std::vector<uint64_t> tensor_bytes_;  // beside contents_.tensors
  GgufContents contents_;
};

absl::Status Parser::ReadHeader() {
  BATON_ASSIGN_OR_RETURN(const std::span<const std::byte> magic, Take(kMagic.size()));
  if (AsText(magic) != kMagic) return Error(0, "not a GGUF file (wrong magic)");
  BATON_ASSIGN_OR_RETURN(const uint32_t version, Read<uint32_t>());
  if (version == __builtin_bswap32(kVersion)) return Error(4, "big-endian GGUF is not supported");
  if (version != kVersion) {
    return Error(4, "GGUF version " + std::to_string(version) + ", only 3 is supported");
  }
  what_ = "tensor count";
  BATON_ASSIGN_OR_RETURN(tensor_count_, ReadCount(kMinTensorInfoBytes));
  what_ = "key count";
  BATON_ASSIGN_OR_RETURN(key_count_, ReadCount(kMinKeyValueBytes));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Parser::ReadCount(uint64_t min_entry_bytes) {
  const uint64_t start = position_;
  BATON_ASSIGN_OR_RETURN(const uint64_t count, Read<uint64_t>());
  if (count > Remaining() / min_entry_bytes) {
    return Error(start, std::to_string(count) + " entries do not fit the " +
                            std::to_string(Remaining()) + " bytes that are left");
  }
  return count;
}

absl::Status Parser::ReadKeyValue(uint64_t index) {
  what_ = "key number " + std::to_string(index);
  const uint64_t start = position_;
  BATON_ASSIGN_OR_RETURN(const std::string_view key, ReadName(kMaxKeyBytes));
  what_ = "key " + Quoted(key);
  GgufValue value;
  BATON_ASSIGN_OR_RETURN(value.type, ReadValueType());
  value.file_offset = position_;
  switch (value.type) {
    case GgufValueType::kString:
      BATON_RETURN_IF_ERROR(ReadString(value));
      break;
    case GgufValueType::kArray:
      BATON_RETURN_IF_ERROR(ReadArray(value));
      break;
    default:
      BATON_RETURN_IF_ERROR(ReadScalar(value));
  }
  if (!contents_.values.emplace(key, value).second) return Error(start, "appears twice");
  return absl::OkStatus();
}

absl::StatusOr<GgufValueType> Parser::ReadValueType() {
  const uint64_t start = position_;
  BATON_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>());
  if (!ValueTypeName(type).has_value()) {
    return Error(start, "unknown value type " + std::to_string(type));
  }
  return static_cast<GgufValueType>(type);
}

absl::Status Parser::ReadScalar(GgufValue& value) {
  BATON_ASSIGN_OR_RETURN(value.payload, Take(ScalarBytes(value.type)));
  return value.type == GgufValueType::kBool ? CheckBools(value) : absl::OkStatus();
}

absl::Status Parser::ReadString(GgufValue& value) {
  BATON_ASSIGN_OR_RETURN(value.count, Read<uint64_t>());
  BATON_ASSIGN_OR_RETURN(value.payload, Take(value.count));
  return absl::OkStatus();
}

absl::Status Parser::ReadArray(GgufValue& value) {
  const uint64_t type_offset = position_;
  BATON_ASSIGN_OR_RETURN(value.element_type, ReadValueType());
  if (value.element_type == GgufValueType::kArray) {
    return Error(type_offset, "arrays of arrays are not supported");
  }
  const bool strings = value.element_type == GgufValueType::kString;
  const uint64_t min_bytes = strings ? sizeof(uint64_t) : ScalarBytes(value.element_type);
  BATON_ASSIGN_OR_RETURN(value.count, ReadCount(min_bytes));
  const uint64_t start = position_;
  if (strings) {
    for (uint64_t i = 0; i < value.count; ++i) {
      BATON_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>());
      BATON_RETURN_IF_ERROR(Take(length).status());
    }
  } else {  // cannot overflow: the count was bounded by the bytes that are left
    BATON_RETURN_IF_ERROR(Take(value.count * min_bytes).status());
  }
  value.payload = bytes_.subspan(start, position_ - start);
  return value.element_type == GgufValueType::kBool ? CheckBools(value) : absl::OkStatus();
}

absl::Status Parser::CheckBools(const GgufValue& value) const {
  for (const std::byte b : value.payload) {
    if (b > std::byte{1}) return Error(value.file_offset, "a BOOL is neither 0 nor 1");
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadTensorInfo(uint64_t index) {
  what_ = "tensor number " + std::to_string(index);
  const uint64_t start = position_;
  GgufTensor tensor;
  BATON_ASSIGN_OR_RETURN(tensor.name, ReadName(kMaxTensorNameBytes));
  what_ = "tensor " + Quoted(tensor.name);
  BATON_RETURN_IF_ERROR(ReadDims(tensor));
  const uint64_t type_offset = position_;
  BATON_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>());
  if (!TensorTypeTraits(type).has_value()) {
    return Error(type_offset, "unknown tensor type " + std::to_string(type));
  }
  tensor.type = static_cast<GgufTensorType>(type);
  BATON_ASSIGN_OR_RETURN(const uint64_t size, TensorBytes(tensor));
  // Relative to the data section until PlaceTensors, which knows where that begins.
  BATON_ASSIGN_OR_RETURN(tensor.file_offset, Read<uint64_t>());
  if (!contents_.tensor_index.emplace(tensor.name, contents_.tensors.size()).second) {
    return Error(start, "appears twice");
  }
  contents_.tensors.push_back(tensor);
  tensor_bytes_.push_back(size);
  return absl::OkStatus();
}

absl::Status Parser::ReadDims(GgufTensor& tensor) {
  const uint64_t rank_offset = position_;
  BATON_ASSIGN_OR_RETURN(tensor.rank, Read<uint32_t>());
  if (tensor.rank < 1 || tensor.rank > tensor.dims.size()) {
    return Error(rank_offset, "rank " + std::to_string(tensor.rank) + ", not in 1..4");
  }
  for (uint32_t d = 0; d < tensor.rank; ++d) {
    const uint64_t start = position_;
    BATON_ASSIGN_OR_RETURN(tensor.dims[d], Read<uint64_t>());
    if (tensor.dims[d] == 0) return Error(start, "dimension " + std::to_string(d) + " is 0");
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Parser::TensorBytes(const GgufTensor& tensor) const {
  const GgufTypeTraits traits = *TensorTypeTraits(static_cast<uint32_t>(tensor.type));
  if (tensor.dims[0] % traits.block_elements != 0) {
    return Error("rows of " + std::to_string(tensor.dims[0]) + " are not whole " +
                 std::string(traits.name) + " blocks of " + std::to_string(traits.block_elements));
  }
  std::optional<uint64_t> bytes =
      CheckedMul<uint64_t>(tensor.dims[0] / traits.block_elements, traits.block_bytes);
  for (size_t d = 1; d < tensor.dims.size() && bytes.has_value(); ++d) {
    bytes = CheckedMul(*bytes, tensor.dims[d]);
  }
  if (!bytes.has_value()) return Error("its size overflows 64 bits");
  return *bytes;
}

absl::StatusOr<uint64_t> Parser::Alignment() {
  const auto it = contents_.values.find(kAlignmentKey);
  if (it == contents_.values.end()) return kDefaultAlignment;
  what_ = "key " + Quoted(kAlignmentKey);
  if (it->second.type != GgufValueType::kUint32) {
    return Error(it->second.file_offset, "is not UINT32");
  }
  uint32_t alignment;
  std::memcpy(&alignment, it->second.payload.data(), sizeof alignment);
  if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
    return Error(it->second.file_offset,
                 std::to_string(alignment) + " is not a power of two from 8 to 1048576");
  }
  return alignment;
}

absl::Status Parser::PlaceTensors() {
  BATON_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  if (contents_.tensors.empty()) return absl::OkStatus();
  // Cannot overflow: position_ is at most the size of a mapped file.
  const uint64_t data_start = (position_ + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : contents_.tensors) {
    BATON_RETURN_IF_ERROR(PlaceTensor(tensor, data_start, alignment));
  }
  return CheckOverlaps();
}

absl::Status Parser::PlaceTensor(GgufTensor& tensor, uint64_t data_start, uint64_t alignment) {
  what_ = "tensor " + Quoted(tensor.name);
  const uint64_t relative = tensor.file_offset;
  const uint64_t size = tensor_bytes_[&tensor - contents_.tensors.data()];
  if (relative % alignment != 0) {
    return Error(data_start, "offset " + std::to_string(relative) + " is not a multiple of the " +
                                 "alignment " + std::to_string(alignment));
  }
  const std::optional<uint64_t> begin = CheckedAdd(data_start, relative);
  const std::optional<uint64_t> end = begin.has_value() ? CheckedAdd(*begin, size) : std::nullopt;
  if (!end.has_value() || *end > bytes_.size()) {
    return Error(data_start, std::to_string(size) + " bytes at offset " + std::to_string(relative) +
                                 " of the data reach past the file's " +
                                 std::to_string(bytes_.size()) + " bytes");
  }
  tensor.file_offset = *begin;
  tensor.bytes = bytes_.subspan(*begin, size);
  return absl::OkStatus();
}

absl::Status Parser::CheckOverlaps() {
  std::vector<const GgufTensor*> by_offset;
  by_offset.reserve(contents_.tensors.size());
  for (const GgufTensor& tensor : contents_.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->file_offset < b->file_offset;
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (before.file_offset + before.bytes.size() > by_offset[i]->file_offset) {
      what_ = "tensor " + Quoted(by_offset[i]->name);
      return Error(by_offset[i]->file_offset, "overlaps tensor " + Quoted(before.name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufContents> ParseGguf(std::span<const std::byte> bytes,
                                       std::string_view file_name) {
  return Parser(bytes, file_name).Run();
}

}  // namespace baton
