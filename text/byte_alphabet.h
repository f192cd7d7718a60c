// Byte-level BPE writes each byte of a token as one printable character. This is the mapping of
// GPT-2: printable Latin-1 stands for itself, the 68 others for U+0100 onwards, in order.
#ifndef BATON_TEXT_BYTE_ALPHABET_H_
#define BATON_TEXT_BYTE_ALPHABET_H_

#include <optional>
#include <string>
#include <string_view>

namespace baton {

// Bytes that `token`, valid UTF-8 in the alphabet, stands for; nullopt when it holds a character
// outside the alphabet or is not UTF-8.
std::optional<std::string> BytesFromAlphabet(std::string_view token);
std::string BytesToAlphabet(std::string_view bytes);

}  // namespace baton

#endif  // BATON_TEXT_BYTE_ALPHABET_H_
