"""A router and a prefill worker of the test's own: they speak to workers as they like, as broken ones would."""
import itertools
import random
import threading

from fault_cluster import PATIENCE_S, api

PROTOCOL_VERSION = 1
_requests = itertools.count(1)


def event_kind(event):
    return event.WhichOneof("event")


class Router:
    """One session with each of the given workers (cluster processes), heartbeats included."""

    def __init__(self, workers):
        self.epoch = api.state_pb.Epoch(hi=random.getrandbits(64), lo=random.getrandbits(64))
        self.changed = threading.Condition()
        self.events = []  # (worker name, event)
        self.ends = {}    # how sessions ended
        self.hellos, self.sessions, self.stubs, self.channels = {}, {}, {}, []
        self.submits = 0
        self.stopped = threading.Event()
        for worker in workers:
            self._open(worker)
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.hellos) == len(workers), PATIENCE_S), "no hello"
        threading.Thread(target=self._beat, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped.set()
        for session in self.sessions.values():
            session.cancel()
        for channel in self.channels:
            channel.close()

    def _open(self, worker):
        channel = api.channel(worker.info["listen"])
        self.channels.append(channel)
        self.stubs[worker.name] = api.stub(channel, "baton.worker.v1.WorkerService")
        session = self.sessions[worker.name] = api.Duplex(self.stubs[worker.name].Session, timeout_s=None)
        session.send(self._request(hello=api.worker_pb.RouterHello(
            router_epoch=self.epoch, session_number=1, protocol_version=PROTOCOL_VERSION)))
        threading.Thread(target=self._listen, args=(worker.name, session), daemon=True).start()

    @staticmethod
    def _request(**part):
        return api.worker_pb.SessionRequest(**part)

    def _listen(self, name, session):
        try:
            while True:
                for event in session.receive().events:
                    with self.changed:
                        if event_kind(event) == "hello":
                            self.hellos[name] = event.hello
                        elif event_kind(event) != "load":
                            self.events.append((name, event))
                        self.changed.notify_all()
        except api.Failure as end:
            with self.changed:
                self.ends[name] = end
                self.changed.notify_all()

    def _beat(self):
        while not self.stopped.wait(0.3):
            for session in self.sessions.values():
                session.send(self._request(heartbeat=api.worker_pb.RouterHeartbeat()))

    def new_attempt(self, attempt=1, request=None):
        return api.state_pb.AttemptId(router=self.epoch, request=request or next(_requests), attempt=attempt)

    def submit(self, worker, attempt, prompt, max_tokens, sinks=(), **state):
        """Submit of a greedy request; raises api.Failure."""
        return self.submit_future(worker, attempt, prompt, max_tokens, sinks, **state).result()

    def submit_future(self, worker, attempt, prompt, max_tokens, sinks=(), **state):
        self.submits += 1
        decoder = api.state_pb.DecoderState(attempt=attempt, prompt=prompt, choices=[api.state_pb.ChoiceState()], **state)
        decoder.sampling.top_p = 1
        decoder.stop.max_tokens = max_tokens
        decoder.stop.ignore_eos = True
        request = api.worker_pb.SubmitRequest(state=decoder, session_number=1, submit_number=self.submits,
                                              worker_epoch=self.hellos[worker].worker_epoch)
        for sink in sinks:
            hello = self.hellos[sink]
            request.sinks.add(address=hello.transfer_address, epoch=hello.worker_epoch)
        return api.Unary(self.stubs[worker].Submit.future(request, timeout=PATIENCE_S))

    def attach(self, worker, attempt):
        self.sessions[worker].send(self._request(attach=api.worker_pb.Attach(attempt=attempt)))

    def cancel(self, worker, attempt):
        self.sessions[worker].send(self._request(cancel=api.worker_pb.Cancel(attempt=attempt)))

    def of(self, attempt, kind=None, worker=None):
        """Events of an attempt so far."""
        found = []
        with self.changed:
            for name, event in self.events:
                part = getattr(event, event_kind(event))
                about = part.token.attempt if event_kind(event) == "first_token" else part.attempt
                if about == attempt and kind in (None, event_kind(event)) and worker in (None, name):
                    found.append(part)
        return found

    def end_of(self, worker):
        """The Failure with which the worker ends the session."""
        with self.changed:
            assert self.changed.wait_for(lambda: worker in self.ends, PATIENCE_S), "the session lives"
        return self.ends[worker]

    def wait(self, attempt, kind, worker=None, count=1):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.of(attempt, kind, worker)) >= count, PATIENCE_S), \
                f"no {kind}: {self.events}"
        return self.of(attempt, kind, worker)

    def tokens(self, attempt, worker):
        """All that this worker sends of the attempt, to its finish reason."""
        with self.changed:
            assert self.changed.wait_for(
                lambda: any(token.finish_reason for token in self.of(attempt, "token", worker)), PATIENCE_S), self.events
        return [token.token for token in self.of(attempt, "token", worker)]


class Source:
    """A session for transfers with a decode worker, as a prefill worker opens it."""

    def __init__(self, worker, hello):
        self.fingerprints = {"layout_fp": hello.layout_fp, "numerics_id": hello.numerics_id}
        self.channel = api.channel(worker.info["listen"])
        self.session = api.Duplex(api.stub(self.channel, "baton.transfer.v1.TransferService").Session)
        self.send(hello=api.transfer_pb.SourceHello(
            source_epoch=api.state_pb.Epoch(hi=random.getrandbits(64), lo=1), sink_epoch=hello.worker_epoch,
            protocol_version=PROTOCOL_VERSION, **self.fingerprints))
        assert self.receive()[0] == "hello"

    def close(self):
        self.session.cancel()
        self.channel.close()

    def send(self, **part):
        self.session.send(api.transfer_pb.SessionRequest(**part))

    def receive(self):
        """(kind, message) of the next that is no heartbeat."""
        while True:
            message = self.session.receive()
            kind = message.WhichOneof("message")
            if kind != "heartbeat":
                return kind, getattr(message, kind)

    def reserve(self, attempt, prompt, max_tokens):
        self.send(reserve=api.transfer_pb.Reserve(attempt=attempt, prompt=prompt, n=1, max_tokens=max_tokens,
                                                  **self.fingerprints))

    def answer(self, attempt=None):
        """The kind of the next answer, which is about the attempt."""
        kind, message = self.receive()
        assert attempt is None or message.attempt == attempt, message
        return kind

    def end_of(self):
        return self.session.end_of()
