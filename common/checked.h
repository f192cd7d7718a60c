// Checked arithmetic for sizes that come from files and peers.
#ifndef BATON_COMMON_CHECKED_H_
#define BATON_COMMON_CHECKED_H_

#include <concepts>
#include <optional>

namespace baton {

template <std::integral T>
constexpr std::optional<T> CheckedAdd(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::integral T>
constexpr std::optional<T> CheckedMul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Value-preserving conversion; nullopt when `value` does not fit.
template <std::integral To, std::integral From>
constexpr std::optional<To> CheckedCast(From value) {
  To out;
  if (__builtin_add_overflow(value, From{0}, &out)) return std::nullopt;
  return out;
}

}  // namespace baton

#endif  // BATON_COMMON_CHECKED_H_
