// The main of both workers: flags, the server, a signal to stop. The two binaries differ in the
// role they begin with.
#ifndef BATON_WORKER_WORKER_MAIN_H_
#define BATON_WORKER_WORKER_MAIN_H_

#include "baton/worker/v1/worker.pb.h"

namespace baton::worker {

// Returns the exit code: 0 after SIGTERM or SIGINT, 2 with one line on stderr for a bad
// configuration, 1 with one line when it cannot start.
int WorkerMain(int argc, char** argv, v1::Role role);

}  // namespace baton::worker

#endif  // BATON_WORKER_WORKER_MAIN_H_
