#include "text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <map>
#include <string>
#include <utility>

#include "common/status_macros.h"

namespace baton {
namespace {

// The classes of the reference implementations: Unicode 16, White_Space. Debian's PCRE2 knows
// Unicode 14, so the letters and numbers added since are listed.
#define BATON_LETTER                                                                     \
  "\\p{L}\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}" \
  "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}" \
  "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}"   \
  "\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}"  \
  "\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"            \
  "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}"             \
  "\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}"  \
  "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define BATON_NUMBER                                                                           \
  "\\p{N}\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}" \
  "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}"       \
  "\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"
#define BATON_SPACE                                                                           \
  "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}" \
  "\\x{205F}\\x{3000}"

constexpr char kOneDigit[] = "[" BATON_NUMBER "]";
constexpr char kGpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?[" BATON_LETTER
    "]+"
    "| ?[" BATON_NUMBER
    "]+"
    "| ?[^" BATON_SPACE BATON_LETTER BATON_NUMBER
    "]+"
    "|[" BATON_SPACE "]+(?![^" BATON_SPACE
    "])"
    "|[" BATON_SPACE "]+";

#undef BATON_LETTER
#undef BATON_NUMBER
#undef BATON_SPACE

// Every stage cuts the pieces of the stage before it: each match and each gap is a piece, and a
// match does not see past the piece it is in.
const std::map<std::string_view, std::vector<const char*>>& KnownPreTokenizers() {
  static const auto& known = *new std::map<std::string_view, std::vector<const char*>>{
      {"gpt-2", {kGpt2}},
      {"smollm", {kOneDigit, kGpt2}},
  };
  return known;
}

// Far above what any of the patterns needs (they backtrack over at most one character).
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 20'000;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string Pcre2Message(int error) {
  PCRE2_UCHAR message[128];
  pcre2_get_error_message(error, message, sizeof message);
  return reinterpret_cast<const char*>(message);
}

}  // namespace

class PreTokenizer::Stage {
 public:
  static absl::StatusOr<std::unique_ptr<Stage>> Create(const char* pattern, const Options& options);

  absl::Status Split(std::string_view piece, pcre2_match_data* data,
                     std::vector<std::string_view>* out) const;

 private:
  struct Match {
    size_t begin;
    size_t end;
  };
  // From `at`; an empty match at the end of `piece` when there is none.
  absl::StatusOr<Match> Find(std::string_view piece, size_t at, pcre2_match_data* data) const;

  std::unique_ptr<pcre2_code, CodeDeleter> code_;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context_;
};

absl::StatusOr<std::unique_ptr<PreTokenizer::Stage>> PreTokenizer::Stage::Create(
    const char* pattern, const Options& options) {
  auto stage = std::make_unique<Stage>();
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  stage->code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP, &error, &error_offset, nullptr));
  if (stage->code_ == nullptr) {
    return absl::InternalError("pre-tokenizer pattern: " + Pcre2Message(error));
  }
  // Without JIT (not built in, or no executable memory) pcre2_match interprets.
  if (options.jit) pcre2_jit_compile(stage->code_.get(), PCRE2_JIT_COMPLETE);
  stage->context_.reset(pcre2_match_context_create(nullptr));
  if (stage->context_ == nullptr) return absl::ResourceExhaustedError("out of memory");
  pcre2_set_match_limit(stage->context_.get(), kMatchLimit);
  pcre2_set_heap_limit(stage->context_.get(), kHeapLimitKib);
  return stage;
}

absl::StatusOr<PreTokenizer::Stage::Match> PreTokenizer::Stage::Find(std::string_view piece,
                                                                     size_t at,
                                                                     pcre2_match_data* data) const {
  // The whole text has been validated once; validating here would make the split quadratic.
  const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(piece.data()),
                                piece.size(), at, PCRE2_NO_UTF_CHECK, data, context_.get());
  if (found == PCRE2_ERROR_NOMATCH) return Match{piece.size(), piece.size()};
  if (found < 0) return absl::InvalidArgumentError("text cannot be split: " + Pcre2Message(found));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
  return Match{offsets[0], offsets[1]};
}

absl::Status PreTokenizer::Stage::Split(std::string_view piece, pcre2_match_data* data,
                                        std::vector<std::string_view>* out) const {
  for (size_t at = 0; at < piece.size();) {
    BATON_ASSIGN_OR_RETURN(const Match match, Find(piece, at, data));
    if (match.begin > at) out->push_back(piece.substr(at, match.begin - at));
    if (match.end > match.begin) out->push_back(piece.substr(match.begin, match.end - match.begin));
    at = match.end;
  }
  return absl::OkStatus();
}

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<Stage>> stages)
    : stages_(std::move(stages)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name, Options options) {
  const auto known = KnownPreTokenizers().find(name);
  if (known == KnownPreTokenizers().end()) {
    return absl::InvalidArgumentError(
        name.empty() ? "key 'tokenizer.ggml.pre' is missing: how the text is split is unknown"
                     : "tokenizer.ggml.pre is '" + std::string(name) +
                           "'; known pre-tokenizers are 'gpt-2' and 'smollm'");
  }
  std::vector<std::unique_ptr<Stage>> stages;
  for (const char* pattern : known->second) {
    BATON_ASSIGN_OR_RETURN(stages.emplace_back(), Stage::Create(pattern, options));
  }
  return PreTokenizer(std::move(stages));
}

absl::StatusOr<std::vector<std::string_view>> PreTokenizer::Split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> data(
      pcre2_match_data_create(1, nullptr));
  if (data == nullptr) return absl::ResourceExhaustedError("out of memory");
  std::vector<std::string_view> pieces = {text};
  std::vector<std::string_view> next;
  for (const std::unique_ptr<Stage>& stage : stages_) {
    next.clear();
    for (const std::string_view piece : pieces) {
      BATON_RETURN_IF_ERROR(stage->Split(piece, data.get(), &next));
    }
    pieces.swap(next);
  }
  return pieces;
}

}  // namespace baton
