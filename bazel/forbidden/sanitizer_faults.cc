// Planted: what each sanitizer must report. sanitizer_faults NAME; exit status 0: nobody noticed.
#include <climits>
#include <string_view>
#include <thread>

namespace {

// Escapes: neither the compiler nor the leak check may see through these.
volatile int sink;
int* volatile kept;

int HeapUseAfterFree() {
  kept = new int(1);
  delete kept;
  return *kept;
}

__attribute__((noinline)) void KeepLocal() {
  int local = 1;
  kept = &local;
}

int StackUseAfterReturn() {
  KeepLocal();
  return *kept;
}

int Leak() {
  kept = new int(1);
  kept = nullptr;
  return 0;
}

int SignedOverflow() {
  sink = INT_MAX;
  return sink + 1;
}

int MisalignedLoad() {
  alignas(int) char bytes[2 * sizeof(int)] = {};
  kept = reinterpret_cast<int*>(bytes + 1);
  return *kept;
}

int DataRace() {
  int shared = 0;
  std::thread other([&shared] { ++shared; });
  ++shared;
  other.join();
  return shared;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name == "heap-use-after-free") sink = HeapUseAfterFree();
  if (name == "stack-use-after-return") sink = StackUseAfterReturn();
  if (name == "leak") sink = Leak();
  if (name == "signed-overflow") sink = SignedOverflow();
  if (name == "misaligned-load") sink = MisalignedLoad();
  if (name == "data-race") sink = DataRace();
  return 0;
}
