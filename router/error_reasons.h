// ErrorInfo.reason of every error the router answers with. Stable: listed in docs/errors.md, which
// a test compares with this list.
#ifndef BATON_ROUTER_ERROR_REASONS_H_
#define BATON_ROUTER_ERROR_REASONS_H_

#include <array>

namespace baton::router {

inline constexpr const char* kReasonInvalidField = "INVALID_FIELD";
inline constexpr const char* kReasonPromptTooLong = "PROMPT_TOO_LONG";
inline constexpr const char* kReasonNeverFits = "NEVER_FITS";
inline constexpr const char* kReasonUnknownModel = "UNKNOWN_MODEL";
inline constexpr const char* kReasonChatTemplate = "CHAT_TEMPLATE";
inline constexpr const char* kReasonQueueFull = "QUEUE_FULL";
inline constexpr const char* kReasonTooLate = "PREDICTED_TOO_LATE";
inline constexpr const char* kReasonNoRoom = "NO_ROOM";
inline constexpr const char* kReasonSlowClient = "SLOW_CLIENT";
inline constexpr const char* kReasonAnswerTooLarge = "ANSWER_TOO_LARGE";
inline constexpr const char* kReasonNoWorker = "NO_WORKER";
inline constexpr const char* kReasonWorkerLost = "WORKER_LOST";
inline constexpr const char* kReasonShuttingDown = "SHUTTING_DOWN";
inline constexpr const char* kReasonDeadline = "DEADLINE";
inline constexpr const char* kReasonCancelled = "CANCELLED";
inline constexpr const char* kReasonWorkerFailed = "WORKER_FAILED";
inline constexpr const char* kReasonTokenMismatch = "TOKEN_MISMATCH";
inline constexpr const char* kReasonProtocol = "PROTOCOL";

inline constexpr std::array kErrorReasons = {
    kReasonInvalidField,  kReasonPromptTooLong,  kReasonNeverFits, kReasonUnknownModel,
    kReasonChatTemplate,  kReasonQueueFull,      kReasonTooLate,   kReasonNoRoom,
    kReasonSlowClient,    kReasonAnswerTooLarge, kReasonNoWorker,  kReasonWorkerLost,
    kReasonShuttingDown,  kReasonDeadline,       kReasonCancelled, kReasonWorkerFailed,
    kReasonTokenMismatch, kReasonProtocol};

}  // namespace baton::router

#endif  // BATON_ROUTER_ERROR_REASONS_H_
