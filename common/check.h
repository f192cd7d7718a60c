// CHECK for our own broken invariants only; never for anything a peer, a file or a user sent.
#ifndef BATON_COMMON_CHECK_H_
#define BATON_COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Stays on in release builds.
#define BATON_CHECK(condition)                                                               \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)

#endif  // BATON_COMMON_CHECK_H_
