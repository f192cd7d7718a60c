// Files that tests need and that the repository does not hold.
#ifndef BATON_TEXT_TEST_FILES_H_
#define BATON_TEXT_TEST_FILES_H_

#include <cstdlib>
#include <string>
#include <string_view>

namespace baton {

// Value of an environment variable (BATON_MODEL, BATON_SHARED, BATON_PYTHON); empty when unset.
inline std::string TestEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

inline bool OnCi() { return TestEnvironment("CI") == "true"; }

}  // namespace baton

// Without it the test is skipped with its reason, on CI it fails.
#define BATON_REQUIRE_ENVIRONMENT(name)                   \
  if (::baton::TestEnvironment(name).empty()) {           \
    if (::baton::OnCi()) FAIL() << name << " is not set"; \
    GTEST_SKIP() << name << " is not set";                \
  }                                                       \
  static_assert(true, "a semicolon follows")

#endif  // BATON_TEXT_TEST_FILES_H_
