"""A gRPC client for tests, in Python: every field of the public API, both kinds of call, and the services of the
workers for tests that play a hostile peer. Nothing of it is Baton's code: message classes come from proto/ by the
system's protoc, at run time.

    client = api.Client(cluster.target)
    answer = client.generate(api.generation("the time", max_tokens=8, n=2, temperature=1, seed=3))
    with client.stream(api.generation([5, 6, 7], max_tokens=8), timeout_s=2) as stream:
        for event in stream: ...                  # reads only when asked: a slow reader is a loop that waits
    try: client.generate(api.generation("")) except api.Failure as failure: failure.code, failure.reason, failure.fields
    session = api.Duplex(api.stub(channel, "baton.worker.v1.WorkerService").Session)

Import this before anything that starts a thread: without grpc in the running interpreter the program is started
again by that of BATON_PYTHON (scripts/requirements.txt), and without that the test is skipped, or fails with CI=true.
"""
import os
import queue
import subprocess
import sys
import tempfile
import threading
from types import SimpleNamespace

from cluster import LONGEST_S, RUNFILES, skip_whole_test

# Tests start processes; gRPC's own handlers for fork only print warnings about that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    if os.path.isfile(os.environ.get("BATON_PYTHON", "")) and sys.executable != os.environ["BATON_PYTHON"]:
        os.execv(os.environ["BATON_PYTHON"], [os.environ["BATON_PYTHON"], *sys.argv])
    skip_whole_test("BATON_PYTHON names no interpreter with grpc")

PROTOS = ("baton/v1/inference.proto", "baton/worker/v1/worker.proto", "baton/transfer/v1/transfer.proto",
          "google/rpc/status.proto", "google/rpc/error_details.proto")
HEALTH = """syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}
service Health {
  rpc Check(HealthCheckRequest) returns (HealthCheckResponse);
  rpc Watch(HealthCheckRequest) returns (stream HealthCheckResponse);
}
"""


def _load():
    """A descriptor pool with everything of PROTOS and health."""
    with tempfile.TemporaryDirectory(prefix="baton-protos-") as folder:
        with open(os.path.join(folder, "health.proto"), "w", encoding="utf-8") as file:
            file.write(HEALTH)
        out = os.path.join(folder, "set")
        # Below the runfiles, or in the checkout when a test is run by hand.
        protos = next(root for root in (os.path.join(RUNFILES, "proto"), "proto")
                      if os.path.exists(os.path.join(root, PROTOS[0])))
        subprocess.run(["protoc", "-I" + protos, "-I" + folder, "--include_imports",
                        "--descriptor_set_out=" + out, "health.proto", *PROTOS], check=True)
        with open(out, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _load()
_FACTORY = message_factory.MessageFactory(_POOL)


def message_class(name):
    """The class of a full name, as in "baton.v1.Generation"."""
    return _FACTORY.GetPrototype(_POOL.FindMessageTypeByName(name))


def package(file):
    """The top-level messages of one of PROTOS by their short names."""
    found = _POOL.FindFileByName(file)
    return SimpleNamespace(**{name: message_class(message.full_name)
                              for name, message in found.message_types_by_name.items()})


pb = package("baton/v1/inference.proto")
worker_pb = package("baton/worker/v1/worker.proto")
transfer_pb = package("baton/transfer/v1/transfer.proto")
state_pb = package("baton/state/v1/state.proto")
health_pb = package("health.proto")


def channel(target, **options):
    """A connection of its own, without a limit on what is received; options as {"grpc.keepalive_time_ms": 1000}."""
    given = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1,
             "grpc.use_local_subchannel_pool": 1, "grpc.enable_retries": 0, **options}
    return grpc.insecure_channel(target, list(given.items()))


