#include "model/tiny_vocab.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::model {
namespace {

constexpr std::array<std::string_view, 3> kControlTokens = {"<|endoftext|>", "<|im_start|>",
                                                            "<|im_end|>"};

// Each pair joins two earlier tokens; "_" stands for the space that starts a word. Order = rank.
constexpr std::array<std::pair<std::string_view, std::string_view>, 75> kMerges = {{
    {"_", "t"},   {"h", "e"},    {"_", "a"},    {"i", "n"},  {"_t", "he"},  {"e", "r"},
    {"o", "n"},   {"r", "e"},    {"_", "s"},    {"a", "t"},  {"_", "w"},    {"o", "r"},
    {"e", "n"},   {"_", "c"},    {"i", "t"},    {"i", "s"},  {"a", "n"},    {"o", "u"},
    {"n", "d"},   {"_", "b"},    {"_", "f"},    {"_", "o"},  {"e", "s"},    {"_", "p"},
    {"a", "l"},   {"in", "g"},   {"_", "m"},    {"_", "d"},  {"a", "r"},    {"e", "d"},
    {"_", "h"},   {"_a", "nd"},  {"_t", "o"},   {"_o", "f"}, {"l", "l"},    {"r", "o"},
    {"l", "e"},   {"_", "in"},   {"i", "c"},    {"_", "l"},  {"_", "n"},    {"_", "e"},
    {"o", "m"},   {"s", "t"},    {"e", "l"},    {"_", "g"},  {"a", "s"},    {"_", "re"},
    {"v", "e"},   {"c", "t"},    {"_", "I"},    {"u", "r"},  {"l", "o"},    {"_", "T"},
    {"i", "on"},  {"_", "y"},    {"_y", "ou"},  {"_", "is"}, {"_w", "h"},   {"_b", "e"},
    {"i", "d"},   {"_f", "or"},  {"_", "on"},   {"ou", "r"}, {"i", "l"},    {"_", "it"},
    {"_", "C"},   {"_s", "t"},   {"m", "e"},    {"h", "at"}, {"_t", "hat"}, {"_", "S"},
    {"el", "lo"}, {"_wh", "at"}, {"H", "ello"},
}};

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

void AppendUtf8(std::string& out, uint32_t code_point) {  // below 0x800
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else {
    out += static_cast<char>(0xc0 | code_point >> 6);
    out += static_cast<char>(0x80 | (code_point & 0x3f));
  }
}

bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

// GPT-2 writes a byte that is not printable as the next unused code point from 256 on.
std::vector<std::string> ByteTokens() {
  std::vector<std::string> tokens(256);
  uint32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    AppendUtf8(tokens[byte], IsPrintable(byte) ? static_cast<uint32_t>(byte) : next++);
  }
  return tokens;
}

std::string SpaceMarked(std::string_view piece) {
  std::string out;
  for (const char c : piece) {
    if (c == '_') {
      AppendUtf8(out, 0x120);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

uint32_t TinyVocabSize() {
  return static_cast<uint32_t>(kControlTokens.size() + 256 + kMerges.size());
}

void AddTinyVocab(GgufWriter& writer) {
  constexpr int32_t kNormal = 1, kControl = 3;
  std::vector<std::string> tokens(kControlTokens.begin(), kControlTokens.end());
  std::vector<int32_t> types(tokens.size(), kControl);
  for (std::string& token : ByteTokens()) tokens.push_back(std::move(token));
  std::vector<std::string> merges;
  for (const auto& [left, right] : kMerges) {
    merges.push_back(SpaceMarked(left) + " " + SpaceMarked(right));
    tokens.push_back(SpaceMarked(left) + SpaceMarked(right));
  }
  types.resize(tokens.size(), kNormal);
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", "smollm");
  writer.AddStringArray("tokenizer.ggml.tokens", tokens);
  writer.AddInt32Array("tokenizer.ggml.token_type", types);
  writer.AddStringArray("tokenizer.ggml.merges", merges);
  writer.AddUint32("tokenizer.ggml.bos_token_id", kTinyImStart);
  writer.AddUint32("tokenizer.ggml.eos_token_id", kTinyImEnd);
  writer.AddUint32("tokenizer.ggml.unknown_token_id", kTinyEndOfText);
  writer.AddUint32("tokenizer.ggml.padding_token_id", kTinyImEnd);
  writer.AddBool("tokenizer.ggml.add_bos_token", false);
  writer.AddBool("tokenizer.ggml.add_space_prefix", false);
  writer.AddString("tokenizer.chat_template", kChatTemplate);
}

}  // namespace baton::model
