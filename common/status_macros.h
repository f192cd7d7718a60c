#ifndef BATON_COMMON_STATUS_MACROS_H_
#define BATON_COMMON_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BATON_RETURN_IF_ERROR(expr)        \
  do {                                     \
    ::absl::Status baton_status_ = (expr); \
    if (!baton_status_.ok()) [[unlikely]]  \
      return baton_status_;                \
  } while (false)

#define BATON_CONCAT_INNER_(a, b) a##b
#define BATON_CONCAT_(a, b) BATON_CONCAT_INNER_(a, b)

// BATON_ASSIGN_OR_RETURN(auto value, MayFail());
#define BATON_ASSIGN_OR_RETURN(lhs, expr) \
  BATON_ASSIGN_OR_RETURN_IMPL_(BATON_CONCAT_(baton_status_or_, __LINE__), lhs, expr)
#define BATON_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) [[unlikely]]                        \
    return std::move(result).status();                  \
  lhs = *std::move(result)

#endif  // BATON_COMMON_STATUS_MACROS_H_
