#include "client/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "common/check.h"

namespace baton::client {
namespace {

sigset_t OnlyInterrupt() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Interrupts::Interrupts(std::function<void()> on_interrupt)
    : on_interrupt_(std::move(on_interrupt)) {
  const sigset_t set = OnlyInterrupt();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  BATON_CHECK(signals_ >= 0 && stop_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

Interrupts::~Interrupts() {
  const uint64_t one = 1;
  BATON_CHECK(write(stop_, &one, sizeof one) == sizeof one);
  thread_.join();
  close(signals_);
  close(stop_);
  const sigset_t set = OnlyInterrupt();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Interrupts::Run() {
  for (;;) {
    pollfd fds[] = {{stop_, POLLIN, 0}, {signals_, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) return;
    signalfd_siginfo info;
    if (fds[1].revents != 0 && read(signals_, &info, sizeof info) == sizeof info) on_interrupt_();
  }
}

}  // namespace baton::client
