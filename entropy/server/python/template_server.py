#!/usr/bin/env python3
"""A template for people who make random number hardware: serve it to qr-gateway and to anything else that speaks the published protocol.

Copy this file, fill in the four methods of Hardware, run it:

    pip install grpcio grpcio-health-checking
    python template_server.py --listen unix:///run/qr-entropy/entropy.sock
    python template_server.py --listen localhost:50051

It serves qr_entropy.EntropyService (single requests and streams) and the gRPC health service. SIGINT and SIGTERM end it in peace: requests
under way get their answer, then the hardware is closed.
"""

import argparse
import hmac
import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

log = logging.getLogger("entropy")


class Hardware:
    """One device. Only one method is called at a time. An exception of generate is told to the caller; the server goes on."""

    device_id = "template-placeholder-v1"  # TODO: what replies say made the bytes

    def init(self, device):
        """Open the device. device is the value of --device. Raise if it can't be used."""
        # TODO: open it, set it up, check its version.

    def generate(self, n):
        """Return n bytes that are measured now: flush what the device or its driver kept from before, then read."""
        # TODO: flush and read. The placeholder is the operating system's generator, which is no hardware source.
        return os.urandom(n)

    def is_healthy(self):
        """Say whether the device works. Called at the start and every few seconds; must not use up randomness."""
        return True

    def close(self):
        """Close the device. Called once, after the last request."""


# The protocol. Names and numbers are published: they never change.
PACKAGE, SERVICE = "qr_entropy", "qr_entropy.EntropyService"
INT32, INT64, STRING, BYTES = (getattr(descriptor_pb2.FieldDescriptorProto, "TYPE_" + t) for t in ("INT32", "INT64", "STRING", "BYTES"))
MESSAGES = {
    "EntropyRequest": [("bytes_needed", 1, INT32), ("sequence_id", 2, INT64)],
    "EntropyResponse": [("data", 1, BYTES), ("sequence_id", 2, INT64), ("generation_timestamp_ns", 3, INT64), ("device_id", 4, STRING)],
}


def protocol():
    """Make the message classes, without generated code."""
    file = descriptor_pb2.FileDescriptorProto(name="entropy_service.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            message.field.add(name=field, number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return tuple(message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES)


EntropyRequest, EntropyResponse = protocol()


class Service:
    """Answers requests from one hardware."""

    def __init__(self, hardware, max_bytes):
        self.hardware, self.max_bytes = hardware, max_bytes
        self.lock = threading.Lock()  # one user of the hardware at a time

    def answer(self, request, context):
        n = request.bytes_needed
        if not 1 <= n <= self.max_bytes:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"bytes_needed is {n}: it must lie between 1 and {self.max_bytes}")
        try:
            with self.lock:
                data = self.hardware.generate(n)
        except Exception as error:  # whatever the hardware's driver raises
            log.exception("the hardware fails")
            context.abort(grpc.StatusCode.INTERNAL, f"the hardware fails: {error}")
        if len(data) != n:
            context.abort(grpc.StatusCode.INTERNAL, f"the hardware gave {len(data)} bytes, asked for {n}")
        return EntropyResponse(
            data=bytes(data), sequence_id=request.sequence_id, generation_timestamp_ns=time.time_ns(), device_id=self.hardware.device_id
        )

    def stream(self, requests, context):
        for request in requests:
            yield self.answer(request, context)

    def handler(self):
        codec = dict(request_deserializer=EntropyRequest.FromString, response_serializer=EntropyResponse.SerializeToString)
        return grpc.method_handlers_generic_handler(SERVICE, {
            "GetEntropy": grpc.unary_unary_rpc_method_handler(self.answer, **codec),
            "StreamEntropy": grpc.stream_stream_rpc_method_handler(self.stream, **codec),
        })


class Keys(grpc.ServerInterceptor):
    """Admits callers that show an API key."""

    def __init__(self, header, keys):
        self.header, self.keys = header, [key.encode() for key in keys]
        refuse = lambda request, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, f"an API key is needed in metadata {header}")
        self.refusal = grpc.unary_unary_rpc_method_handler(refuse)
        self.stream_refusal = grpc.stream_stream_rpc_method_handler(refuse)

    def intercept_service(self, go_on, call):
        shown = dict(call.invocation_metadata).get(self.header, "").encode()
        known = [hmac.compare_digest(shown, key) for key in self.keys]
        if any(known) or call.method.startswith("/grpc.health.v1.Health/"):
            return go_on(call)
        return self.stream_refusal if call.method.endswith("/StreamEntropy") else self.refusal


def check_socket(path):
    """Refuse to take the place of a server that lives, or of a file of another kind."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        sys.exit(f"error: {path} is a file of another kind: remove it or choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # a server left it that is no more
        else:
            sys.exit(f"error: another server uses {path}")


def bind(server, listen, mode):
    """Listen on host:port or unix:///path and return the address."""
    if not listen.startswith("unix:"):
        port = server.add_insecure_port(listen)
        return f"{listen.rpartition(':')[0]}:{port}"
    path = listen.removeprefix("unix:").removeprefix("//")
    if not path.startswith("/"):
        sys.exit(f"error: {listen} has a relative path: write unix:///path/to/socket")
    check_socket(path)
    before = os.umask(0o777 & ~mode)
    try:
        server.add_insecure_port(f"unix:{path}")
    finally:
        os.umask(before)
    return f"unix://{path}"


def watch(hardware, service, status, ended):
    """Tell the health service how the hardware is, until ended."""
    while not ended.wait(5):
        with service.lock:
            healthy = hardware.is_healthy()
        for name in ("", SERVICE):
            status.set(name, health_pb2.HealthCheckResponse.SERVING if healthy else health_pb2.HealthCheckResponse.NOT_SERVING)


def serve(hardware, options):
    """Serve until a signal comes. Return the exit status."""
    hardware.init(options.device)
    if not hardware.is_healthy():
        log.error("the hardware is not healthy")
        hardware.close()
        return 1
    service, status, ended = Service(hardware, options.max_bytes), health.HealthServicer(), threading.Event()
    keys = [Keys(options.api_key_header, [line.strip() for line in open(options.api_key_file) if line.strip()])] if options.api_key_file else []
    server = grpc.server(futures.ThreadPoolExecutor(options.workers), interceptors=keys, options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([service.handler()])
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    address = bind(server, options.listen, options.mode)
    for name in ("", SERVICE):
        status.set(name, health_pb2.HealthCheckResponse.SERVING)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    server.start()
    print(f"listening on {address}", flush=True)
    watch(hardware, service, status, ended)
    status.enter_graceful_shutdown()
    server.stop(options.grace).wait()
    hardware.close()  # last: requests under way still needed it
    return 0


def main(hardware):
    parser = argparse.ArgumentParser(description="serve random number hardware over gRPC")
    parser.add_argument("--listen", default="localhost:50051", help="host:port or unix:///path")
    parser.add_argument("--mode", type=lambda text: int(text, 8), default=0o660, help="permissions of a Unix socket, octal")
    parser.add_argument("--device", default="", help="what Hardware.init opens")
    parser.add_argument("--max-bytes", type=int, default=1 << 20, help="limit of one request")
    parser.add_argument("--workers", type=int, default=16, help="requests and streams served at a time")
    parser.add_argument("--grace", type=float, default=5, help="seconds for requests under way when it is to stop")
    parser.add_argument("--api-key-file", default="", help="file with one API key per line")
    parser.add_argument("--api-key-header", default="api-key", help="metadata name of the API key")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.exit(serve(hardware, parser.parse_args()))


if __name__ == "__main__":
    main(Hardware())
