// Sinks that a source can dial and that say what a test wants, in the moment the test says so.
#ifndef BATON_KVTRANSFER_SCRIPTED_SINKS_H_
#define BATON_KVTRANSFER_SCRIPTED_SINKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/transfer/v1/transfer.pb.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/ids.h"
#include "kvtransfer/cause.h"
#include "kvtransfer/source.h"
#include "kvtransfer/transport.h"

namespace baton::kvtransfer {

// One sink: its session with the source and its end of the data connection. What it says arrives
// inside the call.
class ScriptedSink {
 public:
  ScriptedSink(std::string address, const Epoch& epoch)
      : address_(std::move(address)), epoch_(epoch) {}

  // Hello, and the data connection is made (or fails), as far as that has not happened.
  void Answer(bool takes_data);

  // Each is dropped when the session, or the data connection, has ended.
  void Wait(const AttemptId& attempt);
  void Grant(const AttemptId& attempt, uint32_t groups);
  void Refuse(const AttemptId& attempt, Cause cause);
  void Revoke(const AttemptId& attempt, Cause cause);
  void EndSession();
  void ReplyToCommit(const AttemptId& attempt, Cause cause);
  void CloseTransfer(const AttemptId& attempt);
  void EndData();

  const std::string& address() const { return address_; }

 private:
  friend class ScriptedSinks;
  void Say(transfer::v1::SessionResponse message);

  const std::string address_;
  const Epoch epoch_;
  SourceStream::Listener* session_ = nullptr;
  DataConnection::Listener* data_ = nullptr;
  bool greeted_ = false;
  bool connected_ = false;
};

// Not thread-safe; used on the source's thread. Outlives the source.
class ScriptedSinks : public SinkDialer, public Transport {
 public:
  // `told` gets what reaches the sinks: "reserve(ADDRESS)", "release(ADDRESS)" or
  // "release(ADDRESS,CAUSE)", and on data connections "open", "send", "commit", "close".
  explicit ScriptedSinks(std::function<void(const std::string& word)> told)
      : told_(std::move(told)) {}

  // Whoever dials this address gets a sink of this epoch.
  void Add(const std::string& address, const Epoch& epoch) {
    sinks_.push_back(std::make_unique<ScriptedSink>(address, epoch));
  }
  ScriptedSink& sink(size_t i) { return *sinks_.at(i); }
  // The one whose session is the youngest.
  ScriptedSink& last() { return *last_; }
  // All that were dialled answer. `takes_data`: their data connections can be made.
  void Answer(bool takes_data);

  // SinkDialer and Transport.
  std::unique_ptr<SourceStream> Dial(const std::string& address,
                                     SourceStream::Listener& listener) override;
  std::string_view scheme() const override { return "scripted"; }
  std::unique_ptr<DataConnection> Connect(const ConnectRequest& request,
                                          DataConnection::Listener& listener) override;
  absl::StatusOr<std::unique_ptr<DataListener>> Listen(ReceiveTable& table) override;

 private:
  struct Session;
  struct Data;
  ScriptedSink& Find(std::string_view address);
  const std::function<void(const std::string& word)> told_;
  std::vector<std::unique_ptr<ScriptedSink>> sinks_;
  ScriptedSink* last_ = nullptr;
};

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SCRIPTED_SINKS_H_
