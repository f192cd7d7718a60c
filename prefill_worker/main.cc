#include "worker/worker_main.h"

int main(int argc, char** argv) {
  return baton::worker::WorkerMain(argc, argv, baton::worker::v1::ROLE_PREFILL);
}
