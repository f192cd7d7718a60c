// Flags are written with dashes (--ready-file); absl's flag library knows only underscores.
#ifndef BATON_COMMON_DASHED_FLAGS_H_
#define BATON_COMMON_DASHED_FLAGS_H_

#include <cstring>

namespace baton {

// Call before absl::ParseCommandLine: "--ready-file=x-y" becomes "--ready_file=x-y", in place.
// Stops at
// "--". A value in an argument of its own is left alone unless it begins with "--" itself.
inline void DashesToUnderscores(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--", 2) != 0) continue;
    if (argv[i][2] == '\0') return;
    for (char* c = argv[i] + 2; *c != '\0' && *c != '='; ++c) {
      if (*c == '-') *c = '_';
    }
  }
}

}  // namespace baton

#endif  // BATON_COMMON_DASHED_FLAGS_H_
