// A model file of any bytes: reader, configuration, vocabulary, tokenizer, template and weights
// refuse it with a status that says why, or what they made of it keeps their promises.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "gguf/gguf_reader.h"
#include "gguf/gguf_types.h"
#include "model/config.h"
#include "model/load.h"
#include "text/detokenizer.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "text/vocab_from_gguf.h"

namespace baton {
namespace {

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
}

void CheckTensors(const GgufReader& file) {
  const std::span<const std::byte> all = file.file_bytes();
  for (const GgufTensor& tensor : file.tensors()) {
    BATON_CHECK(tensor.file_offset <= all.size());
    BATON_CHECK(tensor.bytes.size() <= all.size() - tensor.file_offset);
    BATON_CHECK(tensor.bytes.empty() || tensor.bytes.data() == all.data() + tensor.file_offset);
    const auto traits = TensorTypeTraits(static_cast<uint32_t>(tensor.type));
    BATON_CHECK(traits.has_value());
    BATON_CHECK(tensor.dims[0] % traits->block_elements == 0);
    const uint64_t row = tensor.dims[0] / traits->block_elements * traits->block_bytes;
    BATON_CHECK(tensor.bytes.size() == row * tensor.Rows());
    BATON_CHECK(file.FindTensor(tensor.name) == &tensor);
  }
}

void CheckText(const VocabData& data) {
  const auto vocab = Vocab::Create(data);
  BATON_CHECK(vocab.ok() || IsRefusal(vocab.status()));
  const auto tokenizer = Tokenizer::Create(data);
  BATON_CHECK(tokenizer.ok() || IsRefusal(tokenizer.status()));
  const auto chat = ChatTemplate::Parse(data.chat_template, TemplateOptionsFor(data));
  BATON_CHECK(chat.ok() || absl::IsFailedPrecondition(chat.status()));
  if (!vocab.ok() || !tokenizer.ok()) return;
  BATON_CHECK(static_cast<size_t>(vocab->size()) == data.tokens.size());
  const auto ids = (*tokenizer)->Encode("The a b\n<|im_start|>\xC3\xA9", SpecialTokenMode::kAsText);
  BATON_CHECK(ids.ok());
  BATON_CHECK(DecodeTokens(*vocab, *ids).ok());  // each id is in the vocabulary
}

// A file in memory with these bytes, for code that opens paths.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) { BATON_CHECK(fd_ >= 0); }
  std::string Hold(const uint8_t* data, size_t size) {
    BATON_CHECK(ftruncate(fd_, 0) == 0);
    BATON_CHECK(pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size));
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  const int fd_;  // of the process, as long as it lives
};

void CheckLoad(const std::string& path) {
  for (const char* backend : {"cpu-scalar", "reference"}) {
    model::LoadOptions options;
    options.path = path;
    options.backend = backend;
    options.context = 64;
    const auto loaded = model::Load(options);
    BATON_CHECK(loaded.ok() || IsRefusal(loaded.status()));
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const auto file = GgufReader::FromBytes({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  if (!file.ok()) {
    BATON_CHECK(absl::IsInvalidArgument(file.status()));
    return 0;
  }
  CheckTensors(**file);
  const auto vocab = VocabDataFromGguf(**file);
  BATON_CHECK(vocab.ok() || IsRefusal(vocab.status()));
  if (vocab.ok()) CheckText(*vocab);
  const auto config = model::ReadModelConfig(**file);
  BATON_CHECK(config.ok() || IsRefusal(config.status()));
  if (!config.ok()) return 0;
  static MemoryFile* const memory = new MemoryFile;
  CheckLoad(memory->Hold(data, size));
  return 0;
}
