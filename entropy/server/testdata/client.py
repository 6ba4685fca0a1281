"""A client with grpcio that draws from a server in all ways and prints what is wrong. Usage: client.py ADDRESS [API-KEY]"""

import sys
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from template_server import SERVICE, EntropyRequest, EntropyResponse

address, key = sys.argv[1], sys.argv[2:]
metadata = [("api-key", k) for k in key]
codec = dict(request_serializer=EntropyRequest.SerializeToString, response_deserializer=EntropyResponse.FromString)
seen = set()


def check(reply, n, sequence, before):
    assert len(reply.data) == n, f"{len(reply.data)} bytes, asked for {n}"
    assert reply.sequence_id == sequence, f"echo {reply.sequence_id}, asked was {sequence}"
    assert before <= reply.generation_timestamp_ns <= time.time_ns(), "made at another time"
    assert n < 16 or reply.data not in seen, "the same bytes twice"
    seen.add(reply.data)


with grpc.insecure_channel(address) as channel:
    assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE)).status == 1
    unary = channel.unary_unary(f"/{SERVICE}/GetEntropy", **codec)
    stream = channel.stream_stream(f"/{SERVICE}/StreamEntropy", **codec)
    for sequence, n in enumerate([1, 16, 300, 20480, 102400], 1):
        before = time.time_ns()
        check(unary(EntropyRequest(bytes_needed=n, sequence_id=sequence), metadata=metadata, timeout=10), n, sequence, before)
    for n in (0, -1, -(2**31), 2**31 - 1):
        try:
            unary(EntropyRequest(bytes_needed=n), metadata=metadata, timeout=10)
            raise SystemExit(f"{n} bytes are given out")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    before = time.time_ns()
    requests = [EntropyRequest(bytes_needed=20480, sequence_id=s) for s in range(1, 51)]
    replies = list(stream(iter(requests), metadata=metadata, timeout=10))
    assert len(replies) == len(requests), f"{len(replies)} replies"
    for request, reply in zip(requests, replies):
        check(reply, request.bytes_needed, request.sequence_id, before)
    if key:
        try:
            unary(EntropyRequest(bytes_needed=1), metadata=[("api-key", "wrong")], timeout=10)
            raise SystemExit("a wrong key is accepted")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
print("ok")