def stub(connection, service):
    """The methods of a service by their names, as grpc's callables."""
    methods = {}
    for method in _POOL.FindServiceByName(service).methods:
        # Whether a method streams is not in the descriptor's Python form of this version.
        proto = descriptor_pb2.MethodDescriptorProto()
        method.CopyToProto(proto)
        kind = "_".join("stream" if streams else "unary"
                        for streams in (proto.client_streaming, proto.server_streaming))
        methods[method.name] = getattr(connection, kind)(
            f"/{service}/{method.name}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=message_class(method.output_type.full_name).FromString)
    return SimpleNamespace(**methods)


class Failure(Exception):
    """How a call ended when not with OK, its details decoded."""

    def __init__(self, error):
        self.code = error.code().name
        self.text = error.details() or ""
        self.reason = self.domain = ""
        self.metadata = {}       # of ErrorInfo
        self.fields = []         # (path, description) of BadRequest
        self.retry_s = None      # of RetryInfo
        self.trailers = {entry.key: entry.value for entry in error.trailing_metadata() or ()}
        status = message_class("google.rpc.Status").FromString(self.trailers.get("grpc-status-details-bin", b""))
        for detail in status.details:
            self._read(detail)
        super().__init__(f"{self.code} {self.reason}: {self.text}")

    def _read(self, detail):
        name = detail.type_url.rsplit("/", 1)[-1]
        message = message_class(name).FromString(detail.value)
        if name == "google.rpc.ErrorInfo":
            self.reason, self.domain, self.metadata = message.reason, message.domain, dict(message.metadata)
        elif name == "google.rpc.BadRequest":
            self.fields += [(v.field, v.description) for v in message.field_violations]
        elif name == "google.rpc.RetryInfo":
            self.retry_s = message.retry_delay.seconds + message.retry_delay.nanos / 1e9


_PARTS = {field.name: part for part, options in (("sampling", "SamplingOptions"), ("stop", "StopOptions"))
          for field in getattr(pb, options).DESCRIPTOR.fields}


def prompt(content):
    """A Prompt: text, bytes, token ids, or a list of such segments."""
    if isinstance(content, (str, bytes)) or all(isinstance(one, int) for one in content):
        content = [content]
    message = pb.Prompt()
    for one in content:
        if isinstance(one, (str, bytes)):
            message.segments.add(text=one.encode() if isinstance(one, str) else one)
        else:
            message.segments.add().token_ids.ids.extend(one)
    return message


def chat(turns):
    """A Chat of (role, content) pairs; a text alone is one turn of the user."""
    message = pb.Chat()
    for role, content in [("user", turns)] if isinstance(turns, (str, bytes)) else turns:
        message.messages.add(role=role, content=content.encode() if isinstance(content, str) else content)
    return message


def generation(content=None, chat_turns=None, logprobs=None, prompt_logprobs=None, logit_bias=None, **fields):
    """A Generation from flat names: those of SamplingOptions and StopOptions too, logit_bias as {id: bias} or pairs."""
    message = pb.Generation()
    if content is not None:
        message.prompt.CopyFrom(prompt(content))
    if chat_turns is not None:
        message.chat.CopyFrom(chat(chat_turns))
    for name, value in (("output", logprobs), ("prompt", prompt_logprobs)):
        if value is not None:
            setattr(message.logprobs, name, value)
    for token, bias in logit_bias.items() if isinstance(logit_bias, dict) else logit_bias or ():
        message.sampling.logit_bias.add(token_id=token, bias=bias)
    for name, value in fields.items():
        place = getattr(message, _PARTS[name]) if name in _PARTS else message
        if isinstance(value, (list, tuple)):
            getattr(place, name).extend(one.encode() if isinstance(one, str) else one for one in value)
        else:
            setattr(place, name, value)
    return message


class Client:
    """The public API of one router."""

    def __init__(self, target, **options):
        self.target = target
        self.channel = channel(target, **options)
        self.stub = stub(self.channel, "baton.v1.InferenceService")
        self.health_stub = stub(self.channel, "grpc.health.v1.Health")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.channel.close()

    def generate(self, request, timeout_s=LONGEST_S):
        """The GenerateResponse; raises Failure."""
        return self.start(request, timeout_s).result()

    def start(self, request, timeout_s=LONGEST_S):
        """The unary call as it runs: result(), cancel(), done()."""
        return Unary(self.stub.Generate.future(pb.GenerateRequest(generation=request), timeout=timeout_s))

    def stream(self, request, timeout_s=LONGEST_S):
        return Stream(self.stub.GenerateStream(pb.GenerateStreamRequest(generation=request), timeout=timeout_s))

    def call(self, method, request, timeout_s=LONGEST_S):
        """Another unary method by name."""
        return Unary(getattr(self.stub, method).future(request, timeout=timeout_s)).result()

    def tokenize(self, content=None, chat_turns=None):
        """The ids of a text or chat."""
        request = pb.TokenizeRequest()
        if content is not None:
            request.prompt.CopyFrom(prompt(content))
        if chat_turns is not None:
            request.chat.CopyFrom(chat(chat_turns))
        return list(self.call("Tokenize", request).token_ids)

    def detokenize(self, ids):
        return self.call("Detokenize", pb.DetokenizeRequest(token_ids=ids)).text

    def health(self, service="", timeout_s=LONGEST_S):
        """The name of the serving status."""
        answer = Unary(self.health_stub.Check.future(health_pb.HealthCheckRequest(service=service), timeout=timeout_s))
        return health_pb.HealthCheckResponse.ServingStatus.Name(answer.result().status)


class Unary:
    def __init__(self, call):
        self.call = call

    def result(self):
        """When the call has ended, by its deadline at the latest."""
        try:
            return self.call.result()
        except grpc.FutureCancelledError as error:
            raise Failure(self.call) from error
        except grpc.RpcError as error:
            raise Failure(error) from error

    def cancel(self):
        self.call.cancel()

    def done(self):
        return self.call.done()


class Stream:
    """A streamed answer. Iterating gives the events; what they say so far is kept by choice. A message is taken
    from the connection only when iterated over, so gRPC's flow control holds the server back otherwise."""

    def __init__(self, call):
        self.call = call
        self.events = []
        self.started = self.completed = self.failure = None
        self.ids, self.texts, self.logprobs, self.finish = {}, {}, {}, {}  # by choice
        self.prompt_logprobs = []
        self.out_of_order = []  # what END1 excludes: anything after a choice's end or after Completed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cancel()

    def __iter__(self):
        return self

    def __next__(self):
        try:
            response = next(self.call)
        except StopIteration:
            raise
        except grpc.RpcError as error:
            self.failure = Failure(error)
            raise StopIteration from None
        return self._take(response)

    def _take(self, response):
        kind = response.WhichOneof("event")
        event = getattr(response, kind)
        self.events.append((kind, event))
        if self.completed is not None or (kind != "started") == (self.started is None):
            self.out_of_order.append(kind)
        if kind in ("delta", "choice_end") and event.choice in self.finish:
            self.out_of_order.append(f"{kind} of {event.choice}")
        if kind in ("started", "completed"):
            setattr(self, kind, event)
        elif kind == "delta":
            self.ids.setdefault(event.choice, []).extend(event.token_ids)
            self.texts[event.choice] = self.texts.get(event.choice, "") + event.text
            self.logprobs.setdefault(event.choice, []).extend(event.logprobs)
        elif kind == "choice_end":
            self.finish[event.choice] = pb_finish(event.finish_reason)
        else:
            self.prompt_logprobs += event.logprobs
        return kind, event

    def read(self, until=None):
        """Reads to the end, or until until(self) is true; raises Failure when the call ends with one."""
        while until is None or not until(self):
            if next(self, None) is None:
                break
        if self.failure is not None:
            raise self.failure
        return self

    def read_tokens(self, count, choice=0):
        return self.read(lambda stream: len(stream.ids.get(choice, ())) >= count)

    def cancel(self):
        self.call.cancel()


def spent(usage):
    """What a request decides of its usage: how much of the prompt was cached depends on those before it."""
    return usage.prompt_tokens, usage.completion_tokens


def decided(answer):
    """All that a request decides of its GenerateResponse, as bytes: not its name, which workers ran it, how long that
    took and what they found cached."""
    kept = pb.GenerateResponse.FromString(answer.SerializeToString())
    for field in ("request_id", "timings", "workers"):
        kept.ClearField(field)
    kept.usage.ClearField("cached_prompt_tokens")
    return kept.SerializeToString(deterministic=True)


def pb_finish(reason):
    """"stop" or "length"."""
    return _POOL.FindEnumTypeByName("baton.v1.FinishReason").values_by_number[reason].name.rsplit("_", 1)[-1].lower()


def in_threads(count, work):
    """[work(0), ..., work(count - 1)], all at once; the first exception is raised."""
    results, errors = [None] * count, []

    def run(index):
        try:
            results[index] = work(index)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Duplex:
    """A stream both ways: send() whatever and whenever, read the answers; for sessions of workers. Messages may be
    given as bytes that no message has."""

    def __init__(self, method, timeout_s=LONGEST_S):
        self.outgoing = queue.Queue()
        self.call = method(iter(self.outgoing.get, None), timeout=timeout_s)

    def send(self, *messages):
        for message in messages:
            self.outgoing.put(message)

    def receive(self):
        """The next message; raises Failure at the end, with the code OK when it was a good one."""
        try:
            return next(self.call)
        except (StopIteration, grpc.RpcError) as error:
            raise Failure(self.call) from error

    def end_of(self):
        """The Failure with which the other side ends, whatever comes before."""
        try:
            while True:
                self.receive()
        except Failure as failure:
            return failure

    def close(self):
        self.outgoing.put(None)

    def cancel(self):
        self.close()
        self.call.cancel()
