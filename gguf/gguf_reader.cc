#include "gguf/gguf_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "common/checked.h"
#include "common/status_macros.h"

namespace baton {
namespace {

template <typename T>
T LoadAt(const GgufValue& value, uint64_t index) {
  T out;
  std::memcpy(&out, value.payload.data() + index * sizeof(T), sizeof(T));
  return out;
}

// nullopt: `type` is no integer type, or the value does not fit in int64.
std::optional<int64_t> IntegerAt(const GgufValue& value, GgufValueType type, uint64_t index) {
  switch (type) {
    case GgufValueType::kUint8:
      return LoadAt<uint8_t>(value, index);
    case GgufValueType::kInt8:
      return LoadAt<int8_t>(value, index);
    case GgufValueType::kUint16:
      return LoadAt<uint16_t>(value, index);
    case GgufValueType::kInt16:
      return LoadAt<int16_t>(value, index);
    case GgufValueType::kUint32:
      return LoadAt<uint32_t>(value, index);
    case GgufValueType::kInt32:
      return LoadAt<int32_t>(value, index);
    case GgufValueType::kUint64:
      return CheckedCast<int64_t>(LoadAt<uint64_t>(value, index));
    case GgufValueType::kInt64:
      return LoadAt<int64_t>(value, index);
    default:
      return std::nullopt;
  }
}

std::string_view StringView(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::Status OpenError(const std::string& path, const char* what) {
  const std::string message = path + ": " + what + ": " + std::strerror(errno);
  return errno == ENOENT || errno == ENOTDIR ? absl::NotFoundError(message)
                                             : absl::InvalidArgumentError(message);
}

}  // namespace

GgufReader::GgufReader(std::string_view name, std::span<const std::byte> bytes, void* mapping)
    : name_(name), bytes_(bytes), mapping_(mapping) {}

GgufReader::~GgufReader() {
  if (mapping_ != nullptr) munmap(mapping_, bytes_.size());
}

absl::StatusOr<std::unique_ptr<GgufReader>> GgufReader::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return OpenError(path, "cannot open");
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(path + ": not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return FromBytes({}, path);
  }
  void* mapping = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (mapping == MAP_FAILED) return OpenError(path, "cannot map");
  std::unique_ptr<GgufReader> reader(
      new GgufReader(path, {static_cast<const std::byte*>(mapping), size}, mapping));
  BATON_RETURN_IF_ERROR(reader->Parse());
  return reader;
}

absl::StatusOr<std::unique_ptr<GgufReader>> GgufReader::FromBytes(std::span<const std::byte> bytes,
                                                                  std::string_view name) {
  std::unique_ptr<GgufReader> reader(new GgufReader(name, bytes, nullptr));
  BATON_RETURN_IF_ERROR(reader->Parse());
  return reader;
}

absl::Status GgufReader::Parse() {
  BATON_ASSIGN_OR_RETURN(contents_, ParseGguf(bytes_, name_));
  return absl::OkStatus();
}

absl::StatusOr<const GgufValue*> GgufReader::Find(std::string_view key) const {
  const auto it = contents_.values.find(key);
  if (it == contents_.values.end()) {
    return absl::NotFoundError(name_ + ": key '" + std::string(key) + "' is missing");
  }
  return &it->second;
}

absl::StatusOr<const GgufValue*> GgufReader::Find(std::string_view key, GgufValueType type) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (value->type != type) {
    return KeyError(key, *value, "is not " + std::string(*ValueTypeName(uint32_t(type))));
  }
  return value;
}

absl::Status GgufReader::KeyError(std::string_view key, const GgufValue& value,
                                  std::string_view what) const {
  std::string message = name_ + ": key '" + std::string(key) + "' (";
  message += *ValueTypeName(static_cast<uint32_t>(value.type));
  if (value.type == GgufValueType::kArray) {
    message += " of ";
    message += *ValueTypeName(static_cast<uint32_t>(value.element_type));
  }
  message += ", byte " + std::to_string(value.file_offset) + ") ";
  message += what;
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<std::string_view> GgufReader::GetString(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, GgufValueType::kString));
  return StringView(value->payload);
}

absl::StatusOr<bool> GgufReader::GetBool(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, GgufValueType::kBool));
  return LoadAt<uint8_t>(*value, 0) != 0;
}

absl::StatusOr<int64_t> GgufReader::GetInt(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  const std::optional<int64_t> number = IntegerAt(*value, value->type, 0);
  if (!number.has_value()) return KeyError(key, *value, "is not an integer that fits 64 bits");
  return *number;
}

absl::StatusOr<uint32_t> GgufReader::GetUint32(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const int64_t number, GetInt(key));
  const std::optional<uint32_t> narrow = CheckedCast<uint32_t>(number);
  if (!narrow.has_value()) {
    return KeyError(key, **Find(key), "is " + std::to_string(number) + ", not in 0..4294967295");
  }
  return *narrow;
}

absl::StatusOr<double> GgufReader::GetFloat(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key));
  if (value->type == GgufValueType::kFloat32) return LoadAt<float>(*value, 0);
  if (value->type == GgufValueType::kFloat64) return LoadAt<double>(*value, 0);
  return KeyError(key, *value, "is not FLOAT32 or FLOAT64");
}

absl::StatusOr<std::vector<std::string_view>> GgufReader::GetStringArray(
    std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, GgufValueType::kArray));
  if (value->element_type != GgufValueType::kString) {
    return KeyError(key, *value, "is not an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count);  // each takes at least 8 bytes of the file
  std::span<const std::byte> rest = value->payload;
  for (uint64_t i = 0; i < value->count; ++i) {
    uint64_t length;
    std::memcpy(&length, rest.data(), sizeof length);
    strings.push_back(StringView(rest.subspan(sizeof length, length)));
    rest = rest.subspan(sizeof length + length);
  }
  return strings;
}

absl::StatusOr<std::vector<int32_t>> GgufReader::GetInt32Array(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, GgufValueType::kArray));
  if (value->count == 0) return std::vector<int32_t>{};
  if (value->element_type == GgufValueType::kString ||
      !IntegerAt(*value, value->element_type, 0).has_value()) {
    return KeyError(key, *value, "is not an array of integers");
  }
  std::vector<int32_t> numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> wide = IntegerAt(*value, value->element_type, i);
    const std::optional<int32_t> narrow =
        wide.has_value() ? CheckedCast<int32_t>(*wide) : std::nullopt;
    if (!narrow.has_value()) {
      return KeyError(key, *value, "element " + std::to_string(i) + " does not fit 32 bits");
    }
    numbers.push_back(*narrow);
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufReader::GetFloatArray(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Find(key, GgufValueType::kArray));
  if (value->element_type != GgufValueType::kFloat32) {
    return KeyError(key, *value, "is not an array of FLOAT32");
  }
  std::vector<float> numbers(value->count);
  if (!numbers.empty()) std::memcpy(numbers.data(), value->payload.data(), value->payload.size());
  return numbers;
}

void GgufReader::DropPages(const GgufTensor& tensor) const {
  if (mapping_ == nullptr) return;
  constexpr uintptr_t kPage = 4096;
  // Whole pages only: its neighbours keep theirs.
  const auto begin = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + tensor.bytes.size()) / kPage * kPage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

const GgufTensor* GgufReader::FindTensor(std::string_view name) const {
  const auto it = contents_.tensor_index.find(name);
  return it == contents_.tensor_index.end() ? nullptr : &contents_.tensors[it->second];
}

}  // namespace baton
