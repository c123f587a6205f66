#!/usr/bin/env python3
"""Error details: one of a google.rpc type, whose fields the library shows, and one of the application's own type,
which the application finds by that type and decodes.

    error_detail.py

An interceptor acts as the server here, to give both kinds of details; details from a server are read in the same
way.
"""

import sys

import penstock
from penstock import StatusCode

# message Complaint { int32 count = 2; }, as protobuf encodes it. A program that uses protobuf gives messages of
# generated classes as details, and reads such a detail with detail.unpack(Complaint).
COMPLAINT = ("type.googleapis.com/penstock.Complaint", bytes([2 << 3, 3]))
RETRY_INFO = ("type.googleapis.com/google.rpc.RetryInfo", bytes([1 << 3 | 2, 2, 1 << 3, 2]))


class Complain(penstock.Interceptor):
    def on_start(self, hop):
        hop.end(StatusCode.FAILED_PRECONDITION, "no pressure", details=[RETRY_INFO, COMPLAINT])


count = 0
with penstock.Channel("unix:/nobody/listens/here", interceptors=[Complain()]) as channel:
    try:
        channel.unary_unary("/penstock.Echo/Unary")(b"")
    except penstock.RpcError as error:
        print(error.status_json)
        for detail in error.status_details:
            print(detail.type_name, detail.parsed or detail.value)
        own = error.find_detail("penstock.Complaint")
        if own is not None:
            count = own.value[1]
print(count, "complaints")

if count != 3:
    sys.exit("the detail did not arrive")
