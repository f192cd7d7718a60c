"""Who may include what (the layout of the design, section 2)."""

_CORE = {"common", "common/rpc", "sampling", "kv", "text", "engine", "kvtransfer", "proto", "worker"}

# Folder (the longest that fits) -> the folders whose headers it may include, beside its own.
FOLDERS = {
    "common": set(),
    "common/config": {"common"},
    "common/rpc": {"common"},
    "sampling": {"common"},
    "kv": {"common"},
    "gguf": {"common"},
    "text": {"common", "gguf"},
    "kernels": {"common", "sampling", "kv"},
    "engine": {"common", "sampling", "kv", "text"},
    "model": {"common", "sampling", "kv", "gguf", "kernels", "engine"},
    "kvtransfer": {"common", "kv", "proto"},
    "proto": {"common", "kv"},
    "worker": _CORE,
    "prefill_worker": _CORE,
    "decode_worker": _CORE,
    "router": {"common", "common/rpc", "gguf", "kv", "text", "proto"},
    "client": {"common", "common/config", "common/rpc", "proto"},
    "gateway": {"common", "common/rpc", "proto"},
    "bazel": {"common"},
}

# Not even in tests beside the code.
ROUTER, WORKERS = {"router"}, {"worker", "prefill_worker", "decode_worker"}

# Narrower than the folder: these folders may include only these headers of that one.
ONLY = {
    ("kernels", "kv"): r"kv/(layout|arena|block)\.h",
    ("engine", "text"): r"text/(vocab|stop|grammar)[a-z_]*\.h",
    ("model", "engine"): r"engine/model_runner\.h",
    ("proto", "kv"): r"kv/cache_event\.h",
    ("router", "kv"): r"kv/(block_demand|block_hash|cache_event|layout)\.h",
}

# Programs, the worker process (both roles over one shell) and tests across packages join everything.
JOINS = r"(.*/)?[a-z_]*main\.(h|cc)|worker/worker_(node|server)\.(h|cc)|benchmarks/.*|tests/.*|deploy/.*"

# Header prefix -> (library of //bazel, folders that may use it; None: all).
_GRPC = {"common/rpc", "worker", "prefill_worker", "decode_worker", "router", "client", "gateway", "proto"}
SYSTEM = [
    (r"grpcpp/ext/proto_server_reflection.*", "grpc_reflection", _GRPC),
    (r"grpcpp/ext/channelz.*", "grpc_channelz", _GRPC),
    (r"(grpc|grpcpp|grpc\+\+)/.*", "grpc", _GRPC),
    (r"google/.*", "protobuf", _GRPC | {"kvtransfer"}),
    (r"absl/flags/.*", "absl_flags", None),
    (r"absl/.*", "absl_status", None),
    (r"(gtest|gmock)/.*", "gtest_main", None),
    (r"nlohmann/.*", "json", None),
    (r"pcre2\.h", "pcre2", {"text"}),
    (r"prometheus/.*", "prometheus", {"common"}),
    (r"xxhash\.h", "xxhash", None),
]

# Never: locks of absl make TSan report false races; its log is not in Debian's version.
FORBIDDEN = r"absl/(synchronization|log)/.*"
