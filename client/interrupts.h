// Ctrl-C as an event instead of the end of the program.
#ifndef BATON_CLIENT_INTERRUPTS_H_
#define BATON_CLIENT_INTERRUPTS_H_

#include <functional>
#include <thread>

namespace baton::client {

// While one lives, SIGINT calls `on_interrupt` on a thread of its own, once per signal. Make it
// before any other thread, so that every thread inherits the mask and none takes the signal. One
// at a time.
class Interrupts {
 public:
  explicit Interrupts(std::function<void()> on_interrupt);
  // After it returns nothing is called any more.
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  void Run();

  const std::function<void()> on_interrupt_;
  int signals_ = -1;
  int stop_ = -1;
  std::thread thread_;
};

}  // namespace baton::client

#endif  // BATON_CLIENT_INTERRUPTS_H_
