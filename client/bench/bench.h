// baton bench: load against a router, and what it measured.
#ifndef BATON_CLIENT_BENCH_BENCH_H_
#define BATON_CLIENT_BENCH_BENCH_H_

#include <string>
#include <vector>

namespace baton::client {

extern const char kBenchUsage[];

// The report goes to standard output, progress to standard error. Returns 0, 1 when a request
// failed or the target does not answer, 2 for bad flags, 130 when interrupted (with a report of
// what had ended).
int Bench(const std::vector<std::string>& args);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_BENCH_H_
