#include "text/vocab_from_gguf.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "gguf/gguf_reader.h"

namespace baton {
namespace {

absl::Status MissingKey(const GgufReader& gguf, const std::string& key) {
  return absl::InvalidArgumentError(gguf.name() + ": key '" + key + "' is missing");
}

absl::StatusOr<std::vector<std::string>> Strings(const GgufReader& gguf, const std::string& key) {
  if (!gguf.Has(key)) return MissingKey(gguf, key);
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string_view> views, gguf.GetStringArray(key));
  return std::vector<std::string>(views.begin(), views.end());
}

absl::StatusOr<std::vector<TokenType>> Types(const GgufReader& gguf) {
  const std::string key = "tokenizer.ggml.token_type";
  if (!gguf.Has(key)) return MissingKey(gguf, key);
  BATON_ASSIGN_OR_RETURN(const std::vector<int32_t> values, gguf.GetInt32Array(key));
  std::vector<TokenType> types;
  types.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] > static_cast<int32_t>(TokenType::kByte)) {
      return absl::InvalidArgumentError(gguf.name() + ": key '" + key + "' entry " +
                                        std::to_string(i) + " is " + std::to_string(values[i]) +
                                        ", not a token type");
    }
    types.push_back(static_cast<TokenType>(values[i]));
  }
  return types;
}

// kNoToken when the file does not name one.
absl::StatusOr<TokenId> SpecialToken(const GgufReader& gguf, const std::string& name,
                                     size_t vocab_size) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  if (!gguf.Has(key)) return kNoToken;
  BATON_ASSIGN_OR_RETURN(const int64_t id, gguf.GetInt(key));
  if (id < 0 || static_cast<uint64_t>(id) >= vocab_size) {
    return absl::InvalidArgumentError(gguf.name() + ": key '" + key + "' is " + std::to_string(id) +
                                      ", outside the vocabulary of " + std::to_string(vocab_size) +
                                      " tokens");
  }
  return static_cast<TokenId>(id);
}

absl::Status ReadSpecialTokens(const GgufReader& gguf, VocabData* data) {
  BATON_ASSIGN_OR_RETURN(data->bos, SpecialToken(gguf, "bos", data->tokens.size()));
  BATON_ASSIGN_OR_RETURN(data->eos, SpecialToken(gguf, "eos", data->tokens.size()));
  for (const char* name : {"eos", "eot", "eom"}) {
    BATON_ASSIGN_OR_RETURN(const TokenId id, SpecialToken(gguf, name, data->tokens.size()));
    if (id != kNoToken) data->end_tokens.push_back(id);
  }
  if (!gguf.Has("tokenizer.ggml.add_bos_token")) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(data->add_bos, gguf.GetBool("tokenizer.ggml.add_bos_token"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> OptionalString(const GgufReader& gguf, const std::string& key) {
  if (!gguf.Has(key)) return std::string();
  BATON_ASSIGN_OR_RETURN(const std::string_view value, gguf.GetString(key));
  return std::string(value);
}

}  // namespace

absl::StatusOr<VocabData> VocabDataFromGguf(const GgufReader& gguf) {
  VocabData data;
  if (!gguf.Has("tokenizer.ggml.model")) return MissingKey(gguf, "tokenizer.ggml.model");
  BATON_ASSIGN_OR_RETURN(data.model, OptionalString(gguf, "tokenizer.ggml.model"));
  BATON_ASSIGN_OR_RETURN(data.tokens, Strings(gguf, "tokenizer.ggml.tokens"));
  BATON_ASSIGN_OR_RETURN(data.types, Types(gguf));
  BATON_RETURN_IF_ERROR(ReadSpecialTokens(gguf, &data));
  BATON_ASSIGN_OR_RETURN(data.pre_tokenizer, OptionalString(gguf, "tokenizer.ggml.pre"));
  BATON_ASSIGN_OR_RETURN(data.chat_template, OptionalString(gguf, "tokenizer.chat_template"));
  if (!gguf.Has("tokenizer.ggml.merges")) return data;
  BATON_ASSIGN_OR_RETURN(data.merges, Strings(gguf, "tokenizer.ggml.merges"));
  return data;
}

}  // namespace baton
