#include "gguf/gguf_writer.h"

#include <fstream>
#include <type_traits>
#include <utility>

namespace baton {
namespace {

constexpr uint64_t kAlignment = 32;

template <typename T>
void Append(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T> && std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void AppendString(std::string& out, std::string_view text) {
  Append<uint64_t>(out, text.size());
  out += text;
}

template <typename T>
void AppendArray(std::string& out, GgufValueType type, const std::vector<T>& values) {
  Append(out, type);
  Append<uint64_t>(out, values.size());
  for (const T& value : values) Append(out, value);
}

void Pad(std::string& out) { out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment); }

}  // namespace

void GgufWriter::AddKey(std::string_view key, GgufValueType type) {
  AppendString(keys_, key);
  Append(keys_, type);
  ++key_count_;
}

void GgufWriter::AddString(std::string_view key, std::string_view value) {
  AddKey(key, GgufValueType::kString);
  AppendString(keys_, value);
}

void GgufWriter::AddBool(std::string_view key, bool value) {
  AddKey(key, GgufValueType::kBool);
  Append<uint8_t>(keys_, value ? 1 : 0);
}

void GgufWriter::AddUint32(std::string_view key, uint32_t value) {
  AddKey(key, GgufValueType::kUint32);
  Append(keys_, value);
}

void GgufWriter::AddFloat32(std::string_view key, float value) {
  AddKey(key, GgufValueType::kFloat32);
  Append(keys_, value);
}

void GgufWriter::AddStringArray(std::string_view key, const std::vector<std::string>& values) {
  AddKey(key, GgufValueType::kArray);
  Append(keys_, GgufValueType::kString);
  Append<uint64_t>(keys_, values.size());
  for (const std::string& value : values) AppendString(keys_, value);
}

void GgufWriter::AddInt32Array(std::string_view key, const std::vector<int32_t>& values) {
  AddKey(key, GgufValueType::kArray);
  AppendArray(keys_, GgufValueType::kInt32, values);
}

void GgufWriter::AddFloat32Array(std::string_view key, const std::vector<float>& values) {
  AddKey(key, GgufValueType::kArray);
  AppendArray(keys_, GgufValueType::kFloat32, values);
}

void GgufWriter::CopyKeys(const GgufReader& file) {
  constexpr size_t kCountAt = 16;  // magic, version and the number of tensors come first
  constexpr size_t kKeysAt = 24;
  const std::byte* const bytes = file.file_bytes().data();
  uint64_t count;
  std::memcpy(&count, bytes + kCountAt, sizeof count);
  // The first tensor's entry begins with the length of its name.
  const char* const end = file.tensors()[0].name.data() - sizeof(uint64_t);
  keys_.append(reinterpret_cast<const char*>(bytes) + kKeysAt, end);
  key_count_ += count;
}

void GgufWriter::AddTensor(std::string_view name, GgufTensorType type,
                           const std::vector<uint64_t>& dims, std::string data) {
  Tensor tensor;
  AppendString(tensor.info, name);
  Append<uint32_t>(tensor.info, static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) Append(tensor.info, dim);
  Append(tensor.info, type);
  tensor.data = std::move(data);
  tensors_.push_back(std::move(tensor));
}

std::string GgufWriter::Serialize() const {
  std::string out = "GGUF";
  Append<uint32_t>(out, 3);
  Append<uint64_t>(out, tensors_.size());
  Append<uint64_t>(out, key_count_);
  out += keys_;
  std::string data;
  for (const Tensor& tensor : tensors_) {
    out += tensor.info;
    Append<uint64_t>(out, data.size());
    data += tensor.data;
    Pad(data);
  }
  if (!tensors_.empty()) Pad(out);
  return out + data;
}

absl::Status GgufWriter::WriteFile(const std::string& path) const {
  const std::string bytes = Serialize();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return absl::InvalidArgumentError("cannot write " + path);
  return absl::OkStatus();
}

}  // namespace baton
