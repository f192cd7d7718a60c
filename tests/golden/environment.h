// Where the tests find the real model and the oracles.
#ifndef BATON_TESTS_GOLDEN_ENVIRONMENT_H_
#define BATON_TESTS_GOLDEN_ENVIRONMENT_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace baton::golden {

inline std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline std::string ModelPath() { return FromEnvironment("BATON_MODEL"); }
inline std::string OracleFolder() { return FromEnvironment("BATON_SHARED") + "/oracles/models"; }

// Empty when everything is there, else what is missing.
inline std::string MissingInputs() {
  if (!std::filesystem::exists(ModelPath())) return "BATON_MODEL names no file";
  if (!std::filesystem::exists(OracleFolder())) return "BATON_SHARED has no oracles/models";
  return "";
}

// In the body of a test: a missing input fails in continuous integration and skips elsewhere.
#define BATON_NEEDS_MODEL_AND_ORACLES()                                      \
  do {                                                                       \
    const std::string missing = ::baton::golden::MissingInputs();            \
    if (missing.empty()) break;                                              \
    if (::baton::golden::FromEnvironment("CI") == "true") FAIL() << missing; \
    GTEST_SKIP() << missing;                                                 \
  } while (false)

}  // namespace baton::golden

#endif  // BATON_TESTS_GOLDEN_ENVIRONMENT_H_
